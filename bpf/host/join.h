/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Out: a port of MPTCP joins answers joins of connections that live here, and
 * nothing else, as a port without a server does: who knows no connection learns
 * from no answer which ports have one, and so not how many servers there are.
 *
 *   SYN-ACK that joins, whatever an established socket sends ─▶ sent
 *   RST (no join, an unknown token, nobody's segment)        ─▶ dropped
 *   SYN-ACK without MP_JOIN (older kernels, to a plain SYN)  ─▶ dropped */
#ifndef FAIRLEAD_HOST_JOIN_H
#define FAIRLEAD_HOST_JOIN_H

#include "packet.h"
#include "vip.h"

/* MP_JOIN (RFC 8684, §3.2): kind 30, subtype in the third byte's high bits. */
#define FL_TCPOPT_MPTCP 30
#define FL_MPTCP_JOIN 1

/* Whether a SYN-ACK of Linux's has MP_JOIN among its options: these are six at
 * most, MSS, SACK, timestamp, window scale and padding before it. */
static __always_inline _Bool fl_has_join(const struct tcphdr *tcp, const void *end)
{
	const __u8 *opts = (const __u8 *)(tcp + 1);
	__u32 i = 0, len = tcp->doff * 4 - sizeof(*tcp);

	for (int n = 0; n < 10; n++) {
		const __u8 *p;

		asm volatile("%0 &= 63" : "+r"(i)); /* as in fl_tcpopt_timestamp */
		p = opts + i;
		if (i >= len || (const void *)(p + 3) > end || p[0] == 0)
			return 0;
		if (p[0] == FL_TCPOPT_MPTCP && p[2] >> 4 == FL_MPTCP_JOIN)
			return 1;
		i += p[0] == 1 ? 1 : p[1];
		if (p[0] != 1 && p[1] < 2)
			return 0;
	}
	return 0;
}

/* Whether an answer from a join port, which no established socket sends, is to
 * be dropped. A subflow that was just closed has its port still; the sockets by
 * which the kernel refuses, the listener's and its own, do not connect. */
static __always_inline _Bool fl_join_refuses(struct __sk_buff *skb, const struct tcphdr *tcp,
					     const void *end)
{
	struct bpf_sock *sk = skb->sk;

	if (tcp->syn)
		return tcp->ack && !fl_has_join(tcp, end);
	if (!tcp->rst)
		return 0;
	return !sk || sk->state != FL_TCP_CLOSE || sk->src_port != bpf_ntohs(tcp->source);
}

#endif
