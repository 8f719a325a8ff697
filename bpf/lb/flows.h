/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Fallback for what carries no cookie: the flow table, then the consistent
 * hash within the VIP.
 *
 *   h      = hash of the client's address and ports, keyed by hash_key
 *   x      = h + id of the VIP * golden ratio   (one table for all VIPs)
 *              + a TCP connection's ports * another odd number
 *   bucket = low 32 bits of x, scaled;  fingerprint = high 32 bits of x
 *   row    = high 32 bits of h, scaled to the consistent-hash table
 *
 * A VIP with affinity by address, or that takes fragments by addresses,
 * leaves the ports out of h, so that whole packets and fragments of a client
 * meet on one server. A TCP connection has an entry of its own even then: the
 * next connection of its client may belong on another server. */
#ifndef FAIRLEAD_LB_FLOWS_H
#define FAIRLEAD_LB_FLOWS_H

#include "scheme_cheetah.h"

static __always_inline __u64 fl_flow_hash(const struct fl_vip *v, const struct fl_packet *p)
{
	bool ports = likely(!(v->flags & (FL_VIP_AFFINITY | FL_VIP_FRAG_ADDRESSES))) &&
		     p->kind != FL_KIND_FRAGMENT;

	return fl_hash_key(v->hash_key, p, ports ? p->sport : 0, ports ? p->dport : 0);
}

static __always_inline __u64 fl_flow_key(const struct fl_vip *v, const struct fl_packet *p,
					 __u64 hash)
{
	__u64 x = hash + v->id * 0x9e3779b97f4a7c15ULL;

	if (p->proto == IPPROTO_TCP && p->kind != FL_KIND_FRAGMENT)
		x += ((__u64)p->sport << 16 | p->dport) * 0xd6e8feb86659fd93ULL;
	return x;
}

/* Searching a bucket branches much: a function of its own for the sake of the
 * verifier, which so walks it once. */
static __always_inline struct fl_bucket *fl_flow_bucket(__u64 x)
{
	__u32 index = fl_scale((__u32)x, flow_buckets);

	return bpf_map_lookup_elem(&flows, &index);
}

/* How long a flow is known after its last packet, in units of 1,024 ms. UDP:
 * two minutes (RFC 4787 §4.3); TCP: two hours and four minutes (RFC 5382 §5). */
#define FL_FLOW_IDLE_UDP 118
#define FL_FLOW_IDLE_TCP 7266

static __always_inline __u16 fl_flow_idle(const struct fl_packet *p)
{
	return p->proto == IPPROTO_TCP ? FL_FLOW_IDLE_TCP : FL_FLOW_IDLE_UDP;
}

/* Age of an entry, plus FL_FLOW_SLACK: the clock may be set back by as much,
 * and what was used "later" is not old. */
#define FL_FLOW_SLACK 64

static __always_inline __u16 fl_flow_age(__u64 entry, __u16 seconds)
{
	return seconds - (__u16)(entry >> 16) + FL_FLOW_SLACK;
}

/* The flow's slot, or -1 where it is not known (any more). Renews its time. */
__noinline int fl_flow_find(__u64 x, __u16 seconds, __u16 idle)
{
	struct fl_bucket *b = fl_flow_bucket(x);

	if (!b)
		return -1;
	for (int i = 0; i < 8; i++) {
		__u64 e = *(volatile __u64 *)&b->entry[i];

		if (e >> 32 != x >> 32 || !(e & 0xffff))
			continue;
		if (fl_flow_age(e, seconds) > idle + FL_FLOW_SLACK)
			return -1;
		if ((__u16)(e >> 16) != seconds)
			b->entry[i] = (e & 0xffffffff0000ffffULL) | (__u64)seconds << 16;
		return (int)(e & 0xffff) - 1;
	}
	return -1;
}

/* Remembers the flow, in place of itself or of the oldest of its bucket. Two CPUs may race
 * for one entry: one of the flows is then not remembered, which is what a
 * full bucket does too. */
__noinline int fl_flow_insert(__u64 x, __u32 slot, __u16 seconds)
{
	struct fl_bucket *b = fl_flow_bucket(x);
	__u32 oldest = 0, age = 0;

	if (!b)
		return -1;
	for (__u32 i = 0; i < 8; i++) {
		__u64 e = *(volatile __u64 *)&b->entry[i];
		/* An empty entry is older than any; the flow's own goes first. */
		__u32 a = e & 0xffff ? fl_flow_age(e, seconds) : 0x10000;

		if (e & 0xffff && e >> 32 == x >> 32)
			a = 0x20000;

		if (a > age) {
			age = a;
			oldest = i;
		}
	}
	b->entry[oldest & 7] = x >> 32 << 32 | (__u64)seconds << 16 | (slot + 1);
	return 0;
}

/* Server of the consistent-hash table. */
static __always_inline bool fl_row(const struct fl_vip *v, struct fl_way *w, __u32 *slot)
{
	__u32 row = v->hash_table + fl_scale(w->hash >> 32, v->hash_size), *entry;

	if (unlikely(!v->hash_size))
		return false;
	entry = bpf_map_lookup_elem(&tables, &row);
	if (unlikely(!entry))
		return false;
	*slot = FL_ENTRY_SLOT(*entry);
	return fl_way_to(w, v, *slot);
}

#endif
