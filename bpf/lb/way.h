/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where a packet goes: what stage 3 finds out, by whatever scheme. */
#ifndef FAIRLEAD_LB_WAY_H
#define FAIRLEAD_LB_WAY_H

#include "cookie.h"
#include "hops.h"
#include "maps.h"
#include "packet.h"

/* What is put before the packet: the forwarding (enum fl_forwarding), what the
 * line's flags say of it, and whether hops go along. */
#define FL_FORM(mac_dst) ((__u32)((mac_dst) >> 48))
#define FL_FORM_FORWARDING(form) ((__u8)(form))
#define FL_FORM_IPV6 (FL_LINE_IPV6 << 8)
#define FL_FORM_UNRESOLVED (FL_LINE_UNRESOLVED << 8)
#define FL_FORM_STEERED (FL_LINE_STEERED << 8)
#define FL_FORM_DOWN (FL_LINE_DOWN << 8)
#define FL_FORM_HOPS (1u << 16)

/* What a scheme says of a packet that goes by the hash (by_hash.h): the reason
 * under which it is forwarded, unknown << 8, which is the reason where no entry
 * knows its flow and that is not to forward it, and any of these. */
#define FL_RULE_REASON(rules) ((rules) & 0xff)
#define FL_RULE_UNKNOWN(rules) ((rules) >> 8 & 0xff)
#define FL_RULE_TRACKS (1u << 16)   /* it may have an entry, and be given one */
#define FL_RULE_ALL (1u << 17)      /* each gets one; the one used longest ago gives way */
#define FL_RULE_FRESH (1u << 18)    /* without an entry it goes where new ones go */
#define FL_RULE_FALLBACK (1u << 19) /* counted as one */

/* What the stages find out about where the packet goes. */
struct fl_way {
	struct fl_line *line;
	struct fl_vip_cpu *cpu; /* of the VIP, where a stage needed it */
	__u64 mac_dst; /* line->mac_dst, read once */
	__u64 hash;    /* spreads the outer source */
	struct fl_hops hops; /* with FL_FORM_HOPS */
	__u32 form;    /* FL_FORM_* */
	__u32 index;   /* of the line */
	__u32 rules;   /* FL_RULE_*, where the packet goes by the hash */
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
	w->form = FL_FORM(w->mac_dst);
	return likely(FL_FORM_FORWARDING(w->form) != FL_FWD_NONE);
}

#endif
