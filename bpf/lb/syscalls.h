/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Programs that the daemon calls, and types for it; no packet meets them. */
#ifndef FAIRLEAD_LB_SYSCALLS_H
#define FAIRLEAD_LB_SYSCALLS_H

#include "flows.h"
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

/* Why the loop is unrolled: a context may be read at fixed offsets only. */
SEC("syscall")
int flow_write(struct fl_flow_write *w)
{
	__u32 unit = fl_now_ms(*(volatile __u32 *)&control.clock_base) >> 10 & 0xffff, taken = 0;

#pragma clang loop unroll(full)
	for (__u32 i = 0; i < FL_FLOW_WRITES; i++) {
		struct fl_shared *r = &w->record[i];

		if (i >= w->count)
			break;
		if (!fl_flow_told(r->x, unit << 16 | (r->state & 3) << 14 | (r->slot & 0x3fff)))
			taken++;
	}
	w->taken = taken;
	return 0;
}

struct fl_sweeper {
	__u32 first;
	__u32 used;
	__u32 confirmed;
	__u32 expired;
	__u16 unit;
};

/* Clears the entry of a flow that is over. Its tag goes first: who finds no
 * tag does not follow the entry. If another flow took it in between, the entry
 * has changed; where that one found its tag there already, it is put back. If
 * another CPU changes a tag of the set meanwhile, the next sweep clears. */
static __always_inline bool fl_flow_clear(struct fl_flow_set *b, __u64 tags, __u32 at, __u64 e)
{
	__u64 mask = 0xffULL << 8 * at, *all = (__u64 *)b->tag;

	if (__sync_val_compare_and_swap(all, tags, tags & ~mask) != tags)
		return false;
	if (__sync_val_compare_and_swap(&b->entry[at], e, 0) == e)
		return true;
	fl_flow_retag(b, at, tags >> 8 * at & 0xff);
	return false;
}

static long fl_sweep_set(__u64 i, struct fl_sweeper *s)
{
	__u32 index = s->first + i;
	struct fl_flow_set *b = bpf_map_lookup_elem(&flows, &index);

	if (!b)
		return 1;
	for (__u32 at = 0; at < FL_FLOW_WAYS; at++) {
		__u64 tags = fl_flow_tags(b), e = *(volatile __u64 *)&b->entry[at];

		if (!(tags >> 8 * at & 0xff))
			continue;
		if (fl_flow_gone(e, s->unit, true)) {
			s->expired += fl_flow_clear(b, tags, at, e);
			continue;
		}
		s->used += !fl_flow_expired(e, s->unit);
		s->confirmed += fl_flow_confirmed(FL_FLOW_STATE(e)) && !fl_flow_expired(e, s->unit);
	}
	return 0;
}

SEC("syscall")
int flow_sweep(struct fl_flow_sweep *w)
{
	struct fl_sweeper s = { .first = w->first };

	s.unit = fl_now_ms(*(volatile __u32 *)&control.clock_base) >> 10;
	bpf_loop(w->count, fl_sweep_set, &s, 0);
	w->used = s.used;
	w->confirmed = s.confirmed;
	w->expired = s.expired;
	return 0;
}

/* Types that user space needs (bpf2go -type) and that no map or context has:
 * a variable puts them into the object's type information. */
const volatile struct fl_exported {
	struct fl_ask ask;
	enum fl_reason reason;
	enum fl_scheme scheme;
	enum fl_carrier carrier;
	enum fl_policy policy;
	enum fl_forwarding forwarding;
	enum fl_vip_flags flags;
	enum fl_hash_form hash_form;
	enum fl_flow_state flow_state;
	enum fl_flow_times flow_times;
	enum fl_line_flags line_flags;
	enum fl_constants constants;
	enum fl_lb_constants lb_constants;
	struct fl_shared shared;
	enum fl_seat_state seat_state;
	enum fl_seat_times seat_times;
	enum fl_vip_rates vip_rates;
} exported;

#endif
