/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Out: the way of a packet from the stack to the NIC.
 *
 *   its socket has a constant? ─yes─▶ stamp it
 *        │no
 *   parse ─▶ from a VIP of ours? ─▶ may a join port say so? (join.h) ─▶
 *   cheetah: the carrier stamps it; beamer: lower the MSS that it offers (mss.h) */
#ifndef FAIRLEAD_HOST_OUT_H
#define FAIRLEAD_HOST_OUT_H

#include "carrier.h"
#include "join.h"
#include "mss.h"

/* What becomes of a packet: it goes on to the next program, changed or not, or
 * ends here. */
#define FL_OUT_GOES TC_ACT_UNSPEC
#define FL_OUT_ENDS TC_ACT_SHOT

/* Answers that no full socket sends. */
static __always_inline int fl_out_lookup(struct __sk_buff *skb, struct fl_host_control *c)
{
	struct fl_host_vip *v;
	struct fl_cursor cur;
	struct fl_host_packet p;
	struct tcphdr *tcp;

	if (fl_out_parse(skb, &cur, &p) || !fl_carries(p.proto))
		return FL_OUT_GOES;
	v = fl_host_vip_find(c, p.src, p.sport, p.proto);
	if (!v)
		return FL_OUT_GOES;
	tcp = p.l4;
	if ((void *)(tcp + 1) > cur.end)
		return FL_OUT_GOES;
	if (v->flags & FL_HOST_VIP_JOIN && fl_join_refuses(skb, tcp, cur.end)) {
		fl_host_reason(FL_HOST_DROP_NO_JOIN, p.l3_len);
		return FL_OUT_ENDS;
	}
	if (fl_does(v, FL_DUTY_COOKIE))
		fl_carrier_stamp(skb, c, v, &cur, &p);
	/* Beamer's tunnels are the longest, and carry no cookie. */
	else if (fl_does(v, FL_DUTY_HOPS) && tcp->syn && tcp->ack && v->mss)
		fl_clamp_mss(skb, (void *)(long)skb->data, tcp, v->mss, cur.end);
	return FL_OUT_GOES;
}

/* Sockets without a constant that answer nothing of ours: established ones
 * predate us, or belong to no VIP. */
static __always_inline _Bool fl_answers(__u32 state)
{
	return state == FL_TCP_NEW_SYN_RECV || state == FL_TCP_TIME_WAIT ||
	       state == FL_TCP_LISTEN || state == FL_TCP_CLOSE;
}

/* IPv6's with a hop-by-hop header, and TCP's. */
#define FL_HEADERS_MAX (40 + 8 + 60)

static __always_inline int fl_host_out(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct fl_host_control *c;

	if (!sk && skb->tc_index == FL_TC_ANSWER)
		return FL_OUT_GOES; /* handshake_syn.h's, which has stamped and counted it */
	if (sk) {
		struct fl_socket *s = bpf_sk_storage_get(&host_sockets, sk, 0, 0);

		if (s) {
			/* What has data is no probe either: nothing of it is read. */
			if (s->own && skb->len > ETH_HLEN + FL_HEADERS_MAX)
				fl_host_counted(s->vip_id, 1, skb->len - ETH_HLEN);
			else
				fl_carrier_stamp_socket(skb, sk, s);
			return FL_OUT_GOES;
		}
		if (!fl_answers(sk->state))
			return FL_OUT_GOES;
	}
	c = fl_host_settings();
	return c ? fl_out_lookup(skb, c) : FL_OUT_GOES;
}

#endif
