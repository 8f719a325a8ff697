/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* In: finds the packet within a tunnel and takes the tunnel off.
 *
 *   Ethernet [802.1Q] IPv4|IPv6 (4|41)            IPv4|IPv6 ...   ipip
 *   Ethernet [802.1Q] IPv4|IPv6 UDP:6080 GUE      IPv4|IPv6 ...   gue
 *   Ethernet [802.1Q]                             IPv4|IPv6 ...   l2
 *
 * A tunnel is ours when its outer destination is the address that the
 * assignment gives this server in the inner destination's VIP, or gave it
 * before while that still rests. Everything else is passed untouched. */
#ifndef FAIRLEAD_HOST_DECAP_H
#define FAIRLEAD_HOST_DECAP_H

#include "csum.h"
#include "packet.h"

struct fl_outer {
	__u64 dst[2];      /* outer destination, as in fl_host_vip */
	void *inner;       /* the inner IP header; the packet's own without a tunnel */
	__u16 cut;         /* bytes between the Ethernet header and inner */
	__u16 inner_proto; /* ETH_P_IP or ETH_P_IPV6, BE */
	__u16 l2_len;      /* 14, or 18 with a tag */
	__u8 congested;    /* the outer header says: congestion experienced */
};

/* After the outer IP header at pos: is there a packet of ours to come? Sets
 * inner and inner_proto; 0: no tunnel. */
static __always_inline _Bool fl_tunnel(struct fl_outer *o, void *pos, void *end, __u8 next)
{
	struct udphdr *udp = pos;
	__u8 *gue;

	if (next == IPPROTO_UDP) {
		gue = (__u8 *)(udp + 1);
		if ((void *)(gue + 4) > end || udp->dest != bpf_htons(gue_port))
			return 0;
		/* Version 0, no control message, no optional fields, no flags:
		 * what our balancers send (docs/wire-format.md). */
		if (gue[0] || *(__u16 *)(gue + 2))
			return 0;
		next = gue[1];
		pos = gue + 4;
	}
	o->inner = pos;
	if (next == IPPROTO_IPIP)
		o->inner_proto = FL_BE16(ETH_P_IP);
	else if (next == IPPROTO_IPV6)
		o->inner_proto = FL_BE16(ETH_P_IPV6);
	else
		return 0;
	return 1;
}

/* Reads up to the inner IP header. 0: not IP, nothing of ours. */
static __always_inline _Bool fl_outer_parse(struct fl_outer *o, void *data, void *end)
{
	struct ethhdr *eth = data;
	void *l3 = eth + 1;
	__u16 type;

	if (l3 > end)
		return 0;
	type = eth->h_proto;
	o->l2_len = sizeof(*eth);
	if (type == FL_BE16(ETH_P_8021Q)) {
		__u16 *tag = l3;

		l3 += 4;
		if (l3 > end)
			return 0;
		type = tag[1];
		o->l2_len += 4;
	}
	o->inner = l3;
	o->inner_proto = type;
	o->cut = 0;
	o->congested = 0;
	if (type == FL_BE16(ETH_P_IP)) {
		struct iphdr *ip = l3;
		__u32 header;

		if ((void *)(ip + 1) > end || ip->version != 4)
			return 0;
		header = ip->ihl * 4;
		if (header < sizeof(*ip) || ip->frag_off & FL_BE16(0x3fff))
			return 1;
		o->dst[0] = 0;
		o->dst[1] = fl_mapped4(ip->daddr);
		if (fl_tunnel(o, l3 + header, end, ip->protocol)) {
			o->cut = o->inner - l3;
			o->congested = (ip->tos & 3) == 3;
		} else {
			o->inner = l3;
			o->inner_proto = type;
		}
		return 1;
	}
	if (type == FL_BE16(ETH_P_IPV6)) {
		struct ipv6hdr *ip = l3;

		if ((void *)(ip + 1) > end || ip->version != 6)
			return 0;
		__builtin_memcpy(o->dst, &ip->daddr, 16);
		if (fl_tunnel(o, ip + 1, end, ip->nexthdr)) {
			o->cut = o->inner - l3;
			/* The class is the eight bits after the version. */
			o->congested = (ip->flow_lbl[0] >> 4 & 3) == 3;
		} else {
			o->inner = l3;
			o->inner_proto = type;
		}
		return 1;
	}
	return 0;
}

/* RFC 6040: a tunnel's congestion mark passes to the inner header where its
 * connection can carry one. */
static __always_inline void fl_pass_congestion(const struct fl_outer *o, void *end)
{
	if (o->inner_proto == FL_BE16(ETH_P_IP)) {
		struct iphdr *ip = o->inner;
		__u16 was, is;

		if ((void *)(ip + 1) > end || !(ip->tos & 3) || (ip->tos & 3) == 3)
			return;
		was = *(__u16 *)ip;
		ip->tos |= 3;
		is = *(__u16 *)ip;
		ip->check = fl_csum_replace16(ip->check, was, is);
	} else {
		struct ipv6hdr *ip = o->inner;

		if ((void *)(ip + 1) > end || !(ip->flow_lbl[0] >> 4 & 3))
			return;
		ip->flow_lbl[0] |= 0x30;
	}
}

/* Takes `cut` bytes from between the Ethernet header (l2_len bytes) and the
 * inner packet. All pointers into the packet are void afterwards. */
static __always_inline int fl_decapsulate(struct xdp_md *ctx, const struct fl_outer *o)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 macs0;
	__u32 macs1, tag = 0;

	if (data + 18 > end)
		return -1;
	macs0 = *(__u64 *)data;
	macs1 = *(__u32 *)(data + 8);
	if (o->l2_len == 18)
		tag = *(__u32 *)(data + 12); /* 0x8100 and the tag */
	if (bpf_xdp_adjust_head(ctx, o->cut))
		return -1;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + 18 > end)
		return -1;
	*(__u64 *)data = macs0;
	*(__u32 *)(data + 8) = macs1;
	if (o->l2_len == 18) {
		*(__u32 *)(data + 12) = tag;
		*(__u16 *)(data + 16) = o->inner_proto;
	} else {
		*(__u16 *)(data + 12) = o->inner_proto;
	}
	return 0;
}

#endif
