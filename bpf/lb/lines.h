/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The ways to servers, which packets and health checks go by: settings, constants
 * once loaded, and maps, whose sizes the daemon sets before it loads either. */
#ifndef FAIRLEAD_LB_LINES_H
#define FAIRLEAD_LB_LINES_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "balancer.h"

/* Outer source: address | (hash & mask). BE; a mask's one bits are the host
 * bits of the configured prefix. */
const volatile __u32 source4;
const volatile __u32 source4_mask;
const volatile __u64 source6[2];
const volatile __u64 source6_mask[2];
/* 1: there may be lines with FL_LINE_STEERED. */
const volatile __u32 steering;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fl_line);
} lines SEC(".maps");

/* By server line; one row where nothing is steered. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct fl_steer);
} steers SEC(".maps");

/* Forwarding and flags of a line's word mac_dst. */
#define FL_WORD_FORWARDING(word) ((__u8)((word) >> 48))
#define FL_WORD_FLAGS(word) ((__u8)((word) >> 56))

#endif
