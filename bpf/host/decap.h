/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* In: finds the packet within a tunnel and takes the tunnel off.
 *
 *   Ethernet [802.1Q] IPv4|IPv6 [hops] (4|41)        IPv4|IPv6 ...   ipip
 *   Ethernet [802.1Q] IPv4|IPv6 UDP:6080 GUE [hops]  IPv4|IPv6 ...   gue
 *   Ethernet [802.1Q]                                IPv4|IPv6 ...   l2
 *
 * A tunnel is ours when its outer destination is the address that the
 * assignment gives this server in the inner destination's VIP, or gave it
 * before while that still rests. Everything else is passed untouched. */
#ifndef FAIRLEAD_HOST_DECAP_H
#define FAIRLEAD_HOST_DECAP_H

#include "csum.h"
#include "forward_gue.h"

/* What begins at offset *pos with a UDP header; see fl_gue. */
static __always_inline _Bool fl_over_udp(struct fl_outer *o, void *data, void *end, __u32 *pos,
					 __u8 *next)
{
	struct udphdr *udp = fl_at(data, *pos, FL_L3_MASK);

	if ((void *)(udp + 1) > end)
		return 0;
	o->udp = *pos;
	*pos += sizeof(*udp);
	switch (udp->dest) {
	case bpf_htons(FL_GUE_PORT):
		return fl_gue(o, data, end, pos, next);
	}
	return 0;
}

/* After the outer IP header at offset pos: is there a packet of ours to come?
 * Sets inner, inner_proto and cut; 0: no tunnel. */
static __always_inline _Bool fl_tunnel(struct fl_outer *o, void *data, void *end, __u32 pos,
				       __u8 next)
{
	o->forwarding = FL_FWD_IPIP;
	if (next == IPPROTO_UDP && !fl_over_udp(o, data, end, &pos, &next))
		return 0;
	if (next == IPPROTO_IPIP)
		o->inner_proto = FL_BE16(ETH_P_IP);
	else if (next == IPPROTO_IPV6)
		o->inner_proto = FL_BE16(ETH_P_IPV6);
	else
		return 0;
	o->inner = pos;
	o->cut = pos - o->l2_len;
	return 1;
}

static __always_inline _Bool fl_outer_ip4(struct fl_outer *o, void *data, void *end)
{
	struct iphdr *ip = fl_at(data, o->l2_len, 31);
	__u16 *options = (void *)(ip + 1);
	__u32 header;

	if ((void *)options > end || ip->version != 4)
		return 0;
	header = ip->ihl * 4;
	if (header < sizeof(*ip) || ip->frag_off & FL_BE16(0x3fff))
		return 1;
	o->src[0] = o->dst[0] = 0;
	o->src[1] = fl_mapped4(ip->saddr);
	o->dst[1] = fl_mapped4(ip->daddr);
	o->congested = (ip->tos & 3) == 3;
	if (header == sizeof(*ip) + FL_HOPS_BYTES && ip->protocol != IPPROTO_UDP &&
	    (void *)options + FL_HOPS_BYTES <= end && *options == FL_HOPS_TYPE) {
		o->hops_at = o->l2_len + sizeof(*ip);
		o->hops_place = FL_HOPS_IN_OPTION4;
	}
	if (!fl_tunnel(o, data, end, o->l2_len + header, ip->protocol))
		o->hops_place = FL_HOPS_IN_NONE;
	return 1;
}

static __always_inline _Bool fl_outer_ip6(struct fl_outer *o, void *data, void *end)
{
	struct ipv6hdr *ip = fl_at(data, o->l2_len, 31);
	__u32 pos = o->l2_len + sizeof(*ip);
	__u8 next, *options = (void *)(ip + 1);

	if ((void *)options > end || ip->version != 6)
		return 0;
	__builtin_memcpy(o->src, &ip->saddr, 16);
	__builtin_memcpy(o->dst, &ip->daddr, 16);
	/* IPv4 addresses are kept mapped: on the wire such a source would pass
	 * for a balancer's or server's of IPv4, past all filters of IPv4. No
	 * packet may have it (RFC 4291 has it for sockets); it is nobody's. */
	if (fl_is_mapped(o->src))
		o->src[1] = 0;
	o->ipv6 = 1;
	/* The class is the eight bits after the version. */
	o->congested = (ip->flow_lbl[0] >> 4 & 3) == 3;
	next = ip->nexthdr;
	if (next == IPPROTO_DSTOPTS && (void *)options + FL_HOPS6_BYTES <= end &&
	    (*(__u64 *)options & ~0xffULL) == FL_HOPS6_HEAD &&
	    *(__u16 *)(options + 8) == FL_HOPS_TYPE6 && options[0] != IPPROTO_UDP) {
		next = options[0];
		o->hops_at = pos + 8;
		o->hops_place = FL_HOPS_IN_OPTION6;
		pos += FL_HOPS6_BYTES;
	}
	if (!fl_tunnel(o, data, end, pos, next))
		o->hops_place = FL_HOPS_IN_NONE;
	return 1;
}

/* Reads up to the inner IP header. 0: not IP, nothing of ours. Global, as all
 * that has many ways through it: the verifier walks it once, and knows
 * nothing of what it found, which joins the ways. */
__noinline int fl_outer_parse(struct xdp_md *ctx, struct fl_outer *o)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	__u16 type, *tag = (void *)(eth + 1);

	if (!o || (void *)tag > end)
		return 0;
	type = eth->h_proto;
	o->l2_len = sizeof(*eth);
	if (type == FL_BE16(ETH_P_8021Q)) {
		if ((void *)(tag + 2) > end)
			return 0;
		type = tag[1];
		o->l2_len += 4;
	}
	o->inner = o->hops_at = o->l2_len;
	o->inner_proto = type;
	o->cut = 0;
	o->congested = 0;
	o->hops_place = FL_HOPS_IN_NONE;
	o->ipv6 = 0;
	if (type == FL_BE16(ETH_P_IP))
		return fl_outer_ip4(o, data, end);
	if (type == FL_BE16(ETH_P_IPV6))
		return fl_outer_ip6(o, data, end);
	return 0;
}

/* RFC 6040: a tunnel's congestion mark passes to the inner header where its
 * connection can carry one. */
static __always_inline void fl_pass_congestion(const struct fl_outer *o, void *data, void *end)
{
	if (o->inner_proto == FL_BE16(ETH_P_IP)) {
		struct iphdr *ip = fl_at(data, o->inner, FL_L3_MASK);
		__u16 was, is;

		if ((void *)(ip + 1) > end || !(ip->tos & 3) || (ip->tos & 3) == 3)
			return;
		was = *(__u16 *)ip;
		ip->tos |= 3;
		is = *(__u16 *)ip;
		ip->check = fl_csum_replace16(ip->check, was, is);
	} else {
		struct ipv6hdr *ip = fl_at(data, o->inner, FL_L3_MASK);

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
