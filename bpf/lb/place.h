/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The consistent hash of a VIP: a table whose rows user space computes, or
 * AnchorHash's buckets, walked here. Go's twin is chash (Table, AnchorTable). */
#ifndef FAIRLEAD_LB_PLACE_H
#define FAIRLEAD_LB_PLACE_H

#include "maps.h"
#include "packet.h"

#define FL_PLACE_NONE (FL_ROW_NONE | FL_ROW_NONE << 15)
#define FL_PLACE_LATER (~0u) /* no row: bit 30 of one is 0 */

/* Looks of a walk that are no call each. */
#define FL_ANCHOR_INLINE 4

struct fl_walk {
	__u64 hash;
	__u32 table;     /* first entry, */
	__u32 at;        /* bucket that is looked at next */
	__u32 held_below;
	__u32 track_below;
	__u32 n;         /* buckets of the set that at was drawn from */
	__u32 held;
	__u32 track;
	__u32 place;
};

/* One look-up; true: the walk is over. A bucket that was removed when n or
 * more worked was no longer there when the set had n: the one that took its
 * place is looked at. Any other removed bucket is one that the walk visits: it
 * draws again, from the buckets that were left when this one was removed. */
static __always_inline bool fl_anchor_look(struct fl_walk *w)
{
	__u32 at = w->at, index = w->table + at, *entry, a;
	__u64 x;

	entry = bpf_map_lookup_elem(&tables, &index);
	if (!entry)
		return true;
	a = FL_ANCHOR_A(*entry);
	if (!a) {
		w->place = at | (w->held == FL_ROW_NONE ? at : w->held) << 15 | w->track << 31;
		return true;
	}
	if (a >= w->n) {
		w->at = FL_ANCHOR_K(*entry);
		return false;
	}
	if (a < w->held_below && w->held == FL_ROW_NONE)
		w->held = at;
	if (a < w->track_below)
		w->track = 1;
	w->n = a;
	x = w->hash + (__u64)(at + 1) * 0x9e3779b97f4a7c15ULL;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ULL;
	w->at = fl_scale(x >> 32, a);
	return false;
}

static long fl_anchor_step(__u64 i, struct fl_walk *w)
{
	return fl_anchor_look(w);
}

/* The walk of a hash whose first bucket does not work. Buckets are slots, so
 * they are below FL_ROW_NONE; a walk that does not end in time places nowhere.
 * Most end at the second bucket or the third: these spare the loop's calls. */
__noinline __u32 fl_anchor_walk(const struct fl_vip *v, __u64 hash)
{
	struct fl_walk w = {
		.hash = hash, .n = 0x10000, .held = FL_ROW_NONE, .place = FL_PLACE_NONE
	};

	if (!v)
		return FL_PLACE_NONE;
	w.table = v->hash_table;
	w.at = fl_scale(hash >> 32, v->hash_size);
	w.held_below = v->anchor_held;
	w.track_below = v->anchor_track;
#pragma clang loop unroll(full)
	for (int i = 0; i < FL_ANCHOR_INLINE; i++)
		if (fl_anchor_look(&w))
			return w.place;
	bpf_loop(FL_ANCHOR_STEPS - FL_ANCHOR_INLINE, fl_anchor_step, &w, 0);
	return w.place;
}

/* Where the hash says, in the form of a row, if one look tells: else a row
 * that is tracked and has no slot. */
static __always_inline __u32 fl_place_at_once(const struct fl_vip *v, __u64 hash)
{
	__u32 at = fl_scale(hash >> 32, v->hash_size), index = v->hash_table + at, *entry;

	if (unlikely(!v->hash_size))
		return FL_PLACE_LATER;
	entry = bpf_map_lookup_elem(&tables, &index);
	if (unlikely(!entry))
		return FL_PLACE_LATER;
	if (likely(v->hash_form == FL_HASH_TABLE))
		return *entry;
	return likely(!FL_ANCHOR_A(*entry)) ? at | at << 15 : FL_PLACE_LATER;
}

/* Where the hash says, in the form of a row. */
static __always_inline __u32 fl_place(const struct fl_vip *v, __u64 hash)
{
	__u32 row = fl_place_at_once(v, hash);

	if (likely(row != FL_PLACE_LATER))
		return row;
	if (v->hash_form == FL_HASH_ANCHOR && v->hash_size)
		return fl_anchor_walk(v, hash);
	return FL_PLACE_NONE;
}

#endif
