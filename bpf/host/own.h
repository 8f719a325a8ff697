/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Schemes beamer and faild: is this packet for this server, or for the one that
 * had its bucket before? One decision for both, in this order:
 *
 *   from whom? ─▶ bucket settled? ─▶ SYN? ─▶ socket, SYN cookie, flow? ─▶
 *   previous server (while the chain lasts) ─▶ stale table? ─▶ the stack
 *
 * Nothing is kept a connection but for flows of UDP (flow.h): the kernel's own
 * sockets say what is owned, the packet says whom to ask next. */
#ifndef FAIRLEAD_HOST_OWN_H
#define FAIRLEAD_HOST_OWN_H

#include "about.h"
#include "flow.h"
#include "owner.h"
#include "previous.h"
#include "scheme_beamer.h"
#include "scheme_faild.h"
#include "stranger.h"
#include "tunnel.h"

/* Nobody owns the connection here, and no previous server is left to ask. What
 * the stack would reset may live where a newer table says, so a segment by an
 * older one is dropped, and the client sends it again. A datagram is taken all
 * the same: nothing resets it, its client may not send it again, and most are
 * of flows that begin. (While a new table is handed out, agents have it before
 * balancers do, and all is by an older one.) */
static __always_inline int fl_unowned(const struct fl_question *q)
{
	if (q->quote)
		return FL_TAKE; /* the stack looks for the connection, and finds none */
	if (q->proto == IPPROTO_UDP) {
		fl_host_reason(q->from == FL_FROM_SERVER ? FL_HOST_IN_RETURNED : FL_HOST_IN_UNOWNED,
			       q->bytes);
		return FL_TAKE;
	}
	if (q->stale) {
		fl_host_reason(FL_HOST_DROP_STALE, q->bytes);
		return XDP_DROP;
	}
	fl_host_reason(FL_HOST_IN_UNOWNED, q->bytes);
	return FL_TAKE;
}

static __always_inline int fl_own_udp(struct xdp_md *ctx, const struct fl_question *q, __u32 now)
{
	if (q->opening)
		return FL_HOST_IN_OPENING;
	return fl_flow_known(q, now) || fl_udp_connected(ctx, q) ? FL_HOST_IN_OWNED : 0;
}

/* Nobody's here: on to the previous server, or what becomes of it. */
static __always_inline int fl_not_owned(struct xdp_md *ctx, struct fl_question *q, __u32 now)
{
	int verdict;

	if (q->mac == FL_FAILD_MAC_COPY) { /* all others have one, too */
		fl_host_reason(FL_HOST_DROP_NOT_MINE, q->bytes);
		return XDP_DROP;
	}
	if (q->quote && q->hops_place == FL_HOPS_IN_MAC)
		return fl_ask_others(ctx, q, now);
	verdict = fl_previous(q, now);
	return verdict == FL_TAKE ? fl_unowned(q) : verdict;
}

static __always_inline int fl_own_tcp(struct xdp_md *ctx, struct fl_question *q, __u32 now)
{
	_Bool opens = (q->flags & (FL_TCP_SYN | FL_TCP_ACK)) == FL_TCP_SYN;
	_Bool doubt = (q->flags & (FL_TCP_SYN | FL_TCP_RST | FL_TCP_ACK)) != FL_TCP_ACK;
	struct fl_stranger s;
	__u32 reason;
	int verdict;

	fl_stranger_find(q, &s);
	if (opens) {
		if (s.entry)
			*s.entry = 0;
		reason = FL_HOST_IN_OPENING;
	} else if (!doubt && fl_stranger_known(&s, now)) {
		return fl_not_owned(ctx, q, now);
	} else {
		reason = fl_owns_tcp(ctx, q, &doubt);
	}
	if (reason) {
		fl_host_reason(reason, q->bytes);
		return FL_TAKE;
	}
	verdict = fl_not_owned(ctx, q, now);
	if (verdict == FL_PASS_ON && !doubt && s.entry)
		*s.entry = s.is | FL_STRANGER_TIME(now);
	return verdict;
}

