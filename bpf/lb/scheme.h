/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3: whose is it? Joins schemes, policy and fallback; decides only,
 * forwards nothing. */
#ifndef FAIRLEAD_LB_SCHEME_H
#define FAIRLEAD_LB_SCHEME_H

#include "policy.h"
#include "scheme_cheetah.h"
#include "scheme_jet.h"
#include "scheme_stateless.h"

static __always_inline int fl_scheme(struct xdp_md *ctx, const struct fl_vip *v,
				     struct fl_packet *p, struct fl_way *w, __u32 now)
{
	struct fl_vip_cpu *cpu;
	__u32 id = v->id;
	bool segment = false, syn = false, opening;
	int why;

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
	opening = syn || p->initial;
	if (unlikely(v->scheme != FL_SCHEME_CHEETAH)) {
		w->opens = opening;
		if (v->scheme == FL_SCHEME_STATELESS)
			return fl_stateless(v, p, w, opening);
		why = opening ? FL_FORWARD_NEW : FL_KNOWN;
		goto tracked;
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
		/* The policy opened it: the flow table cannot know it, the hash
		 * can only guess. */
		cpu->bad_cookies++;
		cpu->fallback++;
		w->hash = fl_flow_hash(v, p);
		if (unlikely(!fl_way_to(w, v, FL_ROW_HELD(fl_place(v, w->hash)))))
			return FL_DROP_NO_SERVER;
		return p->kind == FL_KIND_QUOTE ? FL_FORWARD_ICMP : FL_FORWARD_BAD_COOKIE;
	}
	w->opens = opening;
	why = segment ? FL_FORWARD_NO_TIMESTAMP : FL_FORWARD_UDP;
tracked:
	if (p->kind == FL_KIND_FRAGMENT)
		why = FL_FORWARD_FRAGMENT;
	else if (p->kind == FL_KIND_QUOTE)
		why = FL_FORWARD_ICMP;
	return fl_jet(v, p, w, now, opening, why);
}

#endif
