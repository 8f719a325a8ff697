/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 4: a new Ethernet header, one off the time to live, and out. */
#ifndef FAIRLEAD_ROUTER_FORWARD_H
#define FAIRLEAD_ROUTER_FORWARD_H

#include "packet.h"
#include "route.h"

/* Why a packet cannot leave by a hop, or FL_CONTINUE. */
static __always_inline int fl_fits(struct xdp_md *ctx, const struct fl_router_packet *p,
				   const struct fl_hop *hop, __u64 mac_dst, __u64 mac_src)
{
	if (unlikely(mac_dst >> 48))
		return mac_dst >> 48 & FL_HOP_UNRESOLVED ? FL_PASS_UNRESOLVED : FL_PASS_NO_XMIT;
	if (unlikely(p->len > hop->mtu))
		return FL_PASS_TOO_BIG;
	if (unlikely(hop->ifindex == ctx->ingress_ifindex && mac_src >> 48 == p->vlan))
		return FL_PASS_SAME_DEVICE;
	return FL_CONTINUE;
}

/* One off the time to live. The checksum, RFC 1624, goes up by what the word
 * of it and the protocol goes down by. */
static __always_inline void fl_age4(struct iphdr *ip)
{
	__u32 check = (__u32)ip->check + bpf_htons(0x0100);

	ip->check = check + (check >= 0xffff);
	ip->ttl--;
}

/* Writes the header in front of the IP header at data + 14 or, with a tag,
 * data + 18, in 8 bytes and 8 more, or 8 and 4: fewer stores than by fields. The
 * first 8 overwrite 2 of the second, which are written again, so they must be
 * there. A tag gets priority 0, as the kernel's default map of priorities has
 * it. */
static __always_inline void fl_ethernet(void *data, __u64 mac_dst, __u64 mac_src, __u16 type)
{
	__u64 tag = mac_src >> 48;

	*(__u64 *)data = mac_dst;
	mac_src &= 0xffffffffffffULL;
	if (tag) {
		*(__u64 *)(data + 6) = mac_src | (__u64)bpf_htons(ETH_P_8021Q) << 48;
		*(__u32 *)(data + 14) = bpf_htons(tag) | (__u32)type << 16;
	} else {
		*(__u64 *)(data + 6) = mac_src | (__u64)type << 48;
	}
}

/* Sets the XDP action, or returns a reason with the packet as it was. */
static __always_inline int fl_forward(struct xdp_md *ctx, const struct fl_router_packet *p,
				      const struct fl_hop *hop, int *action)
{
	__u64 mac_dst = *(volatile __u64 *)&hop->mac_dst;
	__u64 mac_src = *(volatile __u64 *)&hop->mac_src;
	__u32 l2 = mac_src >> 48 ? ETH_HLEN + 4 : ETH_HLEN;
	int reason = fl_fits(ctx, p, hop, mac_dst, mac_src);
	void *data, *end;

	if (unlikely(reason != FL_CONTINUE))
		return reason;
	if (unlikely(l2 != p->l3) && bpf_xdp_adjust_head(ctx, (int)(p->l3 - l2)))
		return FL_PASS_HEADROOM;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	*action = XDP_ABORTED; /* never, as the parser has seen all of it */
	if (p->family == 4) {
		if (data + l2 + sizeof(struct iphdr) > end)
			return FL_CONTINUE;
		fl_age4(data + l2);
		fl_ethernet(data, mac_dst, mac_src, bpf_htons(ETH_P_IP));
	} else {
		if (data + l2 + sizeof(struct ipv6hdr) > end)
			return FL_CONTINUE;
		((struct ipv6hdr *)(data + l2))->hop_limit--;
		fl_ethernet(data, mac_dst, mac_src, bpf_htons(ETH_P_IPV6));
	}
	*action = bpf_redirect(hop->ifindex, 0);
	return FL_CONTINUE;
}

#endif
