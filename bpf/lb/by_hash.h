/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3, what goes by a hash: an entry of the flow table, else the consistent
 * hash, under the rules that a scheme gives. Go's twin is scheme/model.
 *
 *   has an entry? ─yes─▶ its slot
 *       │no
 *   opens a connection? ─yes─▶ where new ones go ─┐
 *       │no                                       ├─▶ would a change that may
 *       └──▶ the server that holds earlier ones ──┘   come move it? make an entry
 *
 * An opening packet whose entry is refused goes to the server that holds, too:
 * that is where its connection's next packet is going to be sent. With
 * FL_VIP_TRACK_ALL every packet that may make an entry makes one. */
#ifndef FAIRLEAD_LB_BY_HASH_H
#define FAIRLEAD_LB_BY_HASH_H

#include "flows.h"
#include "place.h"

/* What was seen of a packet, in one word: time in units, TCP's flags, and */
#define FL_SEEN_FLAGS(seen) ((seen) >> 16 & 0xff)
#define FL_SEEN_KIND(seen) ((seen) >> 24 & 3) /* enum fl_kind */
#define FL_SEEN_OPENS (1u << 28)
#define FL_SEEN_TCP (1u << 29)

static __always_inline __u32 fl_seen(const struct fl_lb_packet *p, __u32 now)
{
	return (now >> 10 & 0xffff) | (__u32)p->flags << 16 | (__u32)p->kind << 24 |
	       (p->opens ? FL_SEEN_OPENS : 0) | (p->proto == IPPROTO_TCP ? FL_SEEN_TCP : 0);
}

/* Where it goes, in one word: the reason << 16 | the slot, or FL_ROW_NONE if the
 * reason is not to forward it. */
#define FL_GOES_SLOT(goes) ((goes) & 0x7fff)
#define FL_GOES_REASON(goes) ((goes) >> 16)

static __always_inline __u32 fl_goes_nowhere(__u32 reason)
{
	return reason << 16 | FL_ROW_NONE;
}

static __always_inline __u32 fl_event_of(__u32 seen, bool segment, bool opening)
{
	if (opening)
		return FL_EVENT_OPEN;
	if (segment && FL_SEEN_FLAGS(seen) & (FL_TCP_FIN | FL_TCP_RST))
		return FL_EVENT_CLOSE;
	return FL_SEEN_KIND(seen) == FL_KIND_QUOTE ? FL_EVENT_PEEK : FL_EVENT_DATA;
}

/* A packet that the scheme would have gone by its cookie. */
static __always_inline void fl_count_fallback(const struct fl_vip *v, __u32 reason)
{
	__u32 id = v->id;
	struct fl_vip_cpu *cpu = bpf_map_lookup_elem(&vip_cpu, &id);

	if (!cpu)
		return;
	cpu->fallback++;
	if (reason == FL_FORWARD_BAD_COOKIE)
		cpu->bad_cookies++;
}

/* How it enters the flow table. lasting: data of its flow may come, however late. */
static __always_inline __u32 fl_how(__u32 rules, bool lasting)
{
	if (rules & FL_RULE_ALL)
		return FL_INSERT_LRU;
	return lasting ? 0 : FL_INSERT_AGED;
}

/* Where a packet goes whose flow has this hash and key: all that the flow
 * table and the consistent hash say. A function of its own, from numbers to a
 * number, so that the verifier walks it once, not once for each of the many
 * ways that lead to it and from it. */
__noinline __u32 fl_hash_goes(const struct fl_vip *v, __u64 hash, __u64 x, __u32 seen, __u32 rules)
{
	bool tcp = seen & FL_SEEN_TCP, segment = tcp && FL_SEEN_KIND(seen) == FL_KIND_SEGMENT;
	bool opening = seen & FL_SEEN_OPENS, full = rules & FL_RULE_ALL;
	__u32 event = fl_event_of(seen, segment, opening), unit = seen & 0xffff;
	__u32 why = FL_RULE_REASON(rules), row, slot, held;
	int found = FL_FLOW_MISS;

	if (!v)
		return fl_goes_nowhere(FL_DROP_NO_SERVER);
	if (unlikely(FL_SEEN_KIND(seen) != FL_KIND_SEGMENT))
		why = FL_SEEN_KIND(seen) == FL_KIND_QUOTE ? FL_FORWARD_ICMP : FL_FORWARD_FRAGMENT;
	if (rules & FL_RULE_TRACKS)
		found = fl_flow_touch(v, x, unit, event, tcp);
	if (FL_RULE_UNKNOWN(rules) && found < 0)
		return fl_goes_nowhere(FL_RULE_UNKNOWN(rules));
	if (rules & FL_RULE_FALLBACK)
		fl_count_fallback(v, FL_RULE_REASON(rules));
	if (found >= 0) {
		slot = found;
		goto goes;
	}
	if (unlikely(opening && !v->new_size))
		return fl_goes_nowhere(FL_DROP_NO_SERVER);
	row = fl_place(v, hash);
	slot = opening || rules & FL_RULE_FRESH ? FL_ROW_SLOT(row) : FL_ROW_HELD(row);
	if (unlikely(slot == FL_ROW_NONE))
		return fl_goes_nowhere(FL_DROP_NO_SERVER);
	/* A stale entry must go even where the flow need not be tracked, or the
	 * next packet would follow it. The end of a connection is nothing to
	 * remember; a TCP fragment has no ports to find it by. A SYN may be forged:
	 * where a connection of before would be held by another server, its entry
	 * lasts as long as a handshake may take, unless data confirms it. */
	if (rules & FL_RULE_TRACKS &&
	    unlikely(FL_ROW_TRACK(row) || full || v->flags & FL_VIP_TRACK_ALL ||
		     found == FL_FLOW_STALE) &&
	    event <= FL_EVENT_DATA && !(tcp && FL_SEEN_KIND(seen) == FL_KIND_FRAGMENT) &&
	    fl_flow_line(v, slot) >= 0 &&
	    fl_flow_insert(x, unit << 16 | fl_flow_first(tcp, full) << 14 | slot, v->id,
			   fl_how(rules, tcp && (!opening || slot == FL_ROW_HELD(row)))) &&
	    opening && !full) {
		/* Nothing will know where it went. */
		held = FL_ROW_HELD(row);
		if (fl_flow_line(v, held) >= 0)
			slot = held;
	}
goes:
	return why << 16 | slot;
}

/* Under w->rules, of a flow whose hash is in w and whose key is x. */
static __always_inline int fl_by_key(const struct fl_vip *v, const struct fl_lb_packet *p,
				     struct fl_way *w, __u64 x, __u32 now)
{
	__u32 goes = fl_hash_goes(v, w->hash, x, fl_seen(p, now), w->rules);

	if (likely(fl_way_to(w, v, FL_GOES_SLOT(goes))))
		return FL_GOES_REASON(goes);
	/* Constants: to the verifier, any number may be a reason to forward. */
	if (FL_GOES_REASON(goes) == FL_ASK_RST)
		return FL_ASK_RST;
	return FL_GOES_REASON(goes) == FL_ASK_ICMP ? FL_ASK_ICMP : FL_DROP_NO_SERVER;
}

static __always_inline int fl_by_hash(const struct fl_vip *v, const struct fl_lb_packet *p,
				      struct fl_way *w, __u32 now)
{
	w->hash = fl_flow_hash(v, p);
	return fl_by_key(v, p, w, fl_flow_key(v, p, w->hash), now);
}

#endif
