/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The last stage: the one place that acts on what the others decided. */
#ifndef FAIRLEAD_ROUTER_VERDICT_H
#define FAIRLEAD_ROUTER_VERDICT_H

#include "forward.h"
#include "input.h"
#include "maps.h"
#include "packet.h"
#include "route.h"

static __always_inline void fl_count_pass(struct xdp_md *ctx, __u32 reason)
{
	struct fl_router_count *c = bpf_map_lookup_elem(&reasons, &reason);

	if (c) {
		c->packets++;
		c->bytes += bpf_xdp_get_buff_len(ctx);
	}
}

static __always_inline void fl_count_forward(const struct fl_router_packet *p,
					     const struct fl_way *w)
{
	__u32 index = w->index;
	struct fl_hop_count *c = bpf_map_lookup_elem(&hop_counts, &index);

	if (likely(!!c)) {
		c->packets[w->how & 3]++;
		c->bytes += p->len;
	}
}

static __always_inline int fl_decide(struct xdp_md *ctx, int *action)
{
	struct fl_router_packet p = {};
	struct fl_way w = {};
	int reason = fl_parse(ctx, &p);

	if (reason == FL_CONTINUE)
		reason = fl_input(ctx, &p);
	if (reason == FL_CONTINUE)
		reason = fl_route(&p, &w);
	if (unlikely(reason != FL_CONTINUE))
		return reason;
	reason = fl_forward(ctx, &p, w.hop, action);
	if (unlikely(reason != FL_CONTINUE))
		return reason;
	fl_count_forward(&p, &w);
	return FL_CONTINUE;
}

static __always_inline int fl_router(struct xdp_md *ctx)
{
	int action, reason = fl_decide(ctx, &action);

	if (likely(reason == FL_CONTINUE))
		return action;
	fl_count_pass(ctx, reason);
	return XDP_PASS;
}

#endif
