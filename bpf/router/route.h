/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3: which hop? The longest prefix, and of several equal next hops the
 * one that the selector names. */
#ifndef FAIRLEAD_ROUTER_ROUTE_H
#define FAIRLEAD_ROUTER_ROUTE_H

#include "maps.h"
#include "packet.h"

static __always_inline __u32 *fl_lookup4(const struct fl_packet *p)
{
	struct fl_route4 key = { .bits = 32, .addr = p->flow.dst[0] };

	return bpf_map_lookup_elem(&routes4, &key);
}

static __always_inline __u32 *fl_lookup6(const struct fl_packet *p)
{
	struct fl_route6 key = { .bits = 128 };

	for (int i = 0; i < 4; i++)
		key.addr[i] = p->flow.dst[i];
	return bpf_map_lookup_elem(&routes6, &key);
}

/* Where a packet leaves, and how that was decided. */
struct fl_way {
	const struct fl_hop *hop;
	__u32 index; /* of the hop */
	enum fl_how how;
};

static __always_inline int fl_route(const struct fl_packet *p, struct fl_way *w)
{
	struct fl_choice choice;
	__u32 *found, value, index;

	/* The choice comes before the look-up, which it does not need: the
	 * processor does what it can of both at once. */
	if (p->family == 4) {
		fl_pathsel_read(&selector, seed, &p->flow, false, p->ttl, &choice);
		found = fl_lookup4(p);
	} else {
		fl_pathsel_read(&selector, seed, &p->flow, true, p->ttl, &choice);
		found = fl_lookup6(p);
	}
	if (!found)
		return FL_PASS_NO_ROUTE;
	value = *(volatile __u32 *)found;
	index = FL_ROUTE_INDEX(value);
	w->how = FL_HOW_SINGLE;
	w->index = index;
	if (FL_ROUTE_KIND(value) == FL_ROUTE_PASS)
		return index;
	if (FL_ROUTE_KIND(value) == FL_ROUTE_GROUP) {
		const struct fl_router_group *g = bpf_map_lookup_elem(&groups, &index);

		if (!g) /* never */
			return FL_PASS_NO_ROUTE;
		w->index = g->hop[fl_pathsel_choose(&selector, &g->choice, &choice, &w->how)];
	}
	w->hop = bpf_map_lookup_elem(&hops, &w->index);
	return w->hop ? FL_CONTINUE : FL_PASS_NO_ROUTE;
}

#endif
