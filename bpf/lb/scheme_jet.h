/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3, schemes jet (paper §2-4) and full-ct; and what scheme cheetah does
 * with packets that can carry no cookie, which is jet. Go's twin is
 * scheme/model.
 *
 *   has an entry? ─yes─▶ its slot
 *       │no
 *   opens a connection? ─yes─▶ where new ones go ─┐
 *       │no                                       ├─▶ would a change that may
 *       └──▶ the server that holds earlier ones ──┘   come move it? make an entry
 *
 * full-ct asks the hash for new ones always, and remembers each. */
#ifndef FAIRLEAD_LB_SCHEME_JET_H
#define FAIRLEAD_LB_SCHEME_JET_H

#include "flows.h"
#include "place.h"

static __always_inline __u32 fl_event_of(const struct fl_packet *p, bool opening)
{
	if (p->kind == FL_KIND_QUOTE)
		return FL_EVENT_PEEK;
	if (opening)
		return FL_EVENT_OPEN;
	return p->kind == FL_KIND_SEGMENT && p->proto == IPPROTO_TCP &&
	       p->flags & (FL_TCP_FIN | FL_TCP_RST) ? FL_EVENT_CLOSE : FL_EVENT_DATA;
}

/* What concerns a connection that no entry knows, in scheme cheetah: if it
 * has a cookie, only the servers know. Returns a reason to ask them, or
 * FL_CONTINUE. */
static __always_inline int fl_cheetah_asks(const struct fl_packet *p)
{
	/* Linux answers for sockets it does not know by RSTs that carry no
	 * timestamp: of a connection whose cookie only the servers know. */
	if (p->kind == FL_KIND_SEGMENT && p->proto == IPPROTO_TCP && p->stamp == FL_STAMP_NONE &&
	    p->flags & FL_TCP_RST)
		return FL_ASK_RST;
	return p->stamp == FL_STAMP_CUT ? FL_ASK_ICMP : FL_CONTINUE;
}

/* Without a cookie: why is the reason under which the packet is forwarded. */
static __always_inline int fl_jet(const struct fl_vip *v, const struct fl_packet *p,
				  struct fl_way *w, __u32 now, bool opening, int why)
{
	__u32 event = fl_event_of(p, opening), tcp = p->proto == IPPROTO_TCP;
	__u32 unit = now >> 10 & 0xffff, row, id = v->id;
	bool full = v->scheme == FL_SCHEME_FULL_CT;
	__u64 x;
	int found;

	w->hash = fl_flow_hash(v, p);
	x = fl_flow_key(v, p, w->hash);
	found = fl_flow_touch(v, x, unit, event, tcp);
	if (unlikely(found >= 0) && likely(fl_way_to(w, v, found))) {
		struct fl_vip_cpu *cpu = bpf_map_lookup_elem(&vip_cpu, &id);

		if (likely(cpu))
			cpu->flow_hits++;
		return why;
	}
	if (v->scheme == FL_SCHEME_CHEETAH) {
		int ask = fl_cheetah_asks(p);

		if (ask != FL_CONTINUE)
			return ask;
	}
	if (unlikely(opening && !v->new_size))
		return FL_DROP_NO_SERVER;
	row = fl_place(v, w->hash);
	if (unlikely(!fl_way_to(w, v, opening || full ? FL_ROW_SLOT(row) : FL_ROW_HELD(row))))
		return FL_DROP_NO_SERVER;
	/* A stale entry must go even where the flow need not be tracked, or the
	 * next packet would follow it. The end of a connection is nothing to
	 * remember; a TCP fragment has no ports to find it by. */
	if (unlikely((FL_ROW_TRACK(row) || full || found == FL_FLOW_STALE) &&
		     (event == FL_EVENT_OPEN || event == FL_EVENT_DATA)) &&
	    !(tcp && p->kind == FL_KIND_FRAGMENT))
		fl_flow_insert(x, unit << 16 | FL_FLOW_NEW << 14 | (w->index - v->first_line), id, full);
	return why;
}

#endif
