/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 5: the way to the server (docs/wire-format.md draws the headers).
 *
 *   ipip  Ethernet [tag] | IPv4 or IPv6 (protocol 4 or 41) | packet as it came
 *   gue   Ethernet [tag] | IPv4 or IPv6 | UDP to 6080 | GUE, 4 bytes | packet
 *   l2    Ethernet [tag] | packet as it came
 *
 * With FL_FWD_HOPS (scheme beamer) the hops of bpf/include/hops.h go along: as
 * an IPv4 option or IPv6 destination option in ipip, as private data in gue.
 *
 * DSCP and ECN are copied to the outer header (RFC 6040, normal mode): the
 * hosts pass congestion marks of the outer header on to the inner one. */
#ifndef FAIRLEAD_LB_FORWARD_H
#define FAIRLEAD_LB_FORWARD_H

#include "csum.h"
#include "spread.h"

#define FL_GUE_PORT 6080
#define FL_GUE_BYTES (8 + 4) /* UDP and GUE */
#define FL_OUTER_TTL 64

/* What hops add to the outer headers. */
static __always_inline __u32 fl_hops_bytes(__u8 forwarding, bool six)
{
	if (!(forwarding & FL_FWD_HOPS))
		return 0;
	return six && forwarding == (FL_FWD_IPIP | FL_FWD_HOPS) ? FL_HOPS6_BYTES : FL_HOPS_BYTES;
}

static __always_inline void fl_write_hops(void *h, const struct fl_way *w)
{
	*(__u64 *)h = w->hops.chain;
	*(__u64 *)(h + 8) = w->hops.when;
}

/* The destination options header with the hops. */
static __always_inline void fl_write_hops6(void *h, const struct fl_way *w, __u8 inner)
{
	*(__u64 *)h = FL_HOPS6_HEAD | inner;
	*(__u64 *)(h + 8) = w->hops.chain ^ FL_HOPS_TYPE ^ FL_HOPS_TYPE6;
	*(__u64 *)(h + 16) = w->hops.when;
}

static __always_inline __u64 fl_hops_sum(const struct fl_way *w)
{
	return (w->hops.chain & 0xffffffff) + (w->hops.chain >> 32) + (w->hops.when & 0xffffffff) +
	       (w->hops.when >> 32);
}

/* UDP and GUE headers at h; length is the inner packet's. GUE version 0 (RFC
 * draft-ietf-intarea-gue): no options, the inner protocol in byte 1; hops are
 * private data, four words. */
static __always_inline void fl_gue(void *h, const struct fl_way *w, const struct fl_spread *s,
				   __u32 length, __u8 inner, __u16 check, bool hops)
{
	length += FL_GUE_BYTES + (hops ? FL_HOPS_BYTES : 0);
	*(__u64 *)h = (__u64)bpf_htons(s->sport) | (__u64)bpf_htons(FL_GUE_PORT) << 16 |
		      (__u64)bpf_htons(length) << 32 | (__u64)check << 48;
	*(__u32 *)(h + 8) = (__u32)inner << 8 | (hops ? FL_HOPS_BYTES / 4 : 0);
	if (hops)
		fl_write_hops(h + FL_GUE_BYTES, w);
}

/* hops: as the header's option. */
static __always_inline void fl_outer4(void *h, const struct fl_lb_packet *p, const struct fl_way *w,
				      __u32 length, __u8 proto, bool hops)
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

static __always_inline void fl_outer6(void *h, const struct fl_lb_packet *p, const __u64 *saddr,
				      const struct fl_line *line, __u32 label, __u32 length,
				      __u8 proto)
{
	/* Version, traffic class, flow label of 20 bits: routers hash by it (RFC 6438). */
	__u32 first = bpf_htonl(6u << 28 | (__u32)p->tos << 20 | label);

	*(__u64 *)h = first | (__u64)bpf_htons(length) << 32 | (__u64)proto << 48 |
		      (__u64)FL_OUTER_TTL << 56;
	*(__u64 *)(h + 8) = saddr[0];
	*(__u64 *)(h + 16) = saddr[1];
	*(__u64 *)(h + 24) = line->addr[0];
	*(__u64 *)(h + 32) = line->addr[1];
}

