/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3, scheme cheetah (paper §3.1): the echoed timestamp names the slot.
 * bpf/include/cookie.h is the definition that host and Go model share. */
#ifndef FAIRLEAD_LB_SCHEME_CHEETAH_H
#define FAIRLEAD_LB_SCHEME_CHEETAH_H

#include "cookie.h"
#include "maps.h"
#include "packet.h"
#include "vip.h"

#define FL_SHIFT_DEFAULT 20 /* cookie_bits: 12 */

/* What the stages find out about where the packet goes. */
struct fl_way {
	struct fl_line *line;
	struct fl_vip_cpu *cpu; /* of the VIP, where a stage needed it */
	__u64 mac_dst; /* line->mac_dst, read once */
	__u64 hash;    /* spreads the outer source */
	__u32 index;   /* of the line */
	bool opens;    /* counts as a new connection */
	bool closes;
};

static __always_inline __u64 fl_hash_key(const __u64 *key, const struct fl_packet *p,
					 __u16 sport, __u16 dport)
{
	if (p->family == 4)
		return fl_hash4(key, p->saddr[1] >> 32, sport, dport);
	return fl_hash6(key, p->saddr[0], p->saddr[1], sport, dport);
}

/* Takes the line of a slot into the way. False: the slot names no server. */
static __always_inline bool fl_way_to(struct fl_way *w, const struct fl_vip *v, __u32 slot)
{
	if (unlikely(slot >= v->slots))
		return false;
	w->index = v->first_line + slot;
	w->line = fl_line_at(w->index);
	if (unlikely(!w->line))
		return false;
	w->mac_dst = *(volatile __u64 *)&w->line->mac_dst;
	return likely(FL_WORD_FORWARDING(w->mac_dst) != FL_FWD_NONE);
}

/* False: the cookie does not decode, or to no server. */
static __always_inline bool fl_cheetah_known(const struct fl_vip *v, const struct fl_packet *p,
					     struct fl_way *w, __u32 now)
{
	__u32 shift = v->shift, field, epoch;

	field = fl_cookie_field(p->ecr, now, shift);
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
