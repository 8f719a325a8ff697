/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Maps, settings and counters of the host's programs. Map names are the
 * names of their pins. */
#ifndef FAIRLEAD_HOST_MAPS_H
#define FAIRLEAD_HOST_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "host.h"

/* Settings, fixed before load. */
const volatile __u64 netns_cookie = 0; /* sockops: sockets of this namespace only; 0: all */
const volatile __u32 jiffy_mult = 4;   /* ms = jiffies * mult >> shift */
const volatile __u32 jiffy_shift = 0;
/* 0, in the laboratory alone: what an attacker sends is not held off
 * (docs/security.md says which checks hang on this). */
const volatile __u32 guards = 1;
/* Copies of ICMP errors that others are asked about (faild), a second and CPU;
 * of one sender at most an eighth of that. */
const volatile __u32 ask_rate = 1000;
/* Not read: they make the object describe these enums and structs, for bpf2go. */
const volatile enum fl_host_reason reason_type = 0;
const volatile enum fl_scheme scheme_type = 0;
const volatile enum fl_host_vip_flags vip_flags_type = 0;
const volatile enum fl_peer_flags peer_flags_type = 0;
const volatile enum fl_host_constants constants_type = 0;
const volatile enum fl_offload_flags offload_flags_type = 0;
const volatile struct fl_host_ask *const volatile ask_type = 0;

/* Both halves of the VIP table: half h starts at h * FL_VIP_LINES. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * FL_VIP_LINES);
	__type(key, __u32);
	__type(value, struct fl_host_vip);
} host_vips SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	/* Mapped by user space, which changes one word at a time: an update of
	 * the whole could undo what a program has set (lookup). */
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fl_host_control);
} host_control SEC(".maps");

/* Constants of established connections. Goes away with the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fl_socket);
} host_sockets SEC(".maps");

/* TIME_WAIT connections that a packet of the other epoch asked for. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct fl_tuple);
	__type(value, __u8);
} old_epochs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FL_HOST_REASON_COUNT);
	__type(key, __u32);
	__type(value, struct fl_count);
} host_reasons SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FL_HOST_VIP_IDS);
	__type(key, __u32);
	__type(value, struct fl_host_count);
} host_vip_count SEC(".maps");

/* Addresses that the agent put on the loopback (user space's own note, here
 * because it must live exactly as long as the pins do). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FL_VIP_LINES);
	__uint(key_size, 16);
	__uint(value_size, 1);
} host_added SEC(".maps");

/* What else the agent changed in its network namespace, by what it was before
 * (kernel/host/notes.go; user space's own, as host_added is). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FL_VIP_LINES);
	__uint(key_size, 24);
	__uint(value_size, 8);
} host_notes SEC(".maps");

/* Connections that no full socket has: what of their cookie's value is not the
 * slot (FL_TOLD). Of the SYN a balancer says it, of later packets their own cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct fl_tuple);
	__type(value, __u32);
} host_told SEC(".maps");

/* ---- who owns a connection (schemes beamer and faild) ------------------- */

/* Servers of this server's VIPs, but itself. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, struct fl_host_peer_key);
	__type(value, struct fl_host_peer);
} host_peers SEC(".maps");

/* Addresses of these servers: what they pass on is accepted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__uint(key_size, 16);
	__uint(value_size, 1);
} host_senders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FL_HOST_SOURCES);
	__type(key, __u32);
	__type(value, struct fl_host_source);
} host_sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FL_HOST_VIP_IDS);
	__type(key, __u32);
	__type(value, struct fl_host_own);
} host_own SEC(".maps");

/* Flows of UDP whose datagrams were taken here: shared ms of the last one. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct fl_tuple);
	__type(value, __u32);
} host_flows SEC(".maps");

/* MAC of the interfaces (by index) that faild's packets leave by: bytes 0-5. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} host_nics SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} host_asks SEC(".maps");

/* ---- handshakes that the programs answer --------------------------------- */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fl_offload);
} host_offload SEC(".maps");

/* By VIP's id. The agent makes the entries. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FL_VIP_LINES);
	__type(key, __u32);
	__type(value, struct fl_offload_count);
} host_offloaded SEC(".maps");

/* Handshakes that were ended of late: opened.h. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FL_OPENED_BUCKETS);
	__type(key, __u32);
	__type(value, struct fl_opened);
} host_opened SEC(".maps");

static __always_inline struct fl_host_control *fl_host_settings(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&host_control, &zero);
}

/* The shared clock, cheaply: good to a tick. */
static __always_inline __u32 fl_shared_now(const struct fl_host_control *c)
{
	return (__u32)(bpf_jiffies64() * jiffy_mult >> jiffy_shift) + c->jiffies_base;
}

static __always_inline void fl_host_reason(__u32 reason, __u64 bytes)
{
	struct fl_count *c = bpf_map_lookup_elem(&host_reasons, &reason);

	if (c) {
		c->packets++;
		c->bytes += bytes;
	}
}

static __always_inline struct fl_host_count *fl_host_counted(__u32 vip_id, __u32 direction,
							     __u64 bytes)
{
	struct fl_host_count *c = bpf_map_lookup_elem(&host_vip_count, &vip_id);

	if (c) {
		c->packets[direction & 1]++;
		c->bytes[direction & 1] += bytes;
	}
	return c;
}

#endif
