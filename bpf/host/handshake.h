/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Handshakes of VIPs with `handshake: offload` (tc ingress; docs/handshake.md).
 *
 *   SYN ──▶ handshake_syn.h   answered here, by a SYN cookie (syncookie.h) whose
 *                             timestamp has the connection's cookie in it already;
 *                             nothing is kept
 *   ACK ──▶ handshake_ack.h   ends such a handshake: the kernel makes the socket of
 *                             it, with an offset to its timestamps by which they
 *                             have the cookie for life: nothing is rewritten
 *
 * What is not to be answered here goes on to the stack, whose handshake it then is,
 * and is stamped as everywhere else. host_in has taken the tunnel off, and left what
 * the ACK echoes alone (fl_echo_opens). */
#ifndef FAIRLEAD_HOST_HANDSHAKE_H
#define FAIRLEAD_HOST_HANDSHAKE_H

#include "carrier.h"
#include "handshake_ack.h"
#include "handshake_syn.h"

static __always_inline int fl_handshake_in(struct __sk_buff *skb)
{
	struct fl_host_control *c = fl_host_settings();
	struct fl_offload *o = fl_offload_settings();
	struct fl_host_vip *v;
	struct fl_cursor cur;
	struct fl_host_packet p;
	struct tcphdr *tcp;

	if (!c || !o || fl_out_parse(skb, &cur, &p) || p.proto != IPPROTO_TCP)
		return TC_ACT_UNSPEC;
	v = fl_host_vip_find(c, p.dst, p.dport, p.proto);
	if (!v || !(v->flags & FL_HOST_VIP_OFFLOAD) || !fl_does(v, FL_DUTY_COOKIE))
		return TC_ACT_UNSPEC;
	tcp = p.l4;
	if ((void *)(tcp + 1) > cur.end || tcp->rst)
		return TC_ACT_UNSPEC;
	if (!tcp->syn)
		return tcp->ack ? fl_handshake_ack(skb, c, o, v, &cur, &p) : TC_ACT_UNSPEC;
	if (tcp->ack || tcp->fin)
		return TC_ACT_UNSPEC;
	return fl_handshake_syn(skb, c, o, v, &p);
}

#endif