/* Whether GUE over IPv6 gets a UDP checksum: it is wanted, and fl_gue6_check
 * can tell it. */
static __always_inline bool fl_gue6_summed(const struct fl_lb_packet *p)
{
	if (!gue6_checksum || p->kind != FL_KIND_SEGMENT)
		return false;
	if (p->proto == IPPROTO_UDP && !p->covered)
		return false;
	return p->family == 4 || p->l4 - p->l3 == sizeof(struct ipv6hdr);
}

/* UDP checksum of GUE over IPv6 without reading the payload: the bytes from
 * the inner TCP or UDP header on sum to the complement of their pseudo header,
 * or the inner checksum is wrong and the packet lost anyway; an IPv4 header
 * sums to 0xffff by its own checksum. In an inner IPv6 packet the addresses
 * cancel out. Only for what fl_gue6_summed says yes to. inner points
 * to the inner header, 20 bytes of which may be read. */
static __always_inline __u16 fl_gue6_check(const struct fl_lb_packet *p, const __u64 *saddr,
					   const struct fl_way *w, __u16 sport, const void *inner,
					   bool hops)
{
	__u32 l4 = p->l4 - p->l3, pseudo, i;
	__u32 udp = p->len + FL_GUE_BYTES + (hops ? FL_HOPS_BYTES : 0);
	const struct fl_line *line = w->line;
	__u64 sum, part;
	__u16 check;

	pseudo = (__u32)bpf_htons(p->len - l4) + bpf_htons(p->proto);
	if (p->family == 4) {
		part = fl_csum_finish((__u64)pseudo + *(__u32 *)(inner + 12) +
				      *(__u32 *)(inner + 16));
	} else {
		part = fl_csum_finish(pseudo);
		part += *(__u32 *)inner;
		part += *(__u32 *)(inner + 4);
	}
	sum = part;
	for (i = 0; i < 2; i++) {
		sum += (saddr[i] & 0xffffffff) + (saddr[i] >> 32);
		sum += (line->addr[i] & 0xffffffff) + (line->addr[i] >> 32);
	}
	/* Pseudo header, then UDP and GUE; the length counts in both. */
	sum += (__u64)bpf_htons(udp) * 2 + bpf_htons(IPPROTO_UDP);
	sum += bpf_htons(sport) + bpf_htons(FL_GUE_PORT);
	sum += (__u32)(p->family == 4 ? IPPROTO_IPIP : IPPROTO_IPV6) << 8;
	if (hops)
		sum += fl_hops_sum(w) + FL_HOPS_BYTES / 4; /* and GUE's header length */
	check = fl_csum_finish(sum);
	return check ? check : 0xffff;
}

/* Sends to where the line says. */
static __always_inline int fl_send(struct xdp_md *ctx, __u32 ifindex)
{
	return likely(ifindex == ctx->ingress_ifindex) ? XDP_TX : bpf_redirect(ifindex, 0);
}

/* The common cases of fl_forward, with fewer questions: ipip or gue (as the
 * constant forwarding says) in the packet's own family, untagged, a next hop
 * that is known, and a packet that fits. XDP_ABORTED: not that case, the
 * packet is as it was. */