/* The question itself, for a bucket that is not settled or a table that is
 * stale: FL_TAKE, FL_PASS_ON (q says to whom) or a verdict. */
__noinline int fl_own(struct xdp_md *ctx, struct fl_question *q)
{
	struct fl_host_control *c = fl_host_settings();
	__u32 reason, now;
	_Bool doubt;

	if (!q || !c)
		return FL_TAKE;
	now = fl_shared_now(c);
	if (q->proto == IPPROTO_TCP && !q->quote)
		return fl_own_tcp(ctx, q, now);
	reason = q->proto == IPPROTO_TCP ? fl_owns_tcp(ctx, q, &doubt) : fl_own_udp(ctx, q, now);
	if (reason) {
		fl_host_reason(reason, q->bytes);
		return FL_TAKE;
	}
	return fl_not_owned(ctx, q, now);
}

/* ---- of any packet ------------------------------------------------------ */

/* What the hops and the segment or datagram say. 0: malformed. */
static __always_inline _Bool fl_asked_read(struct xdp_md *ctx, struct fl_question *q)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	void *l4 = fl_at(data, q->l4, FL_L4_MASK);
	struct tcphdr *tcp = l4;

	if (q->hops_place != FL_HOPS_IN_NONE && q->hops_place != FL_HOPS_IN_MAC &&
	    !fl_beamer_read(q, data, end))
		return 0;
	if (q->quote)
		return 1;
	if (q->proto == IPPROTO_UDP) {
		if (l4 + sizeof(struct udphdr) > end)
			return 0;
		q->opening = fl_quic_initial(l4 + sizeof(struct udphdr),
					     q->l4_len - sizeof(struct udphdr), end);
		return 1;
	}
	if ((void *)(tcp + 1) > end || q->l4_len < sizeof(*tcp))
		return 0;
	q->flags = ((__u8 *)tcp)[13];
	q->seq = bpf_ntohl(tcp->seq);
	q->ack = bpf_ntohl(tcp->ack_seq);
	return 1;
}

/* Whether a balancer or a switch sent the packet here. What else comes is the
 * link's own: neighbour discovery, say. */
static __always_inline _Bool fl_forwarded(struct xdp_md *ctx, const struct fl_question *q,
					  const struct fl_host_vip *v)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	return q->cut || (v && fl_does(v, FL_DUTY_MAC) && data + ETH_HLEN <= end &&
			  fl_faild_kind(*(__u8 *)data));
}

/* The VIP of the packet in question. Of ICMP that was forwarded, an error has
 * the VIP of what it quotes, and what no balancer forwards has none: redirects,
 * neighbour discovery, errors about nobody's connections. Else ICMP is the
 * address's, but for errors about connections whose servers ask each other. */
static __always_inline struct fl_host_vip *
fl_asked_vip(struct xdp_md *ctx, const struct fl_host_control *c, struct fl_question *q)
{
	struct fl_host_vip *v = 0, *address;
	__u8 icmp = q->proto;
	int about;

	if (!fl_is_icmp(q->proto))
		return fl_host_vip_find(c, q->vip, q->dport, q->proto);
	about = fl_icmp_about(ctx, q, q->proto == IPPROTO_ICMPV6);
	if (about == FL_ABOUT_CONNECTION)
		v = fl_host_vip_find(c, q->vip, q->dport, q->proto);
	else if (about == FL_ABOUT_FRAGMENT &&
		 fl_host_vip_exact(c, q->vip, 0, q->proto | FL_PROTO_FRAG))
		about = FL_ABOUT_ADDRESS;
	if (v && fl_does(v, FL_DUTY_OWNER))
		return v;
	q->quote = 0;
	q->dport = 0;
	q->proto = icmp;
	address = fl_host_vip_exact(c, q->vip, 0, icmp);
	if (!guards || about == FL_ABOUT_ADDRESS || !fl_forwarded(ctx, q, address))
		return address;
	return v;
}

