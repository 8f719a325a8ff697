/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3, what goes by a hash: schemes jet (paper §2-4), full-ct and
 * stateless, and packets of scheme cheetah without a good cookie. Go's twin is
 * scheme/model.
 *
 *   has an entry? ─yes─▶ its slot
 *       │no
 *   opens a connection? ─yes─▶ where new ones go ─┐
 *       │no                                       ├─▶ would a change that may
 *       └──▶ the server that holds earlier ones ──┘   come move it? make an entry
 *
 * An opening packet whose entry is refused goes to the server that holds, too:
 * that is where its connection's next packet is going to be sent. With
 * FL_VIP_TRACK_ALL every packet that may make an entry makes one.
 *
 * full-ct asks the hash for new ones always, and remembers each; stateless
 * asks for new ones always, and remembers none. What carries no cookie in
 * scheme cheetah goes as in jet; what carries a bad one was opened by the
 * policy, so that no entry knows it, and goes to the server that holds. */
#ifndef FAIRLEAD_LB_SCHEME_JET_H
#define FAIRLEAD_LB_SCHEME_JET_H

#include "flows.h"
#include "place.h"

/* What was seen of a packet, in one word: time in units, TCP's flags, and */
#define FL_SEEN_FLAGS(seen) ((seen) >> 16 & 0xff)
#define FL_SEEN_KIND(seen) ((seen) >> 24 & 3)  /* enum fl_kind */
#define FL_SEEN_CARRIED(seen) ((seen) >> 26 & 3) /* enum fl_carried */
#define FL_SEEN_INITIAL (1u << 28)
#define FL_SEEN_TCP (1u << 29)

static __always_inline __u32 fl_seen(const struct fl_lb_packet *p, __u32 now)
{
	return (now >> 10 & 0xffff) | (__u32)p->flags << 16 | (__u32)p->kind << 24 |
	       (__u32)p->carried << 26 | (p->initial ? FL_SEEN_INITIAL : 0) |
	       (p->proto == IPPROTO_TCP ? FL_SEEN_TCP : 0);
}

/* Where it goes, in one word: the reason << 16 | FL_GOES_OPENS | the slot, or
 * FL_ROW_NONE if the reason is not to forward it. */
#define FL_GOES_SLOT(goes) ((goes) & 0x7fff)
#define FL_GOES_OPENS 0x8000
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

/* The reason under which scheme cheetah forwards it. */
static __always_inline __u32 fl_cheetah_reason(__u32 seen, bool opening)
{
	if (FL_SEEN_CARRIED(seen) == FL_CARRIED_WHOLE)
		return opening ? FL_FORWARD_NEW : FL_FORWARD_BAD_COOKIE;
	return seen & FL_SEEN_TCP ? FL_FORWARD_NO_TIMESTAMP : FL_FORWARD_UDP;
}

static __always_inline void fl_cheetah_count(const struct fl_vip *v, __u32 reason)
{
	__u32 id = v->id;
	struct fl_vip_cpu *cpu = bpf_map_lookup_elem(&vip_cpu, &id);

	if (!cpu || reason == FL_FORWARD_NEW)
		return;
	cpu->fallback++;
	if (reason == FL_FORWARD_BAD_COOKIE)
		cpu->bad_cookies++;
}

/* What concerns a connection that no entry knows, in scheme cheetah: only the
 * servers know whether it has a cookie. Returns a reason to ask them, or
 * FL_KNOWN. */
static __always_inline __u32 fl_cheetah_asks(__u32 seen, bool segment)
{
	/* Linux answers for sockets it does not know by RSTs that carry no
	 * timestamp. */
	if (segment && FL_SEEN_CARRIED(seen) == FL_CARRIED_NONE && FL_SEEN_FLAGS(seen) & FL_TCP_RST)
		return FL_ASK_RST;
	return FL_SEEN_CARRIED(seen) == FL_CARRIED_CUT ? FL_ASK_ICMP : FL_KNOWN;
}

/* Where a packet goes whose flow has this hash and key: all that the flow
 * table and the consistent hash say. A function of its own, from numbers to a
 * number, so that the verifier walks it once, not once for each of the many
 * ways that lead to it and from it. */