static __always_inline int fl_forward_common(struct xdp_md *ctx, const struct fl_lb_packet *p,
					     const struct fl_way *w, __u8 forwarding)
{
	const struct fl_line *line = w->line;
	__u64 mac_src = *(volatile __u64 *)&line->mac_src;
	__u8 flags = p->family == 4 ? 0 : FL_LINE_IPV6;
	__u32 ip = p->family == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	bool gue = (forwarding & ~FL_FWD_HOPS) == FL_FWD_GUE, hops = forwarding & FL_FWD_HOPS;
	__u32 outer = ip + (gue ? FL_GUE_BYTES : 0) + fl_hops_bytes(forwarding, p->family == 6);
	__u32 length = p->len + outer;
	__u8 inner = p->family == 4 ? IPPROTO_IPIP : IPPROTO_IPV6;
	__u8 proto = gue ? IPPROTO_UDP : inner;
	__u64 kind = w->mac_dst >> 48;
	struct fl_spread spread;
	void *data, *end, *h;

	if (gue && steering)
		kind &= ~((__u64)FL_LINE_STEERED << 8);
	if (unlikely(kind != (forwarding | (__u64)flags << 8) || mac_src >> 48 ||
		     p->len > line->mtu))
		return XDP_ABORTED;
	fl_spread(&spread, w, gue);
	if (unlikely(bpf_xdp_adjust_head(ctx, (int)(p->l3 - ETH_HLEN - outer))))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	h = data + ETH_HLEN;
	if (unlikely(h + outer > end)) /* never: the packet has only grown */
		return XDP_DROP;
	*(__u64 *)data = w->mac_dst;
	if (p->family == 4) {
		*(__u64 *)(data + 6) = mac_src | (__u64)bpf_htons(ETH_P_IP) << 48;
		fl_outer4(h, p, w, length, proto, hops && !gue);
	} else {
		__u64 saddr[2];

		fl_source6(saddr, w->hash);
		*(__u64 *)(data + 6) = mac_src | (__u64)bpf_htons(ETH_P_IPV6) << 48;
		if (hops && !gue) {
			proto = IPPROTO_DSTOPTS;
			fl_write_hops6(h + ip, w, inner);
		}
		fl_outer6(h, p, saddr, line, spread.label, length - ip, proto);
	}
	if (gue)
		fl_gue(h + ip, w, &spread, p->len, inner, 0, hops);
	return fl_send(ctx, line->ifindex);
}

static __always_inline int fl_forward_plain(struct xdp_md *ctx, const struct fl_lb_packet *p,
					    const struct fl_way *w)
{
	if (likely(FL_WORD_FORWARDING(w->mac_dst) == FL_FWD_IPIP))
		return fl_forward_common(ctx, p, w, FL_FWD_IPIP);
	/* A checksum of GUE over IPv6 is left to fl_forward. */
	if (FL_WORD_FORWARDING(w->mac_dst) == FL_FWD_GUE && (p->family == 4 || !gue6_checksum))
		return fl_forward_common(ctx, p, w, FL_FWD_GUE);
	if (FL_WORD_FORWARDING(w->mac_dst) == (FL_FWD_IPIP | FL_FWD_HOPS))
		return fl_forward_common(ctx, p, w, FL_FWD_IPIP | FL_FWD_HOPS);
	if (FL_WORD_FORWARDING(w->mac_dst) == (FL_FWD_GUE | FL_FWD_HOPS) &&
	    (p->family == 4 || !gue6_checksum))
		return fl_forward_common(ctx, p, w, FL_FWD_GUE | FL_FWD_HOPS);
	return XDP_ABORTED;
}

/* Writes the Ethernet header, tagged where mac_src says so. The MAC words'
 * upper two bytes are overwritten by what follows. At data, 18 bytes may be
 * written: behind them stands an IP header. */
static __always_inline void fl_ethernet(void *data, __u64 mac_dst, __u64 mac_src, __u16 type)
{
	__u16 tag = mac_src >> 48;

	*(__u64 *)data = mac_dst;
	mac_src &= 0xffffffffffffULL;
	if (tag) {
		*(__u64 *)(data + 6) = mac_src | (__u64)bpf_htons(ETH_P_8021Q) << 48;
		*(__u32 *)(data + 14) = bpf_htons(tag) | (__u32)type << 16;
	} else {
		*(__u64 *)(data + 6) = mac_src | (__u64)type << 48;
	}
}

