/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3: whose is it? Joins schemes, policy and fallback; decides only,
 * forwards nothing. */
#ifndef FAIRLEAD_LB_SCHEME_H
#define FAIRLEAD_LB_SCHEME_H

#include "policy.h"
#include "scheme_beamer.h"
#include "scheme_cheetah.h"
#include "scheme_jet.h"

static __always_inline int fl_scheme(struct xdp_md *ctx, const struct fl_vip *v,
				     struct fl_lb_packet *p, struct fl_way *w, __u32 now)
{
	struct fl_vip_cpu *cpu;
	__u32 id = v->id;
	bool syn = false;

	if (p->kind == FL_KIND_SEGMENT) {
		int r = fl_parse_l4(ctx, p);

		if (r != FL_CONTINUE)
			return r;
		syn = p->proto == IPPROTO_TCP && fl_tcp_opens(p->flags);
		w->closes = p->proto == IPPROTO_TCP && p->flags & (FL_TCP_FIN | FL_TCP_RST);
	} else if (p->kind == FL_KIND_FRAGMENT && !(v->flags & FL_VIP_FRAG_ADDRESSES)) {
		return p->carried == FL_CARRIED_CUT ? FL_ASK_ICMP : FL_DROP_FRAGMENT;
	}
	if (likely(p->carried == FL_CARRIED_WHOLE && v->scheme == FL_SCHEME_CHEETAH)) {
		if (likely(!syn)) {
			if (likely(fl_cheetah_known(v, p, w, now)))
				return p->kind == FL_KIND_QUOTE ? FL_FORWARD_ICMP : FL_KNOWN;
		} else if (v->policy != FL_POLICY_HASH) {
			cpu = bpf_map_lookup_elem(&vip_cpu, &id);
			if (unlikely(!cpu)) /* user space gives no such id */
				return FL_DROP_NO_SERVER;
			w->cpu = cpu;
			w->opens = true;
			return likely(fl_policy_choose(v, p, cpu, w)) ? FL_FORWARD_NEW
								      : FL_DROP_NO_SERVER;
		}
	}
	if (v->scheme == FL_SCHEME_BEAMER)
		return fl_beamer(v, p, w);
	return fl_jet(v, p, w, now);
}

#endif