/* Step 0: from whom? A verdict, or FL_TAKE to go on. */
static __always_inline int fl_asked_source(struct xdp_md *ctx, const struct fl_host_vip *v,
					   struct fl_question *q)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (q->cut)
		return fl_tunnel_taken(v, q->source, q->forwarding, q->bytes, &q->from) ? FL_TAKE
											: XDP_DROP;
	q->from = FL_FROM_BALANCER;
	if (!fl_does(v, FL_DUTY_MAC) || data + ETH_HLEN > end || !fl_faild_kind(*(__u8 *)data))
		return FL_TAKE;
	if (fl_faild_read(q, data))
		return FL_TAKE;
	fl_host_reason(FL_HOST_DROP_NOT_MINE, q->bytes);
	return XDP_DROP;
}

/* Fills what the VIP says, and whether the bucket is settled. */
static __always_inline void fl_asked_of(const struct fl_host_control *c,
					const struct fl_host_vip *v, struct fl_question *q)
{
	q->vip_id = v->id;
	q->slot = v->slot;
	q->chain_ms = v->chain_ms;
	q->tunnel[0] = v->tunnel[0];
	q->tunnel[1] = v->tunnel[1];
	q->stale = v->flags & FL_HOST_VIP_UNSETTLED;
	if (q->hops_place != FL_HOPS_IN_MAC &&
	    fl_generation_stale(c, v, fl_hops_generation(&q->hops), q->from == FL_FROM_BALANCER))
		q->stale = 1;
	q->settled = !q->stale && fl_hops_empty(q->hops.chain) && q->mac != FL_FAILD_MAC_COPY;
}

/* The whole decision for a packet of any form: q has the offsets, addresses,
 * ports and protocol of the inner packet and, with a tunnel, its source and
 * hops. FL_TAKE, FL_PASS_ON or a verdict. Changes nothing in the packet. */
__noinline int fl_asked(struct xdp_md *ctx, struct fl_question *q)
{
	struct fl_host_control *c = fl_host_settings();
	struct fl_host_vip *v;
	int verdict;

	if (!q || !c)
		return FL_TAKE;
	v = fl_asked_vip(ctx, c, q);
	if (!v && fl_is_icmp(q->proto)) {
		fl_host_reason(FL_HOST_DROP_FOREIGN_ICMP, q->bytes);
		return XDP_DROP;
	}
	if (!v)
		return FL_TAKE; /* the table has just changed */
	q->slot = v->slot;
	verdict = fl_asked_source(ctx, v, q);
	if (verdict != FL_TAKE || !fl_does(v, FL_DUTY_OWNER))
		return verdict;
	if (q->proto != IPPROTO_TCP && q->proto != IPPROTO_UDP)
		return FL_TAKE; /* fragments go by addresses; other ICMP is for the address */
	if (!fl_asked_read(ctx, q)) {
		fl_host_reason(FL_HOST_DROP_MALFORMED, q->bytes);
		return XDP_DROP;
	}
	if (q->hops_place == FL_HOPS_IN_NONE) { /* a health check or a copy */
		q->vip_id = v->id;
		q->chain_ms = v->chain_ms;
	} else {
		fl_asked_of(c, v, q);
		if (!q->settled || (q->quote && q->hops_place == FL_HOPS_IN_MAC) ||
		    (q->proto == IPPROTO_UDP && q->from == FL_FROM_SERVER))
			verdict = fl_own(ctx, q);
	}
	if (verdict == FL_TAKE && q->proto == IPPROTO_UDP && !q->quote)
		fl_flow_taken(q, fl_shared_now(c));
	return verdict;
}

/* What XDP is to do where fl_asked said anything but FL_TAKE. */
static __always_inline int fl_answered(struct xdp_md *ctx, const struct fl_question *q, int answer)
{
	if (answer != FL_PASS_ON)
		return answer;
	return q->hops_place == FL_HOPS_IN_MAC ? fl_faild_pass_on(ctx, q)
					       : fl_beamer_pass_on(ctx, q);
}

#endif
