/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Carriers: where in a packet a cookie travels, a header each. A carrier undoes the
 * cookie before the stack sees it, and stamps what goes out. */
#ifndef FAIRLEAD_HOST_CARRIER_H
#define FAIRLEAD_HOST_CARRIER_H

#include "carrier_tcp_timestamp.h"

static __always_inline __u8 fl_carrier_of(const struct fl_host_vip *v)
{
	return v->flags / FL_HOST_VIP_CARRIER & 7;
}

/* Returns 1 where the packet was restored, 0 where it needs nothing, -1 where it
 * is malformed. */
static __always_inline int fl_carrier_undo(struct xdp_md *ctx, const struct fl_host_control *c,
					   const struct fl_host_vip *v,
					   const struct fl_host_packet *p, const void *end)
{
	switch (fl_carrier_of(v)) {
	case FL_CARRIER_TCP_TIMESTAMP:
		return fl_restore(ctx, c, v, p, end);
	}
	return 0;
}

/* Whether what leaves by the protocol may have to be stamped. */
static __always_inline _Bool fl_carries(__u8 proto)
{
	return proto == IPPROTO_TCP;
}

/* What no full socket sends. */
static __always_inline void fl_carrier_stamp(struct __sk_buff *skb, struct fl_host_control *c,
					     const struct fl_host_vip *v, struct fl_cursor *cur,
					     struct fl_host_packet *p)
{
	switch (fl_carrier_of(v)) {
	case FL_CARRIER_TCP_TIMESTAMP:
		fl_stamp_answer(skb, c, v, cur, p);
		break;
	}
}

/* What a socket sends of which s was kept. */
static __always_inline void fl_carrier_stamp_socket(struct __sk_buff *skb, struct bpf_sock *sk,
						    const struct fl_socket *s)
{
	switch (s->stamped) {
	case 0: /* counted, and left alone, but for keepalive probes */
	case 1 + FL_CARRIER_TCP_TIMESTAMP:
		fl_stamp_socket(skb, sk, s);
		break;
	}
}

/* Says in made how what the established socket sends is stamped, if at all. p is its
 * client's side. */
static __always_inline void fl_carrier_established(struct bpf_sock_ops *ops, struct tcp_sock *t,
						   struct fl_host_control *c,
						   const struct fl_host_vip *v,
						   const struct fl_host_packet *p,
						   struct fl_socket *made)
{
	switch (fl_carrier_of(v)) {
	case FL_CARRIER_TCP_TIMESTAMP:
		fl_stamp_established(ops, t, c, v, p, made);
		break;
	}
}

#endif
