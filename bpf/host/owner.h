/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Does this server own the connection? The kernel's own tables say. Read
 * Beamer, NSDI'18, "avoiding reset connections in corner cases"; each case
 * there is a test of kernel/host/own_corner_test.go, with its time line. */
#ifndef FAIRLEAD_HOST_OWNER_H
#define FAIRLEAD_HOST_OWNER_H

#include "question.h"
#include "socket.h"

/* Not more than this before the next expected byte, a segment is of a
 * connection in TIME_WAIT; or its receive window, where that is larger. */
#define FL_TIME_WAIT_WINDOW 65536

/* A request socket has answered a SYN, but another server may have answered
 * one of the same client before: whose answer the client took is in its ACK.
 * An RST without ACK says nothing of that. If the connection is here it is
 * over soon without it; if it is at a previous server, only that can end it. */
static __always_inline _Bool fl_owns_request(struct bpf_sock *sk, const struct fl_question *q)
{
	struct tcp_request_sock *r = FL_AS(tcp_request_sock, sk);
	__u32 isn;

	if (!r)
		return 1;
	isn = r->snt_isn;
	if (q->quote)
		return q->seq - isn <= 1;
	return q->flags & FL_TCP_ACK && q->ack == isn + 1;
}

/* A connection in TIME_WAIT hears the rest of its own, but a newer one of the
 * same client's port may live at a previous server. What is late is not ahead
 * of what was last expected, except where the client may still send
 * (FIN_WAIT2 without a process, which is of the same kind). */
static __always_inline _Bool fl_owns_time_wait(struct bpf_sock *sk, const struct fl_question *q)
{
	struct tcp_timewait_sock *w = FL_AS(tcp_timewait_sock, sk);
	__u32 next, window;

	if (q->quote)
		return 0; /* nothing is sent any more that could be too big */
	if (!w)
		return 1;
	next = w->tw_sk.__tw_common.skc_tw_rcv_nxt;
	window = w->tw_rcv_wnd;
	if (window < FL_TIME_WAIT_WINDOW)
		window = FL_TIME_WAIT_WINDOW;
	if (next - q->seq <= window)
		return 1;
	return w->tw_sk.tw_substate == FL_TCP_FIN_WAIT2 && q->seq - next <= window;
}

/* Whether the segment ends the handshake of a SYN cookie that this server (or
 * another with its secret) sent. The kernel looks first whether the listener
 * has had too many SYNs lately, and says no if it has not. */
static __always_inline _Bool fl_owns_cookie(struct xdp_md *ctx, struct bpf_sock *listener,
					    const struct fl_question *q)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	void *ip = fl_at(data, q->l3, FL_L3_MASK);
	struct tcphdr *tcp = fl_at(data, q->l4, FL_L4_MASK);
	__u32 header = fl_is_mapped(q->vip) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);

	if ((q->flags & (FL_TCP_SYN | FL_TCP_ACK | FL_TCP_RST)) != FL_TCP_ACK || q->quote)
		return 0;
	if ((void *)(tcp + 1) > end || ip + sizeof(struct ipv6hdr) > end)
		return 0;
	return !bpf_tcp_check_syncookie(listener, ip, header, tcp, sizeof(*tcp));
}

/* 0, or the reason why the connection is this server's. *doubt is set where it
 * is not, but another segment of the same client's port might be. */
static __always_inline __u32 fl_owns_tcp(struct xdp_md *ctx, const struct fl_question *q,
					 _Bool *doubt)
{
	struct bpf_sock *sk = fl_lookup(ctx, q->client, q->sport, q->vip, q->dport);
	__u32 reason = 0;

	if (!sk)
		return 0;
	switch (sk->state) {
	case FL_TCP_LISTEN:
		if (fl_owns_cookie(ctx, sk, q))
			reason = FL_HOST_IN_SYNCOOKIE;
		break;
	case FL_TCP_CLOSE:
		break;
	case FL_TCP_NEW_SYN_RECV:
		*doubt = 1;
		if (fl_owns_request(sk, q))
			reason = FL_HOST_IN_OWNED;
		break;
	case FL_TCP_TIME_WAIT:
		*doubt = 1;
		if (fl_owns_time_wait(sk, q))
			reason = FL_HOST_IN_OWNED;
		break;
	default:
		reason = FL_HOST_IN_OWNED;
	}
	bpf_sk_release(sk);
	return reason;
}

#endif
