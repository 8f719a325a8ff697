/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A connection's life as the kernel reports it: established, its constant is
 * fixed and keepalives are set; closed, it is no longer counted as live. */
#ifndef FAIRLEAD_HOST_SOCKOPS_H
#define FAIRLEAD_HOST_SOCKOPS_H

#include "carrier.h"

#define FL_SOL_SOCKET 1
#define FL_SO_KEEPALIVE 9
#define FL_TCP_KEEPIDLE 4
#define FL_TCP_KEEPINTVL 5
#define FL_TCP_KEEPCNT 6
#define FL_KEEPCNT_MAX 127 /* MAX_TCP_KEEPCNT */

/* A SYN-ACK can be echoed for as long as it is retried; five minutes is above
 * what any sane tcp_synack_retries gives. */
#define FL_HANDSHAKE_MS 300000

/* A word of the context, at a constant offset from the context itself: the
 * compiler likes to compute one address for two fields, which the verifier
 * refuses. */
#define FL_OPS(ops, field)                                                                     \
	({                                                                                     \
		__u32 _word;                                                                   \
		asm volatile("%0 = *(u32 *)(%1 + %2)"                                          \
			     : "=r"(_word)                                                     \
			     : "r"(ops), "i"(__builtin_offsetof(struct bpf_sock_ops, field))); \
		_word;                                                                         \
	})

/* Fills p with the connection as it arrives here: the client is the source. */
static __always_inline void fl_sockops_tuple(struct bpf_sock_ops *ops, struct fl_host_packet *p)
{
	/* remote_port has the port's two bytes in its upper half. */
	p->sport = FL_OPS(ops, remote_port) >> 16;
	p->dport = bpf_htons(FL_OPS(ops, local_port));
	if (FL_OPS(ops, family) == 2 /* AF_INET */) {
		p->src[0] = p->dst[0] = 0;
		p->src[1] = fl_mapped4(FL_OPS(ops, remote_ip4));
		p->dst[1] = fl_mapped4(FL_OPS(ops, local_ip4));
		return;
	}
	/* An IPv4 connection of a dual-stack listener comes out mapped. */
	p->src[0] = FL_OPS(ops, remote_ip6[0]) | (__u64)FL_OPS(ops, remote_ip6[1]) << 32;
	p->src[1] = FL_OPS(ops, remote_ip6[2]) | (__u64)FL_OPS(ops, remote_ip6[3]) << 32;
	p->dst[0] = FL_OPS(ops, local_ip6[0]) | (__u64)FL_OPS(ops, local_ip6[1]) << 32;
	p->dst[1] = FL_OPS(ops, local_ip6[2]) | (__u64)FL_OPS(ops, local_ip6[3]) << 32;
}

/* When the SYN-ACK that ended this handshake was sent: the last packet's
 * TSecr less the offset, or TSecr itself after a SYN cookie (fl_restored
 * did it without an offset). Without an echo (TCP Fast Open): now. */
static __always_inline __u64 fl_synack_ms(struct bpf_sock_ops *ops, __u64 now, __u32 offset)
{
	__u8 ts[10] = { 8, 10 };
	__u32 echo, age;

	if (bpf_load_hdr_opt(ops, ts, sizeof(ts), 0) != sizeof(ts))
		return now;
	/* Two halves: the buffer is aligned to nothing. */
	echo = (__u32)ts[6] << 24 | (__u32)ts[7] << 16 | (__u32)ts[8] << 8 | ts[9];
	if (!echo)
		return now;
	age = (__u32)now - (echo - offset);
	if (age <= FL_HANDSHAKE_MS)
		return now - age;
	age = (__u32)now - echo;
	return age <= FL_HANDSHAKE_MS ? now - age : now;
}

static __always_inline int fl_keepalive_option(struct bpf_sock_ops *ops, int level, int name)
{
	int value = 0;

	bpf_getsockopt(ops, level, name, &value, sizeof(value));
	return value;
}

/* Probes start after idle_ms of silence, at most a quarter of the cookie's
 * idle limit, and go on half of that apart. They are there to renew the
 * cookie, not to find dead peers: the connection is given up no sooner than
 * the cookie runs out, or than the application wanted. An application that
 * probes sooner by itself (set on its listener, or after this) is left alone. */