/* Forwarding l2: a new Ethernet header, nothing else. Returns the XDP action,
 * XDP_ABORTED where there is no room for a tag. l3_family: offset of the IP
 * header << 8 | 4 or 6. A function of its own, for the sake of the verifier. */
__noinline int fl_forward_l2(struct xdp_md *ctx, __u64 mac_dst, __u64 mac_src, __u32 l3_family,
			     __u32 ifindex)
{
	__u32 l2 = mac_src >> 48 ? ETH_HLEN + 4 : ETH_HLEN;
	void *data, *end;

	if (bpf_xdp_adjust_head(ctx, (int)((l3_family >> 8) - l2)))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN + 4 > end)
		return XDP_ABORTED;
	fl_ethernet(data, mac_dst, mac_src,
		    (l3_family & 0xff) == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6));
	return fl_send(ctx, ifindex);
}

/* The tunnel of fl_forward; hops is a constant, of which each value has code of
 * its own: the verifier follows no length that depends on it. */
static __always_inline int fl_encapsulate(struct xdp_md *ctx, const struct fl_lb_packet *p,
					  const struct fl_way *w, __u64 mac_src, bool hops,
					  bool summed)
{
	const struct fl_line *line = w->line;
	bool six = FL_WORD_FLAGS(w->mac_dst) & FL_LINE_IPV6;
	bool gue = FL_WORD_FORWARDING(w->mac_dst) == (FL_FWD_GUE | (hops ? FL_FWD_HOPS : 0));
	const __u32 option = hops ? FL_HOPS_BYTES : 0, options6 = hops ? FL_HOPS6_BYTES : 0;
	__u32 l2 = mac_src >> 48 ? ETH_HLEN + 4 : ETH_HLEN, outer, ifindex = line->ifindex;
	__u8 inner = p->family == 4 ? IPPROTO_IPIP : IPPROTO_IPV6;
	struct fl_spread spread;
	void *data, *end, *h;
	__u16 type;

	fl_spread(&spread, w, gue);
	outer = six ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	if (gue)
		outer += FL_GUE_BYTES + option;
	else
		outer += six ? options6 : option;
	if (bpf_xdp_adjust_head(ctx, (int)(p->l3 - l2 - outer)))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	h = data + l2;
	/* A packet that does not reach to end there is not: it has only grown. */
	if (six) {
		__u64 saddr[2];

		fl_source6(saddr, w->hash);
		type = bpf_htons(ETH_P_IPV6);
		if (gue) {
			void *inner_ip = h + sizeof(struct ipv6hdr) + FL_GUE_BYTES + option;

			if (inner_ip + sizeof(struct iphdr) > end)
				return XDP_ABORTED;
			fl_outer6(h, p, saddr, line, spread.label, p->len + FL_GUE_BYTES + option,
				  IPPROTO_UDP);
			fl_gue(h + sizeof(struct ipv6hdr), w, &spread, p->len, inner,
			       summed ? fl_gue6_check(p, saddr, w, spread.sport, inner_ip, hops)
				      : 0,
			       hops);
		} else {
			if (h + sizeof(struct ipv6hdr) + options6 > end)
				return XDP_ABORTED;
			fl_outer6(h, p, saddr, line, spread.label, p->len + options6,
				  hops ? IPPROTO_DSTOPTS : inner);
			if (hops)
				fl_write_hops6(h + sizeof(struct ipv6hdr), w, inner);
		}
	} else {
		type = bpf_htons(ETH_P_IP);
		if (gue) {
			if (h + sizeof(struct iphdr) + FL_GUE_BYTES + option > end)
				return XDP_ABORTED;
			fl_outer4(h, p, w, p->len + sizeof(struct iphdr) + FL_GUE_BYTES + option,
				  IPPROTO_UDP, false);
			fl_gue(h + sizeof(struct iphdr), w, &spread, p->len, inner, 0, hops);
		} else {
			if (h + sizeof(struct iphdr) + option > end)
				return XDP_ABORTED;
			fl_outer4(h, p, w, p->len + sizeof(struct iphdr) + option, inner, hops);
		}
	}
	fl_ethernet(data, w->mac_dst, mac_src, type);
	return fl_send(ctx, ifindex);
}

