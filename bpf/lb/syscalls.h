/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Programs that the daemon calls, and types for it; no packet meets them. */
#ifndef FAIRLEAD_LB_SYSCALLS_H
#define FAIRLEAD_LB_SYSCALLS_H

#include "maps.h"

struct fl_line_writer {
	struct fl_line_write *w;
};

static long line_write_cpu(__u64 cpu, struct fl_line_writer *c)
{
	struct fl_line_write *w = c->w;
	__u32 index = w->index;
	volatile struct fl_line *line = bpf_map_lookup_percpu_elem(&lines, &index, (__u32)cpu);
	bool goes = FL_WORD_FORWARDING(w->line.mac_dst) == FL_FWD_NONE;

	if (!line)
		return 1; /* no such CPU: all written */
	/* The forwarding is in mac_dst. A server that goes loses it first, one
	 * that comes gets it last: no packet sees a line half written. */
	if (goes)
		line->mac_dst = w->line.mac_dst;
	if (w->reset) {
		line->packets = 0;
		line->bytes = 0;
		line->opened = 0;
	}
	line->addr[0] = w->line.addr[0];
	line->addr[1] = w->line.addr[1];
	*(volatile __u64 *)&line->ifindex = *(__u64 *)&w->line.ifindex; /* and mtu */
	line->mac_src = w->line.mac_src;
	if (!goes) {
		asm volatile("" ::: "memory");
		line->mac_dst = w->line.mac_dst;
	}
	return 0;
}

/* 4096 is far above any machine's CPUs; the loop ends at the last one. */
SEC("syscall")
int line_write(struct fl_line_write *w)
{
	struct fl_line_writer c = { .w = w };

	bpf_loop(4096, line_write_cpu, &c, 0);
	return 0;
}

/* Context of clock: read at one moment, so that the daemon can tell HZ and
 * the difference of jiffies and CLOCK_MONOTONIC. */
struct fl_clock {
	__u64 jiffies;
	__u64 monotonic_ns;
};

SEC("syscall")
int clock(struct fl_clock *c)
{
	c->jiffies = bpf_jiffies64();
	c->monotonic_ns = bpf_ktime_get_ns();
	return 0;
}

/* Types that user space needs (bpf2go -type) and that no map or context has:
 * a variable puts them into the object's type information. */
const volatile struct fl_exported {
	struct fl_ask ask;
	enum fl_reason reason;
	enum fl_scheme scheme;
	enum fl_policy policy;
	enum fl_forwarding forwarding;
	enum fl_vip_flags flags;
} exported;

#endif
