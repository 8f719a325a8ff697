/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Seats: what a balancer of scheme cheetah-stateful knows of each connection.
 * bpf/include/balancer.h draws them; Go's twin is scheme/seats, which the daemon
 * sweeps with.
 *
 *   SYN             takes a free seat of its partition: NEW
 *   its cookie      makes it LIVE, and each packet is counted
 *   FIN, RST        CLOSING: the seat is free, but what stands there is right for as
 *                   long as nobody takes it
 *   data long after that  takes it back
 *
 * Nothing here decides where a plain packet goes: its cookie has the slot. So what
 * finds no seat, or another's, goes on without. Only what the daemon has moved
 * (`fairlead connections move`) goes where its seat says. */
#ifndef FAIRLEAD_LB_SEATS_H
#define FAIRLEAD_LB_SEATS_H

#include "rates.h"
#include "tell.h"
#include "way.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct fl_seat);
} seats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} seats_taken SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct fl_seat_about);
} seats_about SEC(".maps");

/* Tries of what another CPU may change meanwhile. */
#define FL_SEAT_TRIES 4
/* Words of bits that a partition has at most. */
#define FL_SEAT_WORDS 16
/* Clocks may differ, and go back, by so many units. */
#define FL_SEAT_SLACK 64

static __always_inline __u32 fl_seat_first(__u64 hash, __u32 bits)
{
	return fl_scale((__u32)hash, seat_count >> (bits & 15)) << (bits & 15);
}

static __always_inline struct fl_seat *fl_seat_at(__u32 index)
{
	return bpf_map_lookup_elem(&seats, &index);
}

static __always_inline __u32 fl_seat_unit(__u32 now)
{
	return now >> 10 & 0xffff;
}

/* Units since the entry's, of which as many as the slack may be in the future. */
static __always_inline __u32 fl_seat_age(__u64 word, __u32 unit)
{
	__u16 age = unit - FL_SEAT_UNIT(word) + FL_SEAT_SLACK;

	return age < FL_SEAT_SLACK ? 0 : age - FL_SEAT_SLACK;
}

static __always_inline void fl_seat_free(__u32 index)
{
	__u32 at = index >> 6;
	__u64 *word = bpf_map_lookup_elem(&seats_taken, &at);

	if (word)
		__sync_fetch_and_and(word, ~(1ULL << (index & 63)));
}

/* Whether the bit was clear, and so the seat is ours. */
static __always_inline bool fl_seat_claim(__u32 index)
{
	__u32 at = index >> 6;
	__u64 *word = bpf_map_lookup_elem(&seats_taken, &at), bit = 1ULL << (index & 63);

	return word && !(__sync_fetch_and_or(word, bit) & bit);
}

/* ---- a known packet ------------------------------------------------------- */

static __always_inline bool fl_seat_swap(struct fl_seat *s, __u64 from, __u64 to)
{
	return __sync_val_compare_and_swap(&s->word, from, to) == from;
}

/* What the packet makes of its connection's entry. True: done, or there is
 * nothing to do; false: it has changed meanwhile. */
static __always_inline bool fl_seat_change(struct fl_seat *s, __u32 index, __u64 e, __u32 slot,
					   __u32 unit, bool closes)
{
	__u32 state = FL_SEAT_STATE(e);
	__u64 next = (e & 0xffffffff00000000ULL) | (__u64)unit << 16 |
		     (FL_SEAT_MOVED(e) ? e & 0x4fff : slot);

	if (state != FL_SEAT_CLOSING) {
		if (!closes)
			return fl_seat_swap(s, e, next | FL_SEAT_LIVE << 12);
		if (!fl_seat_swap(s, e, next | FL_SEAT_CLOSING << 12))
			return false;
		fl_seat_free(index);
		return true;
	}
	if (closes || fl_seat_age(e, unit) < FL_SEAT_REVIVE)
		return true;
	/* Somebody else's now, or about to be. */
	if (!fl_seat_claim(index))
		return true;
	if (!fl_seat_swap(s, e, next | FL_SEAT_LIVE << 12))
		fl_seat_free(index); /* somebody had it in between */
	return true;
}

static __always_inline bool fl_seat_is(__u64 word, __u64 hash)
{
	return word >> 32 == hash >> 32 && FL_SEAT_STATE(word) != FL_SEAT_NONE;
}

/* The connection's entry, at *index; NULL: its seat is not its own. One that was
 * opened while keys were exchanged may have the other epoch's hash. */
static __always_inline struct fl_seat *fl_seat_find(const struct fl_vip *v,
						    const struct fl_lb_packet *p, __u64 *hash,
						    __u32 seat, __u32 *index)
{
	__u32 bits = FL_VIP_SEAT_BITS(v);
	struct fl_seat *s;

	*index = fl_seat_first(*hash, bits) + seat;
	s = fl_seat_at(*index);
	if (s && fl_seat_is(*(volatile __u64 *)&s->word, *hash))
		return s;
	if (v->epochs != 3)
		return NULL;
	*hash = fl_hash_key(v->key[v->open_epoch & 1], p, p->sport, p->dport);
	*index = fl_seat_first(*hash, bits) + seat;
	s = fl_seat_at(*index);
	return s && fl_seat_is(*(volatile __u64 *)&s->word, *hash) ? s : NULL;
}