static __always_inline void fl_set_keepalive(struct bpf_sock_ops *ops, __u32 idle_ms,
					     __u32 limit_ms)
{
	int on = fl_keepalive_option(ops, FL_SOL_SOCKET, FL_SO_KEEPALIVE);
	__u32 idle = idle_ms / 1000, interval, count, last = limit_ms / 1000, own;

	if (!idle)
		idle = 1;
	if (on) {
		own = fl_keepalive_option(ops, IPPROTO_TCP, FL_TCP_KEEPIDLE);
		if (own <= idle)
			return;
		own += (__u32)fl_keepalive_option(ops, IPPROTO_TCP, FL_TCP_KEEPINTVL) *
		       (__u32)fl_keepalive_option(ops, IPPROTO_TCP, FL_TCP_KEEPCNT);
		if (own > last)
			last = own;
	}
	/* At most FL_KEEPCNT_MAX probes: further apart where it takes more. */
	last = last > idle ? last - idle : 0;
	interval = idle / 2;
	if (interval <= last / FL_KEEPCNT_MAX)
		interval = last / FL_KEEPCNT_MAX + 1;
	count = last / interval + 1;
	on = 1;
	bpf_setsockopt(ops, FL_SOL_SOCKET, FL_SO_KEEPALIVE, &on, sizeof(on));
	bpf_setsockopt(ops, IPPROTO_TCP, FL_TCP_KEEPIDLE, &idle, sizeof(idle));
	bpf_setsockopt(ops, IPPROTO_TCP, FL_TCP_KEEPINTVL, &interval, sizeof(interval));
	bpf_setsockopt(ops, IPPROTO_TCP, FL_TCP_KEEPCNT, &count, sizeof(count));
}

static __always_inline void fl_live(__u32 vip_id, __u32 index, __s64 change)
{
	struct fl_host_count *n = bpf_map_lookup_elem(&host_vip_count, &vip_id);

	/* Atomic: a process that closes a socket can be interrupted by a packet
	 * that opens one, and a count that drifts would never come right. */
	if (n && index < 3)
		__sync_fetch_and_add(&n->live[index], change);
}

static __always_inline void fl_established(struct bpf_sock_ops *ops)
{
	struct fl_host_control *c = fl_host_settings();
	struct fl_socket made = { .live = FL_LIVE_NO_COOKIE };
	struct fl_host_vip *v;
	struct bpf_sock *sk;
	struct tcp_sock *t;
	struct fl_host_packet p;
	struct fl_stamp s;
	__u64 now;

	if (!c)
		return;
	fl_sockops_tuple(ops, &p);
	v = fl_host_vip_find(c, p.dst, p.dport, IPPROTO_TCP);
	if (!v)
		return;
	sk = ops->sk;
	if (!sk)
		return;
	t = (void *)bpf_skc_to_tcp_sock(sk);
	if (!t)
		return;
	made.vip_id = v->id;
	if (fl_does(v, FL_DUTY_COOKIE) && BPF_CORE_READ_BITFIELD(t, rx_opt.tstamp_ok)) {
		if (bpf_core_field_exists(t->tcp_usec_ts) &&
		    BPF_CORE_READ_BITFIELD(t, tcp_usec_ts)) {
			fl_host_reason(FL_HOST_OUT_MICROSECONDS, 0);
		} else {
			now = fl_monotonic_ms();
			if (t->tsoffset && !c->lookup)
				c->lookup = 1;
			/* A handshake from before we had a slot: its client knows
			 * unstamped timestamps, and must go on seeing them. */
			if (fl_stamp_at(v, fl_synack_ms(ops, now, t->tsoffset), &s)) {
				made.constant = (fl_cheetah_field(v, &s, p.src, p.sport, p.dport)
						 << v->shift) +
						c->clock_base - t->tsoffset;
				made.live = s.epoch;
				made.stamped = 1;
			}
		}
		if (made.stamped && v->keepalive_ms)
			fl_set_keepalive(ops, v->keepalive_ms, (1u << v->shift) - 2 * FL_SKEW_MS);
	}
	if (!bpf_sk_storage_get(&host_sockets, sk, &made, BPF_SK_STORAGE_GET_F_CREATE))
		return;
	fl_live(made.vip_id, made.live, 1);
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
}

/* The storage stays until the socket is freed: closing with unread data sends
 * its RST, with a timestamp, after this. */
static __always_inline void fl_closed(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct fl_socket *s;

	if (!sk)
		return;
	s = bpf_sk_storage_get(&host_sockets, sk, 0, 0);
	if (!s || s->closed)
		return;
	s->closed = 1;
	fl_live(s->vip_id, s->live, -1);
}

/* A socket used again as a client (after connect to AF_UNSPEC) is another
 * connection. */
static __always_inline void fl_reused(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;

	if (sk)
		bpf_sk_storage_delete(&host_sockets, sk);
}

#endif
