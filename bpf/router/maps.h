/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The router's maps and settings. Sizes given as 1 here are set by the daemon
 * before the program is loaded. */
#ifndef FAIRLEAD_ROUTER_MAPS_H
#define FAIRLEAD_ROUTER_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "router.h"

/* ---- settings: constants once loaded -------------------------------------- */

/* The fabric's selector, and this router's own hash. */
const volatile struct fl_pathsel selector;
const volatile __u64 seed[2];

/* ---- what the daemon fills -------------------------------------------------- */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct fl_input_key);
	__type(value, __u64);
} inputs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct fl_route4);
	__type(value, __u32);
} routes4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct fl_route6);
	__type(value, __u32);
} routes6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fl_router_group);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct fl_hop);
} hops SEC(".maps");

/* ---- what packets leave behind ---------------------------------------------- */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fl_hop_count);
} hop_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FL_ROUTER_REASON_COUNT);
	__type(key, __u32);
	__type(value, struct fl_router_count);
} reasons SEC(".maps");

/* Types that user space needs (bpf2go -type) and that no map has: a variable
 * puts them into the object's type information. */
const volatile struct fl_exported {
	enum fl_router_reason reason;
	enum fl_route_kind kind;
	enum fl_input_flags input;
	enum fl_hop_flags hop;
	enum fl_how how;
	enum fl_router_constants constants;
} exported;

#endif
