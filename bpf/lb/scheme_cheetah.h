/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3, scheme cheetah (paper §3.1): the echoed timestamp names the slot.
 * bpf/include/cookie.h is the definition that host and Go model share. */
#ifndef FAIRLEAD_LB_SCHEME_CHEETAH_H
#define FAIRLEAD_LB_SCHEME_CHEETAH_H

#include "vip.h"
#include "way.h"

#define FL_SHIFT_DEFAULT 20 /* cookie_bits: 12 */

/* False: the cookie does not decode, or to no server. */
static __always_inline bool fl_cheetah_known(const struct fl_vip *v, const struct fl_lb_packet *p,
					     struct fl_way *w, __u32 now)
{
	__u32 shift = v->shift, field, epoch;

	field = fl_cookie_field(p->word, now, shift);
	epoch = fl_cookie_epoch(field, shift);
	if (unlikely(!(v->epochs >> epoch & 1)))
		return false;
	w->hash = fl_hash_key(v->key[epoch], p, p->sport, p->dport);
	/* The default width's shifts and masks as constants: 2 ns. */
	if (likely(shift == FL_SHIFT_DEFAULT))
		return fl_way_to(w, v, fl_cookie_slot(w->hash, field, FL_SHIFT_DEFAULT));
	return fl_way_to(w, v, fl_cookie_slot(w->hash, field, shift));
}

#endif