/* A known packet that is not one of a live connection in the middle of it, or of one
 * that was moved: then the slot to which, and 1; else 0. */
__noinline int fl_seat_touch(const struct fl_vip *v, const struct fl_lb_packet *p, __u64 hash,
			     __u32 value, __u32 unit)
{
	struct fl_vip_cpu *cpu;
	struct fl_seat *s;
	__u32 seat, slot, index, id;
	__u64 word;

	if (!v || !p)
		return 0;
	seat = fl_value_seat(value, FL_VIP_SEAT_BITS(v));
	slot = fl_value_slot(value, FL_VIP_SEAT_BITS(v));
	if (!seat)
		return 0; /* its partition was full */
	s = fl_seat_find(v, p, &hash, seat, &index);
	if (!s) {
		id = v->id;
		cpu = bpf_map_lookup_elem(&vip_cpu, &id);
		if (cpu)
			cpu->seat_wrong++;
		return 0;
	}
	for (int i = 0; i < FL_SEAT_TRIES; i++) {
		__u64 e = *(volatile __u64 *)&s->word;

		if (!fl_seat_is(e, hash) ||
		    fl_seat_change(s, index, e, slot & 0xfff, unit & 0xffff, p->closes))
			break;
	}
	__sync_fetch_and_add(&s->count, FL_SEAT_ONE | p->len);
	word = *(volatile __u64 *)&s->word;
	return fl_seat_is(word, hash) && FL_SEAT_MOVED(word) ? 1 + FL_SEAT_SLOT(word) : 0;
}

/* Whether a known packet is over the limit of its connection. Then it counts nowhere, and
 * changes nothing. What has no seat has no limit. */
__noinline int fl_seat_rated(const struct fl_vip *v, const struct fl_lb_packet *p, __u64 hash,
			     __u32 value, __u32 now)
{
	struct fl_seat_about *about;
	struct fl_vip_cpu *cpu;
	struct fl_rates *r;
	__u32 seat, index, id;

	if (!v || !p)
		return 0;
	seat = fl_value_seat(value, FL_VIP_SEAT_BITS(v));
	r = fl_rates_of(v);
	if (!seat || !r || !fl_seat_find(v, p, &hash, seat, &index))
		return 0;
	about = bpf_map_lookup_elem(&seats_about, &index);
	if (!about || fl_rate_take(&about->due, r->connection, (__u64)now << 32))
		return 0;
	id = v->id;
	cpu = bpf_map_lookup_elem(&vip_cpu, &id);
	if (cpu)
		cpu->rated++;
	return 1;
}

/* Counts a known packet at its connection's seat. One atomic operation, and nothing
 * waits for what it reads. Returns what fl_seat_touch does. */
static __always_inline __u32 fl_seat_seen(const struct fl_vip *v, const struct fl_lb_packet *p,
					  const struct fl_way *w, __u32 value, __u32 now)
{
	__u32 bits = FL_VIP_SEAT_BITS(v), unit = fl_seat_unit(now);
	struct fl_seat *s = fl_seat_at(fl_seat_first(w->hash, bits) + fl_value_seat(value, bits));
	__u64 e, live = w->hash >> 32 << 32 | FL_SEAT_LIVE << 12 | fl_value_slot(value, bits);

	if (likely(s && !p->closes)) {
		e = *(volatile __u64 *)&s->word;
		if (likely(FL_SEAT_SAME(e) == live)) {
			if (unlikely(FL_SEAT_UNIT(e) != unit))
				*(volatile __u16 *)((void *)s + 2) = unit;
			__sync_fetch_and_add(&s->count, FL_SEAT_ONE | p->len);
			return 0;
		}
	}
	return fl_seat_touch(v, p, w->hash, value, unit);
}

/* ---- a new connection ----------------------------------------------------- */

/* Number of m's lowest bit; m is not 0. There is no instruction that counts zeros:
 * 64 products of a de Bruijn sequence have different top bits. */
static const __u8 fl_bit_numbers[64] = {
	0,  1,  48, 2,  57, 49, 28, 3,  61, 58, 50, 42, 38, 29, 17, 4,  62, 55, 59, 36, 53, 51,
	43, 22, 45, 39, 33, 30, 24, 18, 12, 5,  63, 47, 56, 27, 60, 41, 37, 16, 54, 35, 52, 21,
	44, 32, 23, 11, 46, 26, 40, 15, 34, 20, 31, 10, 25, 14, 19, 9,  13, 8,  7,  6,
};

static __always_inline __u32 fl_lowest_bit(__u64 m)
{
	return fl_bit_numbers[((m & -m) * 0x03f79d71b4cb0a89ULL) >> 58];
}

