/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 5, what all forwardings have in common: a new Ethernet header and, where
 * they are tunnels, an outer IP header. DSCP and ECN are copied to it (RFC 6040,
 * normal mode): the hosts pass its congestion marks on to the inner one. */
#ifndef FAIRLEAD_LB_OUTER_H
#define FAIRLEAD_LB_OUTER_H

#include "csum.h"
#include "spread.h"

/* six and hops are constants, of which each value has code of its own: the verifier
 * follows no length that depends on them. */
struct fl_outer {
	__u64 mac_src; /* the line's, read once */
	bool six;      /* the header is IPv6's */
	bool hops;     /* hops go along */
	bool summed;   /* UDP over IPv6 gets its checksum */
};

/* The protocol of a tunnel's packet in the outer header. */
static __always_inline __u8 fl_inner(const struct fl_lb_packet *p)
{
	return p->family == 4 ? IPPROTO_IPIP : IPPROTO_IPV6;
}

static __always_inline void fl_write_hops(void *h, const struct fl_way *w)
{
	*(__u64 *)h = w->hops.chain;
	*(__u64 *)(h + 8) = w->hops.when;
}

static __always_inline __u64 fl_hops_sum(const struct fl_way *w)
{
	return (w->hops.chain & 0xffffffff) + (w->hops.chain >> 32) + (w->hops.when & 0xffffffff) +
	       (w->hops.when >> 32);
}

/* hops: as its option. */
static __always_inline void fl_write_outer4(void *h, const struct fl_lb_packet *p,
					    const struct fl_way *w, __u32 length, __u8 proto,
					    bool hops)
{
	__u32 saddr = source4 | ((__u32)(w->hash >> 32) & source4_mask);
	__u32 daddr = w->line->addr[1] >> 32;
	/* Version, header length, traffic class, total length; identification 0 and
	 * "do not fragment" (RFC 6864); TTL and protocol. */
	__u32 first = (hops ? 0x49 : 0x45) | (__u32)p->tos << 8 | (__u32)bpf_htons(length) << 16;
	__u32 second = bpf_htons(0x4000) << 16;
	__u32 third = FL_OUTER_TTL | (__u32)proto << 8;
	__u64 sum = (__u64)first + second + third + saddr + daddr + (hops ? fl_hops_sum(w) : 0);

	*(__u64 *)h = first | (__u64)second << 32;
	*(__u64 *)(h + 8) = third | (__u32)fl_csum_finish(sum) << 16 | (__u64)saddr << 32;
	*(__u32 *)(h + 16) = daddr;
	if (hops)
		fl_write_hops(h + sizeof(struct iphdr), w);
}

static __always_inline void fl_source6(__u64 *saddr, __u64 hash)
{
	saddr[0] = source6[0] | (hash & source6_mask[0]);
	saddr[1] = source6[1] | ((hash >> 32 | hash << 32) & source6_mask[1]);
}

static __always_inline void fl_write_outer6(void *h, const struct fl_lb_packet *p,
					    const struct fl_way *w, __u32 label, __u32 length,
					    __u8 proto)
{
	/* Version, traffic class, flow label of 20 bits: routers hash by it (RFC 6438). */
	__u32 first = bpf_htonl(6u << 28 | (__u32)p->tos << 20 | label);
	__u64 saddr[2];

	fl_source6(saddr, w->hash);
	*(__u64 *)h = first | (__u64)bpf_htons(length) << 32 | (__u64)proto << 48 |
		      (__u64)FL_OUTER_TTL << 56;
	*(__u64 *)(h + 8) = saddr[0];
	*(__u64 *)(h + 16) = saddr[1];
	*(__u64 *)(h + 24) = w->line->addr[0];
	*(__u64 *)(h + 32) = w->line->addr[1];
}

/* Writes the Ethernet header, tagged where mac_src says so. The MAC words'
 * upper two bytes are overwritten by what follows. At data, 18 bytes may be
 * written: behind them stands an IP header. */
static __always_inline void fl_ethernet(void *data, __u64 mac_dst, __u64 mac_src, __u16 type)
{
	__u16 tag = mac_src >> 48;

	*(__u64 *)data = mac_dst;
	if (tag) {
		mac_src &= 0xffffffffffffULL;
		*(__u64 *)(data + 6) = mac_src | (__u64)bpf_htons(ETH_P_8021Q) << 48;
		*(__u32 *)(data + 14) = bpf_htons(tag) | (__u32)type << 16;
	} else {
		*(__u64 *)(data + 6) = mac_src | (__u64)type << 48;
	}
}

/* Puts the headers in front, and room for `bytes` of the forwarding's own behind
 * them; proto is that of what follows the outer header, option: with the hops as
 * IPv4's. Returns where the bytes are to be written, which all are in the packet,
 * or NULL where there is no room. */
static __always_inline void *fl_outer(struct xdp_md *ctx, const struct fl_lb_packet *p,
				      const struct fl_way *w, const struct fl_outer *o, __u32 bytes,
				      bool option, __u8 proto, __u32 label)
{
	__u32 l2 = o->mac_src >> 48 ? ETH_HLEN + 4 : ETH_HLEN;
	__u32 ip = o->six ? sizeof(struct ipv6hdr)
			  : sizeof(struct iphdr) + (option ? FL_HOPS_BYTES : 0);
	void *data, *end, *h;

	if (unlikely(bpf_xdp_adjust_head(ctx, (int)(p->l3 - l2 - ip - bytes))))
		return NULL;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	h = data + l2;
	if (unlikely(h + ip + bytes > end)) /* never: the packet has only grown */
		return NULL;
	if (o->six) {
		fl_ethernet(data, w->mac_dst, o->mac_src, bpf_htons(ETH_P_IPV6));
		fl_write_outer6(h, p, w, label, p->len + bytes, proto);
	} else {
		fl_ethernet(data, w->mac_dst, o->mac_src, bpf_htons(ETH_P_IP));
		fl_write_outer4(h, p, w, p->len + ip + bytes, proto, option);
	}
	return h + ip;
}

/* Sends to where the line says. */
static __always_inline int fl_send(struct xdp_md *ctx, __u32 ifindex)
{
	return likely(ifindex == ctx->ingress_ifindex) ? XDP_TX : bpf_redirect(ifindex, 0);
}

#endif
