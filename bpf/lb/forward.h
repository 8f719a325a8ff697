/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 5: the way to the server, a header a forwarding, one for all over UDP
 * (docs/wire-format.md draws what they write). */
#ifndef FAIRLEAD_LB_FORWARD_H
#define FAIRLEAD_LB_FORWARD_H

#include "forward_ipip.h"
#include "forward_l2.h"
#include "forward_udp.h"

static __always_inline int fl_tunnel_of(struct xdp_md *ctx, const struct fl_lb_packet *p,
					const struct fl_way *w, __u64 mac_src, bool six, bool hops,
					bool summed)
{
	struct fl_outer o = { .mac_src = mac_src, .six = six, .hops = hops, .summed = summed };
	struct fl_shim shim;

	if (FL_FORM_FORWARDING(w->form) == FL_FWD_IPIP)
		return fl_ipip(ctx, p, w, &o);
	shim = fl_shim_of(FL_FORM_FORWARDING(w->form), fl_inner(p), hops);
	return shim.bytes ? fl_udp(ctx, p, w, &o, &shim) : XDP_ABORTED;
}

static __always_inline int fl_tunnel(struct xdp_md *ctx, const struct fl_lb_packet *p,
				     const struct fl_way *w, __u64 mac_src, bool hops, bool summed)
{
	if (w->form & FL_FORM_IPV6)
		return fl_tunnel_of(ctx, p, w, mac_src, true, hops, summed);
	return fl_tunnel_of(ctx, p, w, mac_src, false, hops, false);
}

/* The common cases of fl_forward, with fewer questions: ipip or gue in the
 * packet's own family, untagged, a next hop that is known, and a packet that
 * fits. XDP_ABORTED: not that case, the packet is as it was. */
static __always_inline int fl_forward_plain(struct xdp_md *ctx, const struct fl_lb_packet *p,
					    const struct fl_way *w)
{
	bool six = p->family != 4;
	__u32 form = w->form, own = six ? FL_FORM_IPV6 : 0;
	struct fl_outer o = { .mac_src = *(volatile __u64 *)&w->line->mac_src, .six = six };
	struct fl_shim shim;

	if (unlikely(o.mac_src >> 48 || p->len > w->line->mtu))
		return XDP_ABORTED;
	if (likely(form == (FL_FWD_IPIP | own)))
		return fl_ipip(ctx, p, w, &o);
	if (form == (FL_FWD_IPIP | own | FL_FORM_HOPS)) {
		o.hops = true;
		return fl_ipip(ctx, p, w, &o);
	}
	if (six && gue6_checksum)
		return XDP_ABORTED;
	if (steering)
		form &= ~FL_FORM_STEERED;
	if (form == (FL_FWD_GUE | own)) {
		shim = fl_gue_shim(fl_inner(p), false);
		return fl_udp(ctx, p, w, &o, &shim);
	}
	if (form != (FL_FWD_GUE | own | FL_FORM_HOPS))
		return XDP_ABORTED;
	o.hops = true;
	shim = fl_gue_shim(fl_inner(p), true);
	return fl_udp(ctx, p, w, &o, &shim);
}

/* What fl_tunnel_hops needs of a packet beside its hash and hops, in one
 * word (an argument costs no stack): line's index << 32 | length << 16 | traffic
 * class << 8 | IPv4 header's length in words << 4 | */
#define FL_PACKED_TAGGED 1
#define FL_PACKED_IPV6 2
#define FL_PACKED_UDP 4
#define FL_PACKED_SUMMED 8 /* see fl_udp6_summed */

static __always_inline __u64 fl_packed(const struct fl_lb_packet *p, __u32 index)
{
	return (__u64)index << 32 | (__u64)(p->len & 0xffff) << 16 | (__u64)p->tos << 8 |
	       ((p->l4 - p->l3) << 2 & 0xf0) | (p->l3 == ETH_HLEN ? 0 : FL_PACKED_TAGGED) |
	       (p->family == 4 ? 0 : FL_PACKED_IPV6) |
	       (p->proto == IPPROTO_UDP ? FL_PACKED_UDP : 0) |
	       (fl_udp6_summed(p) ? FL_PACKED_SUMMED : 0);
}

/* A tunnel with hops: a function of its own, for the sake of the verifier. */
__noinline int fl_tunnel_hops(struct xdp_md *ctx, __u64 hash, __u64 chain, __u64 when, __u64 packed)
{
	bool six = packed & FL_PACKED_IPV6;
	struct fl_lb_packet p = { .family = six ? 6 : 4 };
	struct fl_way w = { .index = packed >> 32, .hash = hash, .hops = { chain, when } };

	p.tos = packed >> 8;
	p.len = packed >> 16 & 0xffff;
	p.l3 = packed & FL_PACKED_TAGGED ? ETH_HLEN + 4 : ETH_HLEN;
	p.l4 = p.l3 + (six ? sizeof(struct ipv6hdr) : (packed & 0xf0) >> 2);
	p.proto = packed & FL_PACKED_UDP ? IPPROTO_UDP : IPPROTO_TCP;
	w.line = fl_line_at(w.index);
	if (!w.line)
		return XDP_ABORTED;
	w.mac_dst = *(volatile __u64 *)&w.line->mac_dst;
	w.form = FL_FORM(w.mac_dst);
	return fl_tunnel(ctx, &p, &w, *(volatile __u64 *)&w.line->mac_src, true,
			 packed & FL_PACKED_SUMMED);
}

/* Returns the XDP action, or XDP_ABORTED with the reason in *failed and the packet
 * as it was (FL_REPLY_TOO_BIG: to be done by the caller). */
static __always_inline int fl_forward(struct xdp_md *ctx, const struct fl_lb_packet *p,
				      const struct fl_way *w, __u32 *failed)
{
	__u64 mac_src = *(volatile __u64 *)&w->line->mac_src;

	if (w->form & FL_FORM_UNRESOLVED) {
		*failed = FL_DROP_UNRESOLVED;
		return XDP_ABORTED;
	}
	if (p->len > w->line->mtu) {
		*failed = FL_REPLY_TOO_BIG;
		return XDP_ABORTED;
	}
	*failed = FL_DROP_HEADROOM;
	if (FL_FORM_FORWARDING(w->form) == FL_FWD_L2)
		return fl_l2(ctx, w->mac_dst, mac_src, p->l3 << 8 | p->family, w->line->ifindex);
	if (w->form & FL_FORM_HOPS)
		return fl_tunnel_hops(ctx, w->hash, w->hops.chain, w->hops.when,
				      fl_packed(p, w->index));
	return fl_tunnel(ctx, p, w, mac_src, false, fl_udp6_summed(p));
}

#endif
