/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3, scheme beamer (NSDI'18, §4.2 and §4.3): a packet's hash names a
 * bucket, the bucket its current server, and the packet takes along who had
 * the bucket before (bpf/include/hops.h), so that servers pass on what is not
 * theirs. Nothing is remembered, and opening packets are packets as all others:
 *
 *   hash ─▶ bucket ─▶ row ─▶ settled:  current server, empty chain
 *                       └──▶ moved:    current server, chain, time
 *
 * Where the paper names one previous server, a chain here names up to FL_CHAIN.
 * Go's twin is scheme/beamer. */
#ifndef FAIRLEAD_LB_SCHEME_BEAMER_H
#define FAIRLEAD_LB_SCHEME_BEAMER_H

#include "flows.h"

static __always_inline __u64 *fl_table_at(__u32 index)
{
	return bpf_map_lookup_elem(&tables, &index);
}

/* The way of bucket b, which has moved. */
static __always_inline bool fl_beamer_moved(const struct fl_vip *v, struct fl_way *w, __u32 b)
{
	__u32 first = v->hash_table + FL_BUCKET_WORDS(b, v->hash_size);
	__u64 *servers = fl_table_at(first), *time = fl_table_at(first + 1);

	if (!servers || !time) /* user space writes no such row */
		return false;
	w->hops.chain = fl_hops_chain(*servers >> 16, *servers >> 32, *servers >> 48);
	w->hops.when = fl_hops_when(*time, v->generation);
	return fl_way_to(w, v, *servers & 0xffff);
}

/* The way of an MPTCP join (RFC 8684, §3.2): its port names the server of the
 * first subflow, whatever its own hash says. The paper has the server's number
 * itself in the port, which shows clients who serves whom; here it is permuted
 * under the deployment's key. v: the address's entry. */
static __always_inline bool fl_beamer_join(const struct fl_vip *v, const struct fl_lb_packet *p,
					   struct fl_way *w)
{
	__u32 field = bpf_ntohs(p->dport) - FL_JOIN_PORT;

	return fl_way_to(w, v, fl_cookie_value(v->join_hash, field, FL_JOIN_SHIFT));
}

/* A join port of no server: whether the packet is too big for the first server
 * there is, which w then names. The sender is told, as at a port that has one:
 * else the answers would tell which have. */
static __always_inline bool fl_beamer_tells(const struct fl_vip *v, const struct fl_lb_packet *p,
					    struct fl_way *w)
{
	for (__u32 slot = 0; slot < FL_JOIN_TRIES; slot++) {
		if (fl_way_to(w, v, slot))
			return p->len > w->line->mtu;
	}
	return false;
}

/* The way by w->hash. False: no server has the bucket. */
static __always_inline bool fl_beamer_way(const struct fl_vip *v, const struct fl_lb_packet *p,
					  struct fl_way *w)
{
	__u32 b = fl_scale(w->hash >> 32, v->hash_size), slot;
	__u64 *row;

	w->hops.chain = FL_HOPS_EMPTY;
	w->hops.when = fl_hops_when(0, v->generation);
	if (unlikely(v->flags & FL_VIP_JOIN))
		return fl_beamer_join(v, p, w);
	row = fl_table_at(v->hash_table + FL_BUCKET_ROW(b));
	if (unlikely(!row || !v->hash_size))
		return false;
	slot = *row >> FL_BUCKET_SHIFT(b) & 0xffff;
	if (unlikely(slot == FL_BUCKET_MOVED))
		return fl_beamer_moved(v, w, b);
	return fl_way_to(w, v, slot);
}

static __always_inline int fl_beamer(const struct fl_vip *v, const struct fl_lb_packet *p,
				     struct fl_way *w)
{
	w->hash = fl_flow_hash(v, p);
	if (unlikely(!fl_beamer_way(v, p, w)) &&
	    !(v->flags & FL_VIP_JOIN && fl_beamer_tells(v, p, w)))
		return FL_DROP_NO_SERVER;
	w->form |= FL_FORM_HOPS;
	if (unlikely(p->kind != FL_KIND_SEGMENT))
		return p->kind == FL_KIND_QUOTE ? FL_FORWARD_ICMP : FL_FORWARD_FRAGMENT;
	return p->opens ? FL_FORWARD_NEW : FL_KNOWN;
}

#endif
