/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3: whose is it? A header a scheme, of which each decides, or says by
 * w->rules how the hash does; none forwards anything. */
#ifndef FAIRLEAD_LB_SCHEME_H
#define FAIRLEAD_LB_SCHEME_H

#include "by_hash.h"
#include "l4.h"
#include "rates.h"
#include "scheme_beamer.h"
#include "scheme_cheetah.h"
#include "scheme_full_ct.h"
#include "scheme_jet.h"
#include "scheme_stateless.h"

/* A reason, or FL_CONTINUE: by the hash, under w->rules. */
static __always_inline int fl_scheme_says(const struct fl_vip *v, const struct fl_lb_packet *p,
					  struct fl_way *w, __u32 now)
{
	int reason;

	/* Cheetah's first: its packets come without any other work. */
	switch (__builtin_expect(v->scheme, FL_SCHEME_CHEETAH)) {
	case FL_MIGRATES:
		reason = fl_cheetah_migrates(v, p, w, now);
		if (reason)
			return reason;
		/* fall through */
	case FL_SCHEME_CHEETAH:
	case FL_SCHEME_CHEETAH_STATEFUL:
		return fl_cheetah(v, p, w, now);
	case FL_SCHEME_BEAMER:
		return fl_beamer(v, p, w);
	case FL_SCHEME_JET:
		return fl_jet(v, p, w, now);
	case FL_SCHEME_FULL_CT:
		return fl_full_ct(p, w);
	default:
		return fl_stateless(w);
	}
}

static __always_inline int fl_scheme(struct xdp_md *ctx, const struct fl_vip *v,
				     struct fl_lb_packet *p, struct fl_way *w, __u32 now)
{
	int reason;

	if (p->kind == FL_KIND_SEGMENT) {
		reason = fl_parse_l4(ctx, v, p);
		if (reason != FL_CONTINUE)
			return reason;
		if (unlikely(v->rates)) {
			reason = fl_rate(v, p, now);
			if (reason != FL_CONTINUE)
				return reason;
		}
		/* Before it is known where it goes: what is told is the same. */
		if (unlikely(p->opens && v->seat_bits && p->carried == FL_CARRIED_WHOLE))
			fl_seat_open(ctx, v, p, now);
	} else if (p->kind == FL_KIND_FRAGMENT && !(v->flags & FL_VIP_FRAG_ADDRESSES)) {
		return p->carried == FL_CARRIED_CUT ? FL_ASK_ICMP : FL_DROP_FRAGMENT;
	} else if (p->kind == FL_KIND_FRAGMENT && v->rates) {
		reason = fl_rate(v, p, now);
		if (reason != FL_CONTINUE)
			return reason;
	}
	reason = fl_scheme_says(v, p, w, now);
	return reason == FL_CONTINUE ? fl_by_hash(v, p, w, now) : reason;
}

#endif
