/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3: which hop? The longest prefix, and of several equal next hops the
 * one that the selector names. */
#ifndef FAIRLEAD_ROUTER_ROUTE_H
#define FAIRLEAD_ROUTER_ROUTE_H

#include "maps.h"
#include "packet.h"

static __always_inline __u32 *fl_lookup4(const struct fl_router_packet *p)
{
	struct fl_route4 key = { .bits = 32, .addr = p->flow.dst[0] };

	return bpf_map_lookup_elem(&routes4, &key);
}

static __always_inline __u32 *fl_lookup6(const struct fl_router_packet *p)
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

/* Takes the hop that a route's value, NULL: there is none, leads to. What the
 * packet selects is read after the look-up: before it, it would be kept on the
 * stack across that call, and paid for where there is nothing to choose. */
static __always_inline int fl_take(const struct fl_router_packet *p, bool six, const __u32 *found,
				   struct fl_way *w)
{
	const struct fl_router_group *g;
	struct fl_choice choice;
	__u32 value, index;

	if (!found)
		return FL_PASS_NO_ROUTE;
	value = *(volatile __u32 *)found;
	index = FL_ROUTE_INDEX(value);
	w->index = index;
	w->how = FL_HOW_SINGLE;
	if (FL_ROUTE_KIND(value) != FL_ROUTE_GROUP)
		return FL_ROUTE_KIND(value) == FL_ROUTE_PASS ? (int)index : FL_CONTINUE;
	fl_pathsel_read(&selector, seed, &p->flow, six, p->ttl, &choice);
	g = bpf_map_lookup_elem(&groups, &index);
	if (!g) /* never */
		return FL_PASS_NO_ROUTE;
	w->index = g->hop[fl_pathsel_choose(&selector, &g->choice, &choice, &w->how)];
	return FL_CONTINUE;
}

/* `six` is a constant in each branch, as pathsel.h wants it. */
static __always_inline int fl_route(const struct fl_router_packet *p, struct fl_way *w)
{
	int reason = p->family == 4 ? fl_take(p, false, fl_lookup4(p), w)
				    : fl_take(p, true, fl_lookup6(p), w);
	__u32 index = w->index;

	if (reason != FL_CONTINUE)
		return reason;
	w->hop = bpf_map_lookup_elem(&hops, &index);
	return w->hop ? FL_CONTINUE : FL_PASS_NO_ROUTE;
}

#endif