__noinline __u32 fl_by_hash(const struct fl_vip *v, __u64 hash, __u64 x, __u32 seen)
{
	bool tcp = seen & FL_SEEN_TCP, segment = tcp && FL_SEEN_KIND(seen) == FL_KIND_SEGMENT;
	bool opening = seen & FL_SEEN_INITIAL || (segment && fl_tcp_opens(FL_SEEN_FLAGS(seen)));
	__u32 event = fl_event_of(seen, segment, opening), unit = seen & 0xffff;
	__u32 reason = opening ? FL_FORWARD_NEW : FL_KNOWN, why, row, slot, held;
	bool entries = true, full = false, fresh = opening;
	int found = FL_FLOW_MISS;

	if (!v)
		return fl_goes_nowhere(FL_DROP_NO_SERVER);
	switch (v->scheme) {
	case FL_SCHEME_STATELESS:
		reason = FL_FORWARD_STATELESS;
		entries = false;
		fresh = true;
		break;
	case FL_SCHEME_CHEETAH:
		reason = fl_cheetah_reason(seen, opening);
		entries = FL_SEEN_CARRIED(seen) != FL_CARRIED_WHOLE;
		break;
	case FL_SCHEME_FULL_CT:
		full = fresh = true;
		break;
	}
	why = reason;
	if (unlikely(FL_SEEN_KIND(seen) != FL_KIND_SEGMENT))
		why = FL_SEEN_KIND(seen) == FL_KIND_QUOTE ? FL_FORWARD_ICMP : FL_FORWARD_FRAGMENT;
	if (entries)
		found = fl_flow_touch(v, x, unit, event, tcp);
	if (unlikely(v->scheme == FL_SCHEME_CHEETAH)) {
		__u32 asks = entries && found < 0 ? fl_cheetah_asks(seen, segment) : FL_KNOWN;

		if (asks != FL_KNOWN)
			return fl_goes_nowhere(asks);
		fl_cheetah_count(v, reason);
	}
	if (found >= 0) {
		slot = found;
		goto goes;
	}
	if (unlikely(opening && !v->new_size))
		return fl_goes_nowhere(FL_DROP_NO_SERVER);
	row = fl_place(v, hash);
	slot = fresh ? FL_ROW_SLOT(row) : FL_ROW_HELD(row);
	if (unlikely(slot == FL_ROW_NONE))
		return fl_goes_nowhere(FL_DROP_NO_SERVER);
	/* A stale entry must go even where the flow need not be tracked, or the
	 * next packet would follow it. The end of a connection is nothing to
	 * remember; a TCP fragment has no ports to find it by. A SYN may be forged:
	 * where a connection of before would be held by another server, its entry
	 * lasts as long as a handshake may take, unless data confirms it. */
	if (entries &&
	    unlikely(FL_ROW_TRACK(row) || full || v->flags & FL_VIP_TRACK_ALL ||
		     found == FL_FLOW_STALE) &&
	    event <= FL_EVENT_DATA && !(tcp && FL_SEEN_KIND(seen) == FL_KIND_FRAGMENT) &&
	    fl_flow_line(v, slot) >= 0 &&
	    fl_flow_insert(x, unit << 16 | fl_flow_first(tcp, full) << 14 | slot, v->id,
			   full                                            ? FL_INSERT_LRU
			   : tcp && (!opening || slot == FL_ROW_HELD(row)) ? 0
									   : FL_INSERT_AGED) &&
	    opening && !full) {
		/* Nothing will know where it went. */
		held = FL_ROW_HELD(row);
		if (fl_flow_line(v, held) >= 0)
			slot = held;
	}
goes:
	return why << 16 | (opening ? FL_GOES_OPENS : 0) | slot;
}

/* The way of nearly all packets of scheme jet: in the middle of a connection
 * that nobody tracks and that no change would move. fl_by_hash would say the
 * same; this spares the call, a sixth of all that the packet costs. */
static __always_inline bool fl_jet_untracked(const struct fl_vip *v, const struct fl_lb_packet *p,
					     struct fl_way *w, __u64 x)
{
	struct fl_bucket *b;
	__u32 row;

	if (v->scheme != FL_SCHEME_JET || p->kind != FL_KIND_SEGMENT || p->initial ||
	    p->flags & (FL_TCP_SYN | FL_TCP_FIN | FL_TCP_RST) ||
	    unlikely(v->flags & FL_VIP_TRACK_ALL))
		return false;
	b = fl_flow_bucket(x);
	if (unlikely(!b) || unlikely(fl_flow_match(fl_flow_tags(b), x)))
		return false;
	row = fl_place_at_once(v, w->hash);
	return likely(!FL_ROW_TRACK(row)) && likely(fl_way_to(w, v, FL_ROW_HELD(row)));
}

static __always_inline int fl_jet(const struct fl_vip *v, const struct fl_lb_packet *p,
				  struct fl_way *w, __u32 now)
{
	__u32 goes;
	__u64 x;

	w->hash = fl_flow_hash(v, p);
	x = fl_flow_key(v, p, w->hash);
	if (likely(fl_jet_untracked(v, p, w, x)))
		return FL_KNOWN;
	goes = fl_by_hash(v, w->hash, x, fl_seen(p, now));
	w->opens = goes & FL_GOES_OPENS;
	if (likely(fl_way_to(w, v, FL_GOES_SLOT(goes))))
		return FL_GOES_REASON(goes);
	/* Constants: to the verifier, any number may be a reason to forward. */
	if (FL_GOES_REASON(goes) == FL_ASK_RST)
		return FL_ASK_RST;
	return FL_GOES_REASON(goes) == FL_ASK_ICMP ? FL_ASK_ICMP : FL_DROP_NO_SERVER;
}

#endif
