/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the kernel's sockets know of a connection's timestamps: the offset
 * that tcp_timestamps=1 adds to each TSval. Every state keeps it in a field of
 * its own. */
#ifndef FAIRLEAD_HOST_SOCKET_H
#define FAIRLEAD_HOST_SOCKET_H

#include <bpf/bpf_core_read.h>
#include "kernel.h"
#include "packet.h"

enum fl_owner {
	FL_OWNER_NONE,      /* no socket, or only a listening one */
	FL_OWNER_REQUEST,   /* handshake not finished */
	FL_OWNER_FULL,
	FL_OWNER_TIME_WAIT,
};

struct fl_offset {
	__u32 owner;        /* enum fl_owner */
	__u32 ts;           /* the offset */
	__u32 microseconds; /* TSval counts microseconds: no cookie fits */
	__u64 synack_us;    /* REQUEST: first SYN-ACK, CLOCK_MONOTONIC */
};

/* A socket of TCP's tables as the struct that its state says it is. The
 * helpers for this (bpf_skc_to_tcp_*) refuse request and TIME_WAIT sockets of
 * MPTCP listeners, which is what Go's net.Listen makes; and they are calls. */
#define FL_AS(type, sk)                                                                      \
	((struct type *)(bpf_ksym_exists(bpf_rdonly_cast)                                    \
				 ? bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct type)) \
				 : (void *)bpf_skc_to_##type(sk)))

/* Reads what sk knows. sk is of any state, and out of TCP's tables. */
static __always_inline void fl_offset_of(struct bpf_sock *sk, struct fl_offset *o)
{
	o->owner = FL_OWNER_NONE;
	o->ts = 0;
	o->microseconds = 0;
	o->synack_us = 0;

	switch (sk->state) {
	case FL_TCP_NEW_SYN_RECV: {
		struct tcp_request_sock *r = FL_AS(tcp_request_sock, sk);

		if (!r)
			return;
		o->owner = FL_OWNER_REQUEST;
		o->ts = r->ts_off;
		o->synack_us = r->snt_synack;
		if (bpf_core_field_exists(r->req_usec_ts))
			o->microseconds = r->req_usec_ts;
		return;
	}
	case FL_TCP_TIME_WAIT: {
		struct tcp_timewait_sock *w = FL_AS(tcp_timewait_sock, sk);

		if (!w)
			return;
		o->owner = FL_OWNER_TIME_WAIT;
		o->ts = w->tw_ts_offset;
		if (bpf_core_field_exists(w->tw_sk.tw_usec_ts))
			o->microseconds = BPF_CORE_READ_BITFIELD(w, tw_sk.tw_usec_ts);
		return;
	}
	case FL_TCP_LISTEN:
	case FL_TCP_CLOSE:
		return;
	default: {
		struct tcp_sock *t = FL_AS(tcp_sock, sk);

		if (!t)
			return;
		o->owner = FL_OWNER_FULL;
		o->ts = t->tsoffset;
		if (bpf_core_field_exists(t->tcp_usec_ts))
			o->microseconds = BPF_CORE_READ_BITFIELD(t, tcp_usec_ts);
		return;
	}
	}
}

/* The socket of a connection whose client is at `client`, by t. To be released by
 * the caller; NULL: none. ctx is an xdp_md or a __sk_buff. */
static __always_inline struct bpf_sock *fl_lookup_by(struct bpf_sock_tuple *t, void *ctx,
						     const __u64 *client, __u16 sport,
						     const __u64 *vip, __u16 dport)
{
	if (fl_is_mapped(vip)) {
		t->ipv4.saddr = client[1] >> 32;
		t->ipv4.daddr = vip[1] >> 32;
		t->ipv4.sport = sport;
		t->ipv4.dport = dport;
		return bpf_skc_lookup_tcp(ctx, t, sizeof(t->ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	__builtin_memcpy(t->ipv6.saddr, client, 16);
	__builtin_memcpy(t->ipv6.daddr, vip, 16);
	t->ipv6.sport = sport;
	t->ipv6.dport = dport;
	return bpf_skc_lookup_tcp(ctx, t, sizeof(t->ipv6), BPF_F_CURRENT_NETNS, 0);
}

static __always_inline struct bpf_sock *fl_lookup(void *ctx, const __u64 *client, __u16 sport,
						  const __u64 *vip, __u16 dport)
{
	struct bpf_sock_tuple t;

	return fl_lookup_by(&t, ctx, client, sport, vip, dport);
}

#endif
