/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The balancer's maps and settings. Sizes given as 1 here are set by the
 * daemon before the program is loaded (config.Limits). */
#ifndef FAIRLEAD_LB_MAPS_H
#define FAIRLEAD_LB_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "lines.h"

/* ---- settings: constants once loaded ----------------------------------- */

/* shared ms = (jiffies * jiffy_mult >> jiffy_shift) + control.clock_base */
const volatile __u64 jiffy_mult = 1;
const volatile __u32 jiffy_shift;
/* UDP checksum of GUE over IPv6: 0 sends zero (RFC 6935). */
const volatile __u32 gue6_checksum;
/* 0, in the laboratory alone: what an attacker sends is not held off
 * (docs/security.md says which checks hang on this). */
const volatile __u32 guards = 1;
/* Of the hash that gives a sender of ICMP errors its bound, and a source its bucket:
 * drawn whenever the program is loaded, for they fill up within a second. */
const volatile __u64 ask_key[2];
/* Sets of `flows`. */
const volatile __u32 flow_sets = 1;
/* Seats of each of `seats` and `seats_about`: whole partitions. */
const volatile __u32 seat_count = 1;
/* Sets of `rate_sources`. */
const volatile __u32 rate_sets = 1;

/* ---- shared configuration, two halves ----------------------------------- */

/* A global array: an element's address is a constant plus an offset, so that
 * a look-up is neither a call nor a null check. */
struct fl_vip vips[2][FL_VIP_LINES] SEC(".data.vips");
struct fl_control control SEC(".data.control");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} tables SEC(".maps");

/* ---- which frames are ours ---------------------------------------------- */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct fl_input);
	__type(value, __u32); /* nothing */
} inputs SEC(".maps");

struct fl_input input_cache[1 << FL_INPUT_BITS] SEC(".data.input_cache");

/* ---- what packets leave behind ------------------------------------------ */

/* Open connections by server line. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __s32);
} conns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FL_VIP_LINES);
	__type(key, __u32);
	__type(value, struct fl_vip_cpu);
} vip_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fl_flow_set);
} flows SEC(".maps");

/* Flows to tell the other balancers. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} shared SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FL_REASON_COUNT);
	__type(key, __u32);
	__type(value, struct fl_count);
} reasons SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} asks SEC(".maps");

/* Token bucket of `asks`: by CPU, [0] for RSTs, [1] for ICMP. */
struct fl_bound {
	__u32 tokens; /* thousandths */
	__u32 last_ms;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct fl_bound);
} ask_bound SEC(".maps");

/* The same by source of ICMP errors: sources whose hashes meet share one. */
#define FL_ASK_SOURCE_BITS 10
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1 << FL_ASK_SOURCE_BITS);
	__type(key, __u32);
	__type(value, struct fl_bound);
} ask_sources SEC(".maps");

/* ---- small things that every stage uses --------------------------------- */

static __always_inline __u32 fl_now_ms(__u32 clock_base)
{
	return (__u32)(bpf_jiffies64() * jiffy_mult >> jiffy_shift) + clock_base;
}

static __always_inline struct fl_line *fl_line_at(__u32 index)
{
	return bpf_map_lookup_elem(&lines, &index);
}

static __always_inline void fl_count_reason(__u32 reason, __u32 bytes)
{
	struct fl_count *c = bpf_map_lookup_elem(&reasons, &reason);

	if (__builtin_expect(!!c, 1)) {
		c->packets++;
		c->bytes += bytes;
	}
}

/* Scales 32 random bits to 0..size-1 without a division. */
static __always_inline __u32 fl_scale(__u32 random, __u32 size)
{
	return (__u64)random * size >> 32;
}

#endif
