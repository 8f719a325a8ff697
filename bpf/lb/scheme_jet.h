/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3, scheme jet (paper §2-4): by the hash; tracked is what a change that may
 * come would move. */
#ifndef FAIRLEAD_LB_SCHEME_JET_H
#define FAIRLEAD_LB_SCHEME_JET_H

#include "by_hash.h"

/* The way of nearly all packets: in the middle of a connection that nobody tracks
 * and that no change would move. fl_by_key would say the same; this spares its
 * call, a sixth of all that the packet costs. */
static __always_inline bool fl_jet_untracked(const struct fl_vip *v, const struct fl_lb_packet *p,
					     struct fl_way *w, __u64 x)
{
	struct fl_flow_set *b;
	__u32 row;

	if (p->kind != FL_KIND_SEGMENT || p->opens ||
	    p->flags & (FL_TCP_SYN | FL_TCP_FIN | FL_TCP_RST) ||
	    unlikely(v->flags & FL_VIP_TRACK_ALL))
		return false;
	b = fl_flow_set_of(x);
	if (unlikely(!b) || unlikely(fl_flow_match(fl_flow_tags(b), x)))
		return false;
	row = fl_place_at_once(v, w->hash);
	return likely(!FL_ROW_TRACK(row)) && likely(fl_way_to(w, v, FL_ROW_HELD(row)));
}

static __always_inline int fl_jet(const struct fl_vip *v, const struct fl_lb_packet *p,
				  struct fl_way *w, __u32 now)
{
	__u64 x;

	w->hash = fl_flow_hash(v, p);
	x = fl_flow_key(v, p, w->hash);
	if (likely(fl_jet_untracked(v, p, w, x)))
		return FL_KNOWN;
	w->rules = (p->opens ? FL_FORWARD_NEW : FL_KNOWN) | FL_RULE_TRACKS;
	return fl_by_key(v, p, w, x, now);
}

#endif