/* Takes a free seat of those in word `at` of the bits that are usable, the first from
 * bit `turn` on. Returns it, or 64: there is none, or another CPU was faster. A
 * function so that the verifier walks it once. */
__noinline __u32 fl_seat_pick(__u32 at, __u64 usable, __u32 turn)
{
	__u64 *word = bpf_map_lookup_elem(&seats_taken, &at), free, later;
	__u32 bit;

	if (!word)
		return 64;
	free = ~*(volatile __u64 *)word & usable;
	if (!free)
		return 64;
	later = free & ~0ULL << (turn & 63);
	bit = fl_lowest_bit(later ? later : free) & 63;
	return __sync_fetch_and_or(word, 1ULL << bit) >> bit & 1 ? 64 : bit;
}

/* Takes a free seat of the partition that begins at first, from where the hash
 * says on. Returns its number within it, or 0: there is none. */
static __always_inline __u32 fl_seat_search(__u32 first, __u32 bits, __u64 hash)
{
	__u32 last = bits > 6 ? (1u << (bits - 6)) - 1 : 0, turn = hash >> 40;
	__u64 mine = bits < 6 ? ((1ULL << (1u << bits)) - 1) << (first & 63) : ~0ULL;

	for (__u32 i = 0; i < FL_SEAT_WORDS + 1 && i <= last + 1; i++) {
		__u32 at = (first >> 6) + ((turn + i) & last), bit;
		/* Seat 0 is none. */
		__u64 usable = at == first >> 6 ? mine & ~(1ULL << (first & 63)) : mine;

		bit = fl_seat_pick(at, usable, hash >> 34);
		if (bit < 64)
			return (at << 6) + bit - first;
	}
	return 0;
}

/* Whether the seat was made by a SYN that nothing has followed in time, or whose
 * connection is over: then it becomes this one's. */
static __always_inline bool fl_seat_evict(__u32 index, __u64 word, __u32 unit)
{
	struct fl_seat *s = fl_seat_at(index);
	__u64 e;

	if (!s)
		return false;
	e = *(volatile __u64 *)&s->word;
	return FL_SEAT_STATE(e) == FL_SEAT_NEW && fl_seat_age(e, unit) >= FL_SEAT_HURRY &&
	       fl_seat_swap(s, e, word);
}

/* Gives the connection that p opens a seat. Returns its number, 0: none. */
static __always_inline __u32 fl_seat_take(const struct fl_vip *v, const struct fl_lb_packet *p,
					  __u32 now)
{
	__u32 bits, first, seat, index, id, unit = fl_seat_unit(now);
	struct fl_seat_about *about;
	struct fl_vip_cpu *cpu;
	struct fl_seat *s;
	__u64 hash, word;

	bits = FL_VIP_SEAT_BITS(v);
	hash = fl_hash_key(v->key[v->open_epoch & 1], p, p->sport, p->dport);
	/* Its cookie is going to say which slot. */
	word = hash >> 32 << 32 | unit << 16 | FL_SEAT_NEW << 12 | FL_SEAT_ANY;
	first = fl_seat_first(hash, bits);
	id = v->id;
	cpu = bpf_map_lookup_elem(&vip_cpu, &id);
	if (!cpu)
		return 0;
	seat = fl_seat_search(first, bits, hash);
	if (!seat) {
		/* One that is looked at has to do: a flood's are nearly all. */
		seat = hash >> 36 & ((1u << bits) - 1);
		if (!seat || !fl_seat_evict(first + seat, word, unit)) {
			cpu->seat_full++;
			return 0;
		}
	}
	cpu->seated++;
	index = first + seat;
	s = fl_seat_at(index);
	about = bpf_map_lookup_elem(&seats_about, &index);
	if (!s || !about)
		return 0;
	about->addr[0] = p->saddr[0];
	about->addr[1] = p->saddr[1];
	about->vip_id = id;
	about->sport = p->sport;
	about->dport = p->dport;
	about->opened_ms = now;
	about->home = 0;
	about->packets = 0;
	about->bytes = 0;
	about->due = (__u64)now << 32;
	*(volatile __u64 *)&s->count = FL_SEAT_ONE | p->len;
	*(volatile __u64 *)&s->word = word;
	return seat;
}

/* A SYN: gives its connection a seat, and has its server told of it, and of the tier. */
__noinline int fl_seat_open(struct xdp_md *ctx, const struct fl_vip *v,
			    const struct fl_lb_packet *p, __u32 now)
{
	__u32 told, tiers;

	if (!v || !p || v->tier == FL_TIER_ONE) /* tier two tells */
		return 0;
	told = FL_VIP_SEAT_BITS(v) ? fl_seat_take(v, p, now) : 0;
	tiers = FL_VIP_TIER_BITS(v);
	if (tiers)
		told |= FL_TOLD | (__u32)v->tier << ((31 - v->shift - tiers) & 15);
	return fl_tell(ctx, p->l4, told ? FL_TOLD | told : 0);
}

#endif
