/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where a packet goes: what stage 3 finds out, by whatever scheme. */
#ifndef FAIRLEAD_LB_WAY_H
#define FAIRLEAD_LB_WAY_H

#include "cookie.h"
#include "hops.h"
#include "maps.h"
#include "packet.h"

/* Beside a forwarding (enum fl_forwarding) in fl_way.mac_dst, never in a line's:
 * hops go along. */
#define FL_FWD_HOPS 0x80

/* What the stages find out about where the packet goes. */
struct fl_way {
	struct fl_line *line;
	struct fl_vip_cpu *cpu; /* of the VIP, where a stage needed it */
	__u64 mac_dst; /* line->mac_dst, read once; perhaps | FL_FWD_HOPS << 48 */
	__u64 hash;    /* spreads the outer source */
	struct fl_hops hops; /* with FL_FWD_HOPS */
	__u32 index;   /* of the line */
	bool opens;    /* counts as a new connection */
	bool closes;
};

static __always_inline __u64 fl_hash_key(const __u64 *key, const struct fl_lb_packet *p,
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

#endif
