/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Fallback for what carries no cookie: the flow table, then the consistent
 * hash within the VIP.
 *
 *   h      = hash of the client's address and ports, keyed by hash_key
 *   x      = h + id of the VIP * golden ratio   (one table for all VIPs)
 *   bucket = low 32 bits of x, scaled;  fingerprint = high 32 bits of x
 *   row    = high 32 bits of h, scaled to the consistent-hash table
 *
 * A VIP with affinity by address, or that takes fragments by addresses,
 * leaves the ports out of h, so that whole packets and fragments of a client
 * meet on one server. */
#ifndef FAIRLEAD_LB_FLOWS_H
#define FAIRLEAD_LB_FLOWS_H

#include "scheme_cheetah.h"

static __always_inline __u64 fl_flow_hash(const struct fl_vip *v, const struct fl_packet *p)
{
	bool ports = !(v->flags & (FL_VIP_AFFINITY | FL_VIP_FRAG_ADDRESSES)) &&
		     p->kind != FL_KIND_FRAGMENT;

	return fl_hash_key(v->hash_key, p, ports ? p->sport : 0, ports ? p->dport : 0);
}

static __always_inline __u64 fl_flow_key(const struct fl_vip *v, __u64 hash)
{
	return hash + v->id * 0x9e3779b97f4a7c15ULL;
}

static __always_inline struct fl_bucket *fl_flow_bucket(__u64 x)
{
	__u32 index = fl_scale((__u32)x, flow_buckets);

	return bpf_map_lookup_elem(&flows, &index);
}

/* The flow's slot, or -1. Renews its time. */
static __always_inline int fl_flow_find(struct fl_bucket *b, __u64 x, __u16 seconds)
{
	for (int i = 0; i < 8; i++) {
		__u64 e = *(volatile __u64 *)&b->entry[i];

		if (e >> 32 != x >> 32 || !(e & 0xffff))
			continue;
		if ((__u16)(e >> 16) != seconds)
			b->entry[i] = (e & 0xffffffff0000ffffULL) | (__u64)seconds << 16;
		return (int)(e & 0xffff) - 1;
	}
	return -1;
}

/* Remembers the flow, in place of the oldest of its bucket. Two CPUs may race
 * for one entry: one of the flows is then not remembered, which is what a
 * full bucket does too. */
static __always_inline void fl_flow_insert(struct fl_bucket *b, __u64 x, __u32 slot,
					   __u16 seconds)
{
	__u32 oldest = 0, age = 0;

	for (__u32 i = 0; i < 8; i++) {
		__u64 e = *(volatile __u64 *)&b->entry[i];
		/* An empty entry is older than any. */
		__u32 a = e & 0xffff ? (__u16)(seconds - (__u16)(e >> 16)) : 0x10000;

		if (a > age) {
			age = a;
			oldest = i;
		}
	}
	b->entry[oldest & 7] = x >> 32 << 32 | (__u64)seconds << 16 | (slot + 1);
}

/* Server of the consistent-hash table. */
static __always_inline bool fl_row(const struct fl_vip *v, struct fl_way *w, __u32 *slot)
{
	__u32 row = v->hash_table + fl_scale(w->hash >> 32, v->hash_size), *entry;

	if (!v->hash_size)
		return false;
	entry = bpf_map_lookup_elem(&tables, &row);
	if (!entry)
		return false;
	*slot = FL_ENTRY_SLOT(*entry);
	return fl_way_to(w, v, *slot);
}

/* Whether the flow table knows the way. */
static __always_inline bool fl_flow_known(const struct fl_vip *v, const struct fl_packet *p,
					  struct fl_way *w, __u32 now)
{
	struct fl_bucket *b;
	int slot;

	w->hash = fl_flow_hash(v, p);
	b = fl_flow_bucket(fl_flow_key(v, w->hash));
	if (!b)
		return false;
	slot = fl_flow_find(b, fl_flow_key(v, w->hash), now >> 10);
	return slot >= 0 && fl_way_to(w, v, slot);
}

#endif
