/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The consistent hash of a VIP: a table whose rows user space computes, or
 * AnchorHash's buckets, walked here. Go's twin is chash (Table, AnchorTable). */
#ifndef FAIRLEAD_LB_PLACE_H
#define FAIRLEAD_LB_PLACE_H

#include "maps.h"
#include "packet.h"

#define FL_PLACE_NONE (FL_ROW_NONE | FL_ROW_NONE << 15)

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

/* One look-up. A bucket that was removed when n or more worked was no longer
 * there when the set had n: the one that took its place is looked at. Any
 * other removed bucket is one that the walk visits: it draws again, from the
 * buckets that were left when this one was removed. */
static long fl_anchor_step(__u64 i, struct fl_walk *w)
{
	__u32 at = w->at, index = w->table + at, *entry, a;
	__u64 x;

	entry = bpf_map_lookup_elem(&tables, &index);
	if (!entry)
		return 1;
	a = FL_ANCHOR_A(*entry);
	if (!a) {
		w->place = at | (w->held == FL_ROW_NONE ? at : w->held) << 15 | w->track << 31;
		return 1;
	}
	if (a >= w->n) {
		w->at = FL_ANCHOR_K(*entry);
		return 0;
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
	return 0;
}

/* The walk of a hash whose first bucket does not work. Buckets are slots, so
 * they are below FL_ROW_NONE; a walk that does not end in time places nowhere. */
__noinline __u32 fl_anchor_walk(const struct fl_vip *v, __u64 hash)
{
	struct fl_walk w = { .hash = hash, .n = 0x10000, .held = FL_ROW_NONE,
			     .place = FL_PLACE_NONE };

	if (!v)
		return FL_PLACE_NONE;
	w.table = v->hash_table;
	w.at = fl_scale(hash >> 32, v->hash_size);
	w.held_below = v->anchor_held;
	w.track_below = v->anchor_track;
	bpf_loop(FL_ANCHOR_STEPS, fl_anchor_step, &w, 0);
	return w.place;
}

/* Where the hash says, in the form of a row. */
static __always_inline __u32 fl_place(const struct fl_vip *v, __u64 hash)
{
	__u32 at = fl_scale(hash >> 32, v->hash_size), index = v->hash_table + at, *entry;

	if (unlikely(!v->hash_size))
		return FL_PLACE_NONE;
	entry = bpf_map_lookup_elem(&tables, &index);
	if (unlikely(!entry))
		return FL_PLACE_NONE;
	if (likely(v->hash_form == FL_HASH_TABLE))
		return *entry;
	if (likely(!FL_ANCHOR_A(*entry)))
		return at | at << 15;
	return fl_anchor_walk(v, hash);
}

#endif