/* What fl_encapsulate_hops needs of a packet beside its hash and hops, in one
 * word (an argument costs no stack): line's index << 32 | length << 16 | traffic
 * class << 8 | IPv4 header's length in words << 4 | */
#define FL_PACKED_TAGGED 1
#define FL_PACKED_IPV6 2
#define FL_PACKED_UDP 4
#define FL_PACKED_SUMMED 8 /* see fl_gue6_summed */

static __always_inline __u64 fl_packed(const struct fl_lb_packet *p, __u32 index)
{
	return (__u64)index << 32 | (__u64)(p->len & 0xffff) << 16 | (__u64)p->tos << 8 |
	       ((p->l4 - p->l3) << 2 & 0xf0) | (p->l3 == ETH_HLEN ? 0 : FL_PACKED_TAGGED) |
	       (p->family == 4 ? 0 : FL_PACKED_IPV6) |
	       (p->proto == IPPROTO_UDP ? FL_PACKED_UDP : 0) |
	       (fl_gue6_summed(p) ? FL_PACKED_SUMMED : 0);
}

/* fl_encapsulate with hops: a function of its own, for the sake of the verifier. */
__noinline int fl_encapsulate_hops(struct xdp_md *ctx, __u64 hash, __u64 chain, __u64 when,
				   __u64 packed)
{
	bool six = packed & FL_PACKED_IPV6;
	struct fl_lb_packet p = { .family = six ? 6 : 4,
				  .tos = packed >> 8,
				  .len = packed >> 16 & 0xffff };
	struct fl_way w = { .index = packed >> 32, .hash = hash, .hops = { chain, when } };

	p.l3 = packed & FL_PACKED_TAGGED ? ETH_HLEN + 4 : ETH_HLEN;
	p.l4 = p.l3 + (six ? sizeof(struct ipv6hdr) : (packed & 0xf0) >> 2);
	p.proto = packed & FL_PACKED_UDP ? IPPROTO_UDP : IPPROTO_TCP;
	w.line = fl_line_at(w.index);
	if (!w.line)
		return XDP_ABORTED;
	w.mac_dst = *(volatile __u64 *)&w.line->mac_dst | (__u64)FL_FWD_HOPS << 48;
	return fl_encapsulate(ctx, &p, &w, *(volatile __u64 *)&w.line->mac_src, true,
			      packed & FL_PACKED_SUMMED);
}

/* Encapsulates and sends. Returns the XDP action, or XDP_ABORTED with the
 * reason in *failed and the packet as it was (FL_REPLY_TOO_BIG: to be done by
 * the caller). */
static __always_inline int fl_forward(struct xdp_md *ctx, const struct fl_lb_packet *p,
				      const struct fl_way *w, __u32 *failed)
{
	const struct fl_line *line = w->line;
	__u8 forwarding = FL_WORD_FORWARDING(w->mac_dst);
	__u64 mac_src = *(volatile __u64 *)&line->mac_src;

	if (FL_WORD_FLAGS(w->mac_dst) & FL_LINE_UNRESOLVED) {
		*failed = FL_DROP_UNRESOLVED;
		return XDP_ABORTED;
	}
	if (p->len > line->mtu) {
		*failed = FL_REPLY_TOO_BIG;
		return XDP_ABORTED;
	}
	*failed = FL_DROP_HEADROOM;
	if ((forwarding & ~FL_FWD_HOPS) == FL_FWD_L2)
		return fl_forward_l2(ctx, w->mac_dst, mac_src, p->l3 << 8 | p->family,
				     line->ifindex);
	if (forwarding & FL_FWD_HOPS)
		return fl_encapsulate_hops(ctx, w->hash, w->hops.chain, w->hops.when,
					   fl_packed(p, w->index));
	return fl_encapsulate(ctx, p, w, mac_src, false, fl_gue6_summed(p));
}

#endif
