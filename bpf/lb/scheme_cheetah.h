/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3, scheme cheetah (paper §3.1): the cookie names the slot that the
 * policy chose; and cheetah-stateful (§3.2), whose cookie has a seat beside it. bpf/include/cookie.h is the definition that host and Go model
 * share.
 *
 *   carries one? ─yes─▶ opens? ─no──▶ its slot ─none─▶ by the hash
 *        │no              └─yes─▶ policy
 *        └─▶ by the hash, with entries, as in scheme jet
 *
 * What carries a bad cookie was opened by the policy, so that no entry knows it,
 * and goes to the server that holds.
 *
 * While the VIP migrates, an entry is asked for before all this: what was opened under
 * another scheme has none of our cookies, but its timestamp looks like one by chance.
 * Before it migrates to a scheme without cookies (no FL_VIP_MIGRATES), what opens gets an
 * entry, and all goes by its cookie: of two servers that a SYN and its repetition came to,
 * the entry names the second, and the client's timestamp the one that it has. */
#ifndef FAIRLEAD_LB_SCHEME_CHEETAH_H
#define FAIRLEAD_LB_SCHEME_CHEETAH_H

#include "by_hash.h"
#include "carrier.h"
#include "policy.h"
#include "seats.h"

#define FL_SHIFT_DEFAULT 20 /* cookie_bits: 12 */

/* Whether cookies have the default width, and no seats: of the word of shift, hash
 * form, carrier and seat_bits in one comparison. */
static __always_inline bool fl_cheetah_usual(const struct fl_vip *v)
{
	return (*(const __u32 *)&v->shift & 0xff0000ff) == FL_SHIFT_DEFAULT;
}

/* The way of a connection that was moved, unless that server is gone or down. */
static __always_inline bool fl_cheetah_moved(struct fl_way *w, const struct fl_vip *v, __u32 to,
					     __u32 own)
{
	return (fl_way_to(w, v, to) && !(w->form & FL_FORM_DOWN)) || fl_way_to(w, v, own);
}

/* FL_KNOWN or FL_FORWARD_OTHER_TIER: w says whose it is. FL_DROP_RATE_CONNECTION. Else why the hash has to: the
 * cookie does not decode, or to no server, or it is tier one's and the balancer it names
 * is down. */
static __always_inline int fl_cheetah_known(const struct fl_vip *v, const struct fl_lb_packet *p,
					    struct fl_way *w, __u32 now)
{
	__u32 shift = v->shift, field, epoch, value, tiers, tier, moved;

	field = fl_carrier_field(v, p, now);
	epoch = fl_cookie_epoch(field, shift);
	if (unlikely(!(v->epochs >> epoch & 1)))
		return FL_FORWARD_BAD_COOKIE;
	w->hash = fl_hash_key(v->key[epoch], p, p->sport, p->dport);
	/* The default width's shifts and masks as constants: 2 ns. */
	if (likely(fl_cheetah_usual(v)))
		return fl_way_to(w, v, fl_cookie_value(w->hash, field, FL_SHIFT_DEFAULT))
			       ? FL_KNOWN
			       : FL_FORWARD_BAD_COOKIE;
	value = fl_cookie_value(w->hash, field, shift);
	tiers = FL_VIP_TIER_BITS(v);
	tier = value >> ((31 - shift - tiers) & 15);
	value &= fl_value_below(31 - shift, tiers);
	if (unlikely(!fl_way_to(w, v, fl_value_slot(value, FL_VIP_SEAT_BITS(v)))))
		return FL_FORWARD_BAD_COOKIE;
	if (v->tier == FL_TIER_ONE)
		return unlikely(w->form & FL_FORM_DOWN) ? FL_FORWARD_TIER_DOWN : FL_KNOWN;
	/* The seat is another's, who is down or was when this was opened. */
	if (unlikely(tiers && tier != v->tier))
		return FL_FORWARD_OTHER_TIER;
	if (FL_VIP_SEAT_BITS(v) && likely(p->kind == FL_KIND_SEGMENT)) {
		if (unlikely(v->rates & FL_RATE_CONNECTION) &&
		    fl_seat_rated(v, p, w->hash, value, now))
			return FL_DROP_RATE_CONNECTION;
		moved = fl_seat_seen(v, p, w, value, now);
		if (unlikely(moved) &&
		    !fl_cheetah_moved(w, v, moved - 1, fl_value_slot(value, FL_VIP_SEAT_BITS(v))))
			return FL_FORWARD_BAD_COOKIE;
	}
	return FL_KNOWN;
}

