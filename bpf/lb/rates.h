/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Limits of packets and of new connections a second, by connection (its seat) and by
 * source prefix, of VIPs that ask for them (fl_vip.rates). Go's twin is scheme/rates.
 *
 * A bucket is one word: when it will be full again. Each packet that it lets through
 * makes that later by the packet's step (1 s / limit), and none is let through that would
 * find it a second away: so a second's worth at once, and the limit from then on. CPUs
 * share a bucket by one atomic addition; as many packets as there are CPUs may pass too
 * many. A bucket that is full says nothing, so that of sources only those are kept that
 * have sent within the last second: full ones give way first, then those that are full
 * soonest. */
#ifndef FAIRLEAD_LB_RATES_H
#define FAIRLEAD_LB_RATES_H

#include "maps.h"
#include "siphash.h"
#include "way.h"

/* By fl_vip.id. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FL_VIP_LINES);
	__type(key, __u32);
	__type(value, struct fl_rates);
} rates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fl_rate_set);
} rate_sources SEC(".maps");

#define FL_RATE_SECOND (1000ULL << 32)
/* No bucket is full later than this: one that says so was written by another clock. */
#define FL_RATE_NEVER (8000ULL << 32)
#define FL_RATE_TRIES 2

/* Whether the bucket is not full yet at the time `at`. */
static __always_inline bool fl_rate_fills(__u64 due, __u64 at)
{
	return due - at < FL_RATE_NEVER;
}

/* Takes from a bucket. False: there is not enough in it. */
static __always_inline bool fl_rate_take(__u64 *due, __u64 step, __u64 at)
{
	__u64 was = *(volatile __u64 *)due;

	if (!fl_rate_fills(was, at)) {
		if (__sync_val_compare_and_swap(due, was, at + step) == was)
			return true;
	} else if (was - at >= FL_RATE_SECOND) {
		return false;
	}
	__sync_fetch_and_add(due, step);
	return true;
}

static __always_inline struct fl_rates *fl_rates_of(const struct fl_vip *v)
{
	__u32 id = v->id;

	return bpf_map_lookup_elem(&rates, &id);
}

/* Takes from the bucket of key in its set. `lost` counts what was forgotten that
 * was not full. */
static __always_inline bool fl_rate_key(struct fl_rate_set *set, __u64 key, __u64 step, __u64 at,
					__u64 *lost)
{
	for (int try = 0; try < FL_RATE_TRIES; try++) {
		__u32 first = 0;
		__u64 least = ~0ULL, old;
		struct fl_rate_entry *e;

		for (__u32 i = 0; i < FL_RATE_WAYS; i++) {
			__u64 due;

			e = &set->entry[i];
			if (*(volatile __u64 *)&e->key == key)
				return fl_rate_take(&e->due, step, at);
			due = *(volatile __u64 *)&e->due;
			due = fl_rate_fills(due, at) ? due - at : 0;
			if (due < least) {
				least = due;
				first = i;
			}
		}
		e = &set->entry[first & (FL_RATE_WAYS - 1)];
		old = *(volatile __u64 *)&e->key;
		if (__sync_val_compare_and_swap(&e->key, old, key) != old)
			continue;
		if (!least)
			return fl_rate_take(&e->due, step, at);
		*(volatile __u64 *)&e->due = at + step;
		++*lost;
		return true;
	}
	return true; /* other CPUs were faster: it is one packet */
}

/* Takes from the bucket of the packet's source prefix, of this kind (enum
 * fl_vip_rates). */
static __always_inline bool fl_rate_source(const struct fl_vip *v, const struct fl_lb_packet *p,
					   const struct fl_rates *r, __u32 kind, __u64 step,
					   __u64 at, __u64 *lost)
{
	__u64 drawn[2] = { ask_key[0], ask_key[1] }, first = 0, second, key;
	struct fl_rate_set *set;
	__u32 index;

	if (p->family == 4) {
		second = p->saddr[1] & r->mask4;
	} else {
		first = p->saddr[0] & r->mask6[0];
		second = p->saddr[1] & r->mask6[1];
	}
	key = fl_hash6(drawn, first, second, v->id, kind) | 1;
	index = fl_scale(key >> 32, rate_sets);
	set = bpf_map_lookup_elem(&rate_sources, &index);
	return !set || fl_rate_key(set, key, step, at, lost);
}

/* Which limit of what its source sends the packet is over (enum fl_vip_rates), or 0. */
__noinline int fl_rated(const struct fl_vip *v, const struct fl_lb_packet *p, __u32 now)
{
	__u64 at = (__u64)now << 32, lost = 0;
	struct fl_vip_cpu *cpu;
	int over = 0;
	struct fl_rates *r;
	__u32 id;

	if (!v || !p)
		return 0;
	r = fl_rates_of(v);
	if (!r)
		return 0;
	if (v->rates & FL_RATE_PACKETS &&
	    !fl_rate_source(v, p, r, FL_RATE_PACKETS, r->packets, at, &lost))
		over = FL_RATE_PACKETS;
	else if (v->rates & FL_RATE_OPENS && p->opens &&
		 !fl_rate_source(v, p, r, FL_RATE_OPENS, r->opens, at, &lost))
		over = FL_RATE_OPENS;
	if (over || lost) {
		id = v->id;
		cpu = bpf_map_lookup_elem(&vip_cpu, &id);
		if (cpu) {
			cpu->rated += !!over;
			cpu->rate_lost += lost;
		}
	}
	return over;
}

/* A reason to drop the packet for that, or FL_CONTINUE: constants, since the verifier
 * takes it that a function may return any. */
static __always_inline int fl_rate(const struct fl_vip *v, const struct fl_lb_packet *p, __u32 now)
{
	switch (fl_rated(v, p, now)) {
	case FL_RATE_PACKETS:
		return FL_DROP_RATE_SOURCE;
	case FL_RATE_OPENS:
		return FL_DROP_RATE_NEW;
	}
	return FL_CONTINUE;
}

#endif
