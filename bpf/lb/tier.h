/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Two tiers (paper §3.3; docs/tiers.md): before anything else, a balancer of tier two
 * takes off the tunnel that one of tier one sent the packet in.
 *
 *   Ethernet [802.1Q] IPv4|IPv6 (4|41)       IPv4|IPv6 ...   ipip
 *   Ethernet [802.1Q] IPv4|IPv6 UDP:6080 GUE IPv4|IPv6 ...   gue
 *
 * l2 has none. A tunnel is tier one's when it is to this balancer's address. */
#ifndef FAIRLEAD_LB_TIER_H
#define FAIRLEAD_LB_TIER_H

#include "csum.h"
#include "gue.h"
#include "maps.h"
#include "packet.h"
#include "vip.h"

/* This balancer's address as fl_vip.addr; 0: it is not in tier two, and has none of
 * this. */
const volatile __u64 tier_addr[2];

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FL_TIER_SOURCES);
	__type(key, __u32);
	__type(value, struct fl_tier_source);
} tier_sources SEC(".maps");

enum fl_tier_in {
	FL_TIER_NONE,      /* no tunnel to this balancer */
	FL_TIER_TAKEN,     /* the packet is what was in it */
	FL_TIER_UNTRUSTED, /* from nobody who may send one */
};

__noinline int fl_tier_from(__u64 first, __u64 second)
{
	for (__u32 i = 0; i < FL_TIER_SOURCES; i++) {
		__u32 index = i;
		struct fl_tier_source *s = bpf_map_lookup_elem(&tier_sources, &index);

		if (!s || !(s->mask[0] | s->mask[1]))
			return 0;
		if ((second & s->mask[1]) == s->addr[1] && (first & s->mask[0]) == s->addr[0])
			return 1;
	}
	return 0;
}

/* A router's congestion mark goes on with the packet inside (RFC 6040). */
static __always_inline void fl_tier_congested(void *inner, const void *end)
{
	struct iphdr *ip = inner;
	__u16 *word = inner;

	if (inner + sizeof(*ip) > end)
		return;
	if (ip->version == 6) {
		if (word[0] & bpf_htons(0x0030)) /* capable */
			word[0] |= bpf_htons(0x0030);
	} else if (ip->tos & 3 && (ip->tos & 3) != 3) {
		__u16 was = word[0];

		ip->tos |= 3;
		ip->check = fl_csum_replace16(ip->check, was, word[0]);
	}
}

/* Takes the tunnel off, an enum fl_tier_in. */
__noinline int fl_tier_in(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 src[2] = {}, dst[2] = {}, macs0;
	__u32 macs1, cut, tag = 0;
	bool tagged, congested;
	__u8 next;
	void *h;
	__u16 type;

	if (data + ETH_HLEN + 4 + sizeof(struct iphdr) > end)
		return FL_TIER_NONE;
	macs0 = *(__u64 *)data;
	macs1 = *(__u32 *)(data + 8);
	type = *(__u16 *)(data + 12);
	h = data + ETH_HLEN;
	tagged = type == bpf_htons(ETH_P_8021Q);
	if (tagged) {
		tag = *(__u32 *)(data + 12);
		type = *(__u16 *)(data + 16);
		h += 4;
	}
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = h;

		if (h + sizeof(*ip) > end || *(__u8 *)h != 0x45 ||
		    ip->frag_off & bpf_htons(0x3fff) || !fl_csum_good4(ip))
			return FL_TIER_NONE;
		src[1] = fl_mapped4(ip->saddr);
		dst[1] = fl_mapped4(ip->daddr);
		congested = (ip->tos & 3) == 3;
		next = ip->protocol;
		cut = sizeof(*ip);
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = h;

		if (h + sizeof(*ip) > end)
			return FL_TIER_NONE;
		src[0] = *(__u64 *)(h + 8);
		src[1] = *(__u64 *)(h + 16);
		dst[0] = *(__u64 *)(h + 24);
		dst[1] = *(__u64 *)(h + 32);
		congested = (*(__u16 *)h & bpf_htons(0x0030)) == bpf_htons(0x0030);
		next = ip->nexthdr;
		cut = sizeof(*ip);
	} else {
		return FL_TIER_NONE;
	}
	if (dst[0] != tier_addr[0] || dst[1] != tier_addr[1])
		return FL_TIER_NONE;
	h += cut;
	if (next == IPPROTO_UDP) {
		struct udphdr *udp = h;
		__u32 gue;

		if (h + FL_GUE_BYTES > end || udp->dest != bpf_htons(FL_GUE_PORT))
			return FL_TIER_NONE;
		gue = *(__u32 *)(udp + 1); /* nothing but the protocol in its second octet */
		next = bpf_ntohl(gue) >> 16;
		if (bpf_ntohl(gue) & 0xff00ffff)
			return FL_TIER_NONE;
		cut += FL_GUE_BYTES;
		h += FL_GUE_BYTES;
	}
	if (next == IPPROTO_IPIP)
		type = bpf_htons(ETH_P_IP);
	else if (next == IPPROTO_IPV6)
		type = bpf_htons(ETH_P_IPV6);
	else
		return FL_TIER_NONE;
	if (!fl_tier_from(src[0], src[1]))
		return FL_TIER_UNTRUSTED;
	if (congested)
		fl_tier_congested(h, end);
	if (bpf_xdp_adjust_head(ctx, (int)cut))
		return FL_TIER_NONE; /* cannot be: the packet is longer */
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN + 4 > end)
		return FL_TIER_TAKEN; /* nothing was in it: malformed */
	*(__u64 *)data = macs0;
	*(__u32 *)(data + 8) = macs1;
	if (tagged) {
		*(__u32 *)(data + 12) = tag;
		*(__u16 *)(data + 16) = type;
	} else {
		*(__u16 *)(data + 12) = type;
	}
	return FL_TIER_TAKEN;
}

/* What came in a tunnel is a VIP's, or nobody's: whoever could send more would speak to
 * this machine as if from its own link. */
static __always_inline int fl_unless_stray(const struct fl_snapshot *s, int reason)
{
	if (!(tier_addr[0] | tier_addr[1]) || !s->tunnelled)
		return reason;
	switch (reason) {
	case FL_PASS_NOT_IP:
	case FL_PASS_NO_VIP:
	case FL_PASS_VIP_OTHER:
	case FL_PASS_NOT_MINE:
		return FL_DROP_TIER_STRAY;
	}
	return reason;
}

#endif
