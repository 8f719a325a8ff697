/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3: whose is it? Joins schemes, policy and fallback; decides only,
 * forwards nothing. */
#ifndef FAIRLEAD_LB_SCHEME_H
#define FAIRLEAD_LB_SCHEME_H

#include "flows.h"
#include "policy.h"
#include "scheme_cheetah.h"
#include "scheme_stateless.h"

/* What has no (valid) cookie: the flow table, then the hash. why is the
 * reason under which it is forwarded; first says that the packet may open a
 * flow. A packet that opens none never enters the table: what an attacker
 * makes up must not push out what is real. */
static __always_inline int fl_fallback(const struct fl_vip *v, const struct fl_packet *p,
				       struct fl_vip_cpu *cpu, struct fl_way *w, __u32 now,
				       bool first, int why)
{
	__u64 x;
	__u32 slot;
	bool opening;
	int known;

	w->hash = fl_flow_hash(v, p);
	/* A connection with timestamps was opened by the policy, not from here:
	 * the flow table cannot know it. */
	if (p->stamp == FL_STAMP_PRESENT) {
		cpu->fallback++;
		return likely(fl_row(v, w, &slot)) ? why : FL_DROP_NO_SERVER;
	}
	x = fl_flow_key(v, p, w->hash);
	/* A SYN opens anew, also where its ports were used before: the flow's
	 * server of then may be one that drains. */
	opening = p->kind == FL_KIND_SEGMENT && p->proto == IPPROTO_TCP && first;
	known = opening ? -1 : fl_flow_find(x, now >> 10, fl_flow_idle(p));
	if (known >= 0 && fl_way_to(w, v, known)) {
		cpu->fallback++;
		cpu->flow_hits++;
		return why;
	}
	/* Linux answers for sockets it does not know by RSTs that carry no
	 * timestamp: of a connection whose cookie only the servers know. */
	if (p->kind == FL_KIND_SEGMENT && p->proto == IPPROTO_TCP &&
	    p->stamp == FL_STAMP_NONE && p->flags & FL_TCP_RST)
		return FL_ASK_RST;
	if (p->stamp == FL_STAMP_CUT)
		return FL_ASK_ICMP;
	cpu->fallback++;
	if (!fl_row(v, w, &slot))
		return FL_DROP_NO_SERVER;
	if (first) {
		fl_flow_insert(x, slot, now >> 10);
		w->opens = true;
	}
	return why;
}

static __always_inline int fl_scheme(struct xdp_md *ctx, const struct fl_vip *v,
				     struct fl_packet *p, struct fl_way *w, __u32 now)
{
	struct fl_vip_cpu *cpu;
	__u32 id = v->id;
	bool segment = false, syn = false, first;
	int why = FL_FORWARD_UDP;

	if (p->kind == FL_KIND_SEGMENT) {
		int r = fl_parse_l4(ctx, p);

		if (r != FL_CONTINUE)
			return r;
		segment = p->proto == IPPROTO_TCP;
		syn = segment && (p->flags & (FL_TCP_SYN | FL_TCP_ACK | FL_TCP_RST)) == FL_TCP_SYN;
		w->closes = segment && p->flags & (FL_TCP_FIN | FL_TCP_RST);
	} else if (p->kind == FL_KIND_FRAGMENT && !(v->flags & FL_VIP_FRAG_ADDRESSES)) {
		return FL_DROP_FRAGMENT;
	}
	if (unlikely(v->scheme == FL_SCHEME_STATELESS) && p->kind != FL_KIND_FRAGMENT) {
		w->opens = syn;
		return fl_stateless(v, p, w);
	}
	if (likely(p->stamp == FL_STAMP_PRESENT && !syn)) {
		if (likely(fl_cheetah_known(v, p, w, now)))
			return p->kind == FL_KIND_QUOTE ? FL_FORWARD_ICMP : FL_KNOWN;
	}

	cpu = bpf_map_lookup_elem(&vip_cpu, &id);
	if (unlikely(!cpu)) /* user space gives no such id */
		return FL_DROP_NO_SERVER;
	w->cpu = cpu;
	if (p->stamp == FL_STAMP_PRESENT) {
		if (syn) {
			w->opens = true;
			return likely(fl_policy_choose(v, p, cpu, w)) ? FL_FORWARD_NEW : FL_DROP_NO_SERVER;
		}
		cpu->bad_cookies++;
		why = FL_FORWARD_BAD_COOKIE;
	} else if (segment) {
		why = FL_FORWARD_NO_TIMESTAMP;
	}
	first = syn;
	if (p->kind == FL_KIND_FRAGMENT)
		why = FL_FORWARD_FRAGMENT;
	else if (p->kind == FL_KIND_QUOTE)
		why = FL_FORWARD_ICMP;
	else if (!segment)
		first = true; /* any datagram may be a flow's first */
	return fl_fallback(v, p, cpu, w, now, first, why);
}

#endif
