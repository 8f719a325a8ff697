/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What names no server, but concerns one: the daemon sends a copy to each
 * server of the VIP; all but one ignore it. Copies cost, so a token bucket a
 * CPU and kind bounds them: control.ask_rate a second, as many in one go. Of
 * ICMP errors, whose sender needs no connection, one source may use a third: a
 * host of both families is two sources, and leaves others a third. */
#ifndef FAIRLEAD_LB_ASK_H
#define FAIRLEAD_LB_ASK_H

#include "cookie.h"
#include "maps.h"
#include "packet.h"

/* Indices of ask_bound. */
#define FL_ASK_KIND_RST 0
#define FL_ASK_KIND_ICMP 1

/* Takes a token of rate a second. False: used up. */
static __always_inline bool fl_take_token(struct fl_bound *b, __u32 rate, __u32 now)
{
	__u64 tokens;

	/* ms since the last times tokens a second = thousandths of tokens. */
	tokens = b->tokens + (__u64)(now - b->last_ms) * rate;
	b->last_ms = now;
	if (tokens > (__u64)rate * 1000)
		tokens = (__u64)rate * 1000;
	if (tokens < 1000) {
		b->tokens = tokens;
		return false;
	}
	b->tokens = tokens - 1000;
	return true;
}

/* The bound of the packet's source: its IPv4 address, or its IPv6 prefix of 64
 * bits, of which everybody has all addresses. A secret keys the hash, so that
 * a stranger cannot choose whose bound it shares. */
static __always_inline struct fl_bound *fl_ask_source(struct xdp_md *ctx, __u32 l3, bool six)
{
	const __u64 key[2] = { ask_key[0], ask_key[1] };
	__u64 from = 0, hash;
	__u32 index;

	if (six ? bpf_xdp_load_bytes(ctx, l3 + 8, &from, 8)
		: bpf_xdp_load_bytes(ctx, l3 + 12, &from, 4))
		return NULL;
	hash = six ? fl_hash6(key, from, 0, 0, 0) : fl_hash4(key, (__u32)from, 0, 0);
	index = hash >> (64 - FL_ASK_SOURCE_BITS);
	return bpf_map_lookup_elem(&ask_sources, &index);
}

static __always_inline bool fl_ask_allowed(struct xdp_md *ctx, __u32 kind, __u32 l3, bool six,
					   __u32 now)
{
	__u32 rate = *(volatile __u32 *)&control.ask_rate;
	struct fl_bound *b = bpf_map_lookup_elem(&ask_bound, &kind), *source;

	if (guards && kind == FL_ASK_KIND_ICMP) {
		source = fl_ask_source(ctx, l3, six);
		if (!source || !fl_take_token(source, (rate + 2) / 3, now))
			return false;
	}
	return b && fl_take_token(b, rate, now);
}

/* Puts the packet (length bytes from l3 on) into the ring. Returns 0, or a
 * reason. Longer packets than a record holds are not what this is for: an RST
 * carries no data, and a quote of 8 bytes is short. */
__noinline int fl_ask_servers(struct xdp_md *ctx, __u32 vip_id, __u32 l3, __u32 length_family,
			      __u64 kind_now)
{
	__u32 length = length_family >> 8, kind = kind_now >> 32;
	struct fl_ask *ask;

	if (length < 1 || length > FL_ASK_BYTES || kind > FL_ASK_KIND_ICMP)
		return FL_DROP_ASK_LIMIT;
	if (!fl_ask_allowed(ctx, kind, l3, (length_family & 0xff) == 6, (__u32)kind_now))
		return FL_DROP_ASK_LIMIT;
	ask = bpf_ringbuf_reserve(&asks, sizeof(*ask), 0);
	if (!ask)
		return FL_DROP_ASK_LIMIT;
	ask->vip_id = vip_id;
	ask->length = length;
	ask->family = length_family & 0xff;
	if (bpf_xdp_load_bytes(ctx, l3, ask->packet, length)) {
		bpf_ringbuf_discard(ask, 0);
		return FL_DROP_ASK_LIMIT;
	}
	bpf_ringbuf_submit(ask, 0);
	return 0;
}

#endif