/* What concerns a connection that no entry knows: only the servers know whether
 * it has a cookie. A reason to ask them, or 0. */
static __always_inline __u32 fl_cheetah_asks(const struct fl_vip *v, const struct fl_lb_packet *p)
{
	/* Tier two asks them. */
	if (v->tier == FL_TIER_ONE)
		return 0;
	/* Linux answers for sockets it does not know by RSTs that carry no
	 * timestamp. */
	if (p->proto == IPPROTO_TCP && p->kind == FL_KIND_SEGMENT &&
	    p->carried == FL_CARRIED_NONE && p->flags & FL_TCP_RST)
		return FL_ASK_RST;
	return p->carried == FL_CARRIED_CUT ? FL_ASK_ICMP : 0;
}

/* Where the flow table says: a reason, with w's line. FL_CONTINUE: by the hash, under
 * w->rules, as what is opened by the hash, or has an entry that is not to be followed,
 * gets one. 0: it says nothing. */
static __always_inline int fl_cheetah_migrates(const struct fl_vip *v, const struct fl_lb_packet *p,
					       struct fl_way *w, __u32 now)
{
	bool tcp = p->proto == IPPROTO_TCP;
	__u32 seen = fl_seen(p, now), event;
	int found;

	if (p->carried != FL_CARRIED_WHOLE) /* by the hash, with entries, as ever */
		return 0;
	w->rules = FL_FORWARD_NEW | FL_RULE_TRACKS;
	if (p->opens && v->policy == FL_POLICY_HASH)
		return FL_CONTINUE;
	if (!(v->flags & FL_VIP_MIGRATES))
		return 0;
	w->hash = fl_flow_hash(v, p);
	event = fl_event_of(seen, tcp && p->kind == FL_KIND_SEGMENT, p->opens);
	found = fl_flow_touch(v, fl_flow_key(v, p, w->hash), seen & 0xffff, event, tcp);
	if (found >= 0 && fl_way_to(w, v, found)) {
		if (p->kind == FL_KIND_QUOTE)
			return FL_FORWARD_ICMP;
		return p->opens ? FL_FORWARD_NEW : FL_KNOWN;
	}
	return p->opens && found == FL_FLOW_STALE ? FL_CONTINUE : 0;
}

static __always_inline int fl_cheetah(const struct fl_vip *v, const struct fl_lb_packet *p,
				      struct fl_way *w, __u32 now)
{
	int reason;

	if (unlikely(p->carried != FL_CARRIED_WHOLE)) {
		w->rules = fl_cheetah_asks(v, p) << 8 | FL_RULE_TRACKS | FL_RULE_FALLBACK |
			   (p->proto == IPPROTO_TCP ? FL_FORWARD_NO_TIMESTAMP : FL_FORWARD_UDP);
		return FL_CONTINUE;
	}
	if (likely(!p->opens)) {
		reason = fl_cheetah_known(v, p, w, now);
		if (likely(reason == FL_KNOWN))
			return p->kind == FL_KIND_QUOTE ? FL_FORWARD_ICMP : FL_KNOWN;
		if (unlikely(reason == FL_DROP_RATE_CONNECTION))
			return reason;
		if (reason == FL_FORWARD_OTHER_TIER)
			return p->kind == FL_KIND_QUOTE ? FL_FORWARD_ICMP : FL_FORWARD_OTHER_TIER;
		/* What is down takes nothing, nor what it held. */
		w->rules = reason == FL_FORWARD_TIER_DOWN
				   ? FL_FORWARD_TIER_DOWN | FL_RULE_FALLBACK | FL_RULE_FRESH
				   : FL_FORWARD_BAD_COOKIE | FL_RULE_FALLBACK;
		return FL_CONTINUE;
	}
	if (v->policy != FL_POLICY_HASH)
		return likely(fl_policy_choose(v, p, w)) ? FL_FORWARD_NEW : FL_DROP_NO_SERVER;
	w->rules = FL_FORWARD_NEW;
	return FL_CONTINUE;
}

#endif
