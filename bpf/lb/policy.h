/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 4: which server takes a new connection? All policies but hash,
 * which is the consistent hash (by_hash.h), choose an entry of the VIP's
 * table, which user space compiles from the active slots:
 *
 *   rr, wrr     the next entry; each CPU walks the table for itself
 *   p2c         two at random, the less loaded
 *   least-conn  two at random and the best seen so far, the least loaded
 *
 * Load is (open connections + 1) / weight, compared by cross multiplication:
 * counts are under 2^31 and weights under 2^16, so 64 bits suffice. */
#ifndef FAIRLEAD_LB_POLICY_H
#define FAIRLEAD_LB_POLICY_H

#include "way.h"

static __always_inline __u32 fl_entry_at(const struct fl_vip *v, __u32 at)
{
	__u32 index = v->new_table + at, *entry = bpf_map_lookup_elem(&tables, &index);

	return entry ? *entry : 0;
}

static __always_inline __u64 fl_load(const struct fl_vip *v, __u32 entry)
{
	__u32 index = v->first_line + FL_ENTRY_SLOT(entry);
	__s32 *open = bpf_map_lookup_elem(&conns, &index), n = open ? *open : 0;

	return n > 0 ? (__u64)n + 1 : 1;
}

/* A table entry that a policy considers. */
struct fl_choice {
	__u32 at;    /* in the VIP's table */
	__u32 entry;
	__u64 load;
};

static __always_inline struct fl_choice fl_consider(const struct fl_vip *v, __u32 at)
{
	struct fl_choice c = { .at = at, .entry = fl_entry_at(v, at) };

	c.load = fl_load(v, c.entry);
	return c;
}

/* The less loaded of a and b; a if they are equal. Without a branch: which one
 * it is cannot be predicted, and a wrong guess costs as much as a look-up. */
static __always_inline struct fl_choice fl_less(struct fl_choice a, struct fl_choice b)
{
	/* Negative where a is more loaded; both products are under 2^48. */
	__s64 less = b.load * FL_ENTRY_WEIGHT(a.entry) - a.load * FL_ENTRY_WEIGHT(b.entry);
	__u64 swap;

	/* Or the compiler negates the other load instead of subtracting. */
	asm volatile("" : "+r"(b.load));
	/* Known to be a difference, or a sign, it would become a branch again. */
	asm volatile("" : "+r"(less));
	swap = less >> 63;
	asm volatile("" : "+r"(swap));
	a.at ^= (a.at ^ b.at) & (__u32)swap;
	a.entry ^= (a.entry ^ b.entry) & (__u32)swap;
	a.load ^= (a.load ^ b.load) & swap;
	return a;
}

/* 64 random bits from a generator of our own: bpf_get_prandom_u32 costs 12 ns.
 * They are those that the connection before made ready, whose multiplies no
 * choice waits for. A permutation's cycle, which balancing needs no more than. */
static __always_inline __u64 fl_random(struct fl_vip_cpu *cpu)
{
	__u64 random = cpu->random, x;

	if (!random) /* each CPU starts elsewhere */
		random = (__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();
	x = random + 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93ULL;
	cpu->random = (x ^ x >> 32) * 0xd6e8feb86659fd93ULL;
	return random;
}

/* For policies other than hash. False: no server takes new connections. */
static __always_inline bool fl_policy_choose(const struct fl_vip *v, const struct fl_lb_packet *p,
					     struct fl_way *w)
{
	__u32 size = v->new_size, id = v->id, at, entry;
	struct fl_vip_cpu *cpu = bpf_map_lookup_elem(&vip_cpu, &id);
	struct fl_choice best;
	__u64 random;

	if (unlikely(!cpu)) /* user space gives no such id */
		return false;
	if (!size)
		return false;
	switch (v->policy) {
	case FL_POLICY_P2C:
		random = fl_random(cpu);
		best = fl_less(fl_consider(v, fl_scale(random >> 32, size)),
			       fl_consider(v, fl_scale((__u32)random, size)));
		entry = best.entry;
		break;
	case FL_POLICY_LEAST_CONN:
		random = fl_random(cpu);
		at = cpu->candidate;
		if (at >= size) /* the table has become smaller */
			at = 0;
		best = fl_less(fl_consider(v, at), fl_consider(v, fl_scale(random >> 32, size)));
		best = fl_less(best, fl_consider(v, fl_scale((__u32)random, size)));
		cpu->candidate = best.at;
		entry = best.entry;
		break;
	default: /* rr, wrr */
		at = cpu->next;
		if (at >= size)
			at = 0;
		cpu->next = at + 1;
		entry = fl_entry_at(v, at);
	}
	w->cpu = cpu;
	/* Only spreads the outer source: no secret, no hash. */
	w->hash = (p->saddr[1] ^ p->saddr[0] ^ ((__u64)p->sport << 16 | p->dport)) *
		  0x9e3779b97f4a7c15ULL;
	return fl_way_to(w, v, FL_ENTRY_SLOT(entry));
}

#endif
