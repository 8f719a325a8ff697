/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Forwarding ipip:
 *
 *   Ethernet [tag] | IPv4 or IPv6 (protocol 4 or 41) | packet as it came
 *
 * Hops (bpf/include/hops.h) are an IPv4 option or an IPv6 destination option. */
#ifndef FAIRLEAD_LB_FORWARD_IPIP_H
#define FAIRLEAD_LB_FORWARD_IPIP_H

#include "outer.h"

/* The destination options header with the hops. */
static __always_inline void fl_write_hops6(void *h, const struct fl_way *w, __u8 inner)
{
	*(__u64 *)h = FL_HOPS6_HEAD | inner;
	*(__u64 *)(h + 8) = w->hops.chain ^ FL_HOPS_TYPE ^ FL_HOPS_TYPE6;
	*(__u64 *)(h + 16) = w->hops.when;
}

static __always_inline int fl_ipip(struct xdp_md *ctx, const struct fl_lb_packet *p,
				   const struct fl_way *w, const struct fl_outer *o)
{
	bool options6 = o->hops && o->six;
	__u8 inner = fl_inner(p);
	struct fl_spread spread;
	void *h;

	fl_spread(&spread, w, false);
	h = fl_outer(ctx, p, w, o, options6 ? FL_HOPS6_BYTES : 0, o->hops && !o->six,
		     options6 ? IPPROTO_DSTOPTS : inner, spread.label);
	if (unlikely(!h))
		return XDP_ABORTED;
	if (options6)
		fl_write_hops6(h, w, inner);
	return fl_send(ctx, w->line->ifindex);
}

#endif
