/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A connection's life as the kernel reports it: established, its constant is
 * fixed and keepalives are set; closed, it is no longer counted as live. */
#ifndef FAIRLEAD_HOST_SOCKOPS_H
#define FAIRLEAD_HOST_SOCKOPS_H

#include "carrier.h"
#include "opened.h"

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

static __always_inline void fl_live(__u32 vip_id, __u32 index, __s64 change)
{
	struct fl_host_count *n = bpf_map_lookup_elem(&host_vip_count, &vip_id);

	/* Atomic: a process that closes a socket can be interrupted by a packet
	 * that opens one, and a count that drifts would never come right. */
	if (n && index < 3)
		__sync_fetch_and_add(&n->live[index], change);
}

/* Whatever opened it: handshake_ack.h asks after its own. */
static __always_inline void fl_established_note(const struct fl_host_control *c,
						const struct tcp_sock *t,
						const struct fl_host_packet *p)
{
	struct fl_offload *o = fl_offload_settings();

	if (o)
		fl_opened_note(fl_opened_mark(o->key, p->src, p->sport, p->dport, t->snd_una - 1),
			       fl_shared_now(c));
}

static __always_inline void fl_established(struct bpf_sock_ops *ops)
{
	struct fl_host_control *c = fl_host_settings();
	struct fl_socket made = { .live = FL_LIVE_NO_COOKIE };
	struct fl_host_vip *v;
	struct bpf_sock *sk;
	struct tcp_sock *t;
	struct fl_host_packet p;

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
	if (v->flags & FL_HOST_VIP_OFFLOAD)
		fl_established_note(c, t, &p);
	if (fl_does(v, FL_DUTY_COOKIE))
		fl_carrier_established(ops, t, c, v, &p, &made);
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
