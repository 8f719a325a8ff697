/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A cuckoo hash table (Pagh and Rodler; four entries a bucket), one of each core's own,
 * as the balancers have that Cheetah's paper compares with: no locks, no atomic
 * operations. Two hashes name two buckets, an entry is in one of them. Where both
 * are full, one gives way to its other bucket, and so on, for CUCKOO_MOVES at most:
 * what has no place then is forgotten. A bucket is a cache line. Go's twin is in
 * bench/cuckoo_test.go. */
#ifndef FAIRLEAD_BENCH_CUCKOO_H
#define FAIRLEAD_BENCH_CUCKOO_H

#include "floor.h"

#define CUCKOO_WAYS 4
#define CUCKOO_MOVES 32

struct cuckoo_entry {
	__u32 saddr;
	__u32 daddr;
	__u32 ports;
	__u32 server; /* + 1; 0: the place is free */
};

struct cuckoo_bucket {
	struct cuckoo_entry entry[CUCKOO_WAYS];
};

/* The tables of all cores one after the other. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct cuckoo_bucket);
} cuckoo SEC(".maps");

/* Buckets of a core's table, and the first core that has one. */
const volatile __u32 cuckoo_buckets = 1;
const volatile __u32 cuckoo_cpu;

/* An entry's two buckets. */
struct cuckoo_places {
	__u32 one;
	__u32 two;
};

/* Two words of one mixing, as in Jenkins' hashlittle2. */
static __always_inline struct cuckoo_places cuckoo_places_of(const struct cuckoo_entry *e)
{
	__u32 a = e->saddr + 0xdeadbeef, b = e->daddr + 0xdeadbeef, c = e->ports + 0xdeadbeef;
	struct cuckoo_places at;

	floor_mix(&a, &b, &c);
	at.one = (__u64)c * cuckoo_buckets >> 32;
	at.two = (__u64)b * cuckoo_buckets >> 32;
	return at;
}

static __always_inline struct cuckoo_bucket *cuckoo_bucket_at(__u32 bucket)
{
	__u32 index = (bpf_get_smp_processor_id() - cuckoo_cpu) * cuckoo_buckets + bucket;

	return bpf_map_lookup_elem(&cuckoo, &index);
}

static __always_inline bool cuckoo_is(const struct cuckoo_entry *a, const struct cuckoo_entry *b)
{
	return a->saddr == b->saddr && a->ports == b->ports && a->daddr == b->daddr && a->server;
}

static __always_inline struct cuckoo_entry *cuckoo_find_in(const struct cuckoo_entry *e,
							   __u32 bucket)
{
	struct cuckoo_bucket *b = cuckoo_bucket_at(bucket);

	if (!b)
		return NULL;
#pragma clang loop unroll(full)
	for (int i = 0; i < CUCKOO_WAYS; i++)
		if (cuckoo_is(&b->entry[i], e))
			return &b->entry[i];
	return NULL;
}

static __always_inline struct cuckoo_entry *cuckoo_find(const struct cuckoo_entry *e,
							const struct cuckoo_places *at)
{
	struct cuckoo_entry *found = cuckoo_find_in(e, at->one);

	return found ? found : cuckoo_find_in(e, at->two);
}

/* Puts e where the bucket has a place. */
static __always_inline bool cuckoo_put(const struct cuckoo_entry *e, struct cuckoo_bucket *b)
{
#pragma clang loop unroll(full)
	for (int i = 0; i < CUCKOO_WAYS; i++) {
		if (!b->entry[i].server) {
			b->entry[i] = *e;
			return true;
		}
	}
	return false;
}

/* Makes an entry, of which there is none yet. Returns how many others it moved;
 * CUCKOO_MOVES: the last of these has lost its place. */
__noinline __u32 cuckoo_make(const struct cuckoo_entry *entry)
{
	struct cuckoo_entry e, out;
	struct cuckoo_places at;
	struct cuckoo_bucket *b;
	__u32 bucket, random;

	if (!entry)
		return CUCKOO_MOVES;
	e = *entry;
	at = cuckoo_places_of(&e);
	b = cuckoo_bucket_at(at.one);
	if (!b || cuckoo_put(&e, b))
		return 0;
	bucket = at.two;
	random = e.saddr ^ e.ports;
	for (__u32 moved = 0; moved < CUCKOO_MOVES; moved++) {
		struct cuckoo_entry *way;

		b = cuckoo_bucket_at(bucket);
		if (!b || cuckoo_put(&e, b))
			return moved;
		random = random * 0x915f77f5 + 1;
		way = &b->entry[random >> 30];
		out = *way;
		*way = e;
		e = out;
		at = cuckoo_places_of(&e);
		bucket = bucket == at.one ? at.two : at.one;
	}
	return CUCKOO_MOVES;
}

#endif
