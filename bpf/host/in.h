/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* In: the way of a packet from the NIC to the stack.
 *
 *   parse the outer header ─▶ parse the inner one ─▶ VIP of ours? ─▶ a tunnel
 *   that may be? (tunnel.h) ─▶ cheetah: restore TSecr; beamer, faild: ours?
 *   (own.h) ─▶ take the tunnel off ─▶ pass */
#ifndef FAIRLEAD_HOST_IN_H
#define FAIRLEAD_HOST_IN_H

#include "maps.h"
#include "vip.h"
#include "packet.h"
#include "carrier.h"
#include "decap.h"
#include "hops_in.h"
#include "own.h"
#include "plain.h"
#include "tunnel.h"

/* Whether the packet at l3 goes on for length bytes in later buffers, as large
 * frames do and those of NICs that split headers off. */
static __always_inline _Bool fl_continues(struct xdp_md *ctx, void *data, void *l3, __u32 length)
{
	return bpf_xdp_get_buff_len(ctx) >= (__u64)(l3 - data) + length;
}

static __always_inline _Bool fl_our_tunnel(const struct fl_host_vip *v, const __u64 *dst)
{
	return (v->tunnel[0] == dst[0] && v->tunnel[1] == dst[1]) ||
	       (v->old_tunnel[0] == dst[0] && v->old_tunnel[1] == dst[1]);
}

/* Global functions: the verifier walks each once, and not once for each way on
 * which the one before it gave up. */
__noinline int fl_in_gue(struct xdp_md *ctx)
{
	struct fl_host_control *c = fl_host_settings();

	return c ? fl_in_plain(ctx, c, sizeof(struct iphdr) + FL_GUE_BYTES) : XDP_PASS;
}

/* The packet as a question: who owns it? */
static __always_inline void fl_in_question(struct fl_question *q, const struct fl_outer *o,
					   const struct fl_host_packet *p, void *data)
{
	q->client[0] = p->src[0];
	q->client[1] = p->src[1];
	q->vip[0] = p->dst[0];
	q->vip[1] = p->dst[1];
	q->sport = p->sport;
	q->dport = p->dport;
	q->proto = p->proto;
	q->bytes = p->l3_len;
	q->l2 = o->l2_len;
	q->l3 = o->inner;
	q->l4 = p->l4 - data;
	q->l4_len = p->l4_len;
	q->hops_at = o->hops_at;
	q->udp = o->udp;
	q->hops_place = o->hops_place;
	q->outer6 = o->ipv6;
	q->quote = 0;
	q->opening = 0;
	q->mac = 0;
	q->cut = o->cut;
	q->inner_proto = o->inner_proto;
	q->congested = o->congested;
	q->forwarding = o->forwarding;
	q->source[0] = o->cut ? o->src[0] : p->src[0];
	q->source[1] = o->cut ? o->src[1] : p->src[1];
}

/* What fl_in_any left as a question. */
__noinline int fl_in_asked(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct fl_question *q = fl_question();
	struct fl_outer outer;
	int verdict;

	if (!q)
		return XDP_DROP; /* cannot be */
	verdict = fl_asked(ctx, q);
	if (verdict != FL_TAKE)
		return fl_answered(ctx, q, verdict);
	fl_host_counted(q->vip_id, 0, q->bytes);
	if (!q->cut) {
		fl_host_reason(FL_HOST_IN_DIRECT, q->bytes);
		return XDP_PASS;
	}
	outer.inner = q->l3;
	outer.inner_proto = q->inner_proto;
	outer.l2_len = q->l2;
	outer.cut = q->cut;
	if (q->congested)
		fl_pass_congestion(&outer, data, end);
	if (fl_decapsulate(ctx, &outer)) {
		fl_host_reason(FL_HOST_DROP_MALFORMED, q->bytes);
		return XDP_DROP;
	}
	return XDP_PASS;
}

/* Passed until it is known to be ours; dropped with a reason after. FL_ASK:
 * fl_in_asked is to go on (a stage of its own, for the stack's sake). */
__noinline int fl_in_any(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct fl_host_control *c = fl_host_settings();
	__u32 bytes = end - data;
	struct fl_host_count *count;
	struct fl_host_vip *v;
	struct fl_outer outer;
	struct fl_cursor cur;
	struct fl_host_packet p;
	int malformed, restored = 0;
	void *inner;
	__u8 from;

	if (!c || !fl_outer_parse(ctx, &outer)) {
		fl_host_reason(FL_HOST_PASS_NOT_OURS, bytes);
		return XDP_PASS;
	}
	inner = fl_at(data, outer.inner, FL_L3_MASK);
	cur.pos = inner;
	cur.end = end;
	malformed = outer.inner_proto == FL_BE16(ETH_P_IP)
			    ? fl_parse_ip4(&cur, &p)
			    : fl_parse_ip6_in(ctx, &cur, &p, outer.inner);
	if (!malformed && p.l3_len > (__u32)(end - inner))
		malformed = !fl_continues(ctx, data, inner, p.l3_len);
	v = malformed ? 0 : fl_host_vip_find(c, p.dst, p.dport, p.proto);
	if (!v || (outer.cut && !fl_our_tunnel(v, outer.dst))) {
		fl_host_reason(FL_HOST_PASS_NOT_OURS, bytes);
		return XDP_PASS;
	}

	p.l4 = fl_join(data, p.l4, FL_L4_MASK);
	/* An ICMP error's VIP is that of what it quotes. */
	if (fl_does(v, FL_DUTY_OWNER) || (outer.cut && fl_is_icmp(p.proto))) {
		struct fl_question *q = fl_question();

		if (!q)
			return XDP_DROP; /* cannot be */
		fl_in_question(q, &outer, &p, data);
		q->vip_id = v->id;
		return FL_ASK;
	}
	if (outer.cut && !fl_tunnel_taken(v, outer.src, outer.forwarding, p.l3_len, &from))
		return XDP_DROP;
	count = fl_host_counted(v->id, 0, p.l3_len);
	if (fl_does(v, FL_DUTY_COOKIE)) {
		restored = fl_carrier_undo(ctx, c, v, &p, end);
		if (restored < 0) {
			fl_host_reason(FL_HOST_DROP_MALFORMED, bytes);
			return XDP_DROP;
		}
		if (restored && count)
			count->restored++;
	}
	if (!outer.cut) {
		fl_host_reason(FL_HOST_IN_DIRECT, p.l3_len);
		return XDP_PASS;
	}
	if (outer.congested)
		fl_pass_congestion(&outer, data, end);
	if (fl_decapsulate(ctx, &outer)) {
		fl_host_reason(FL_HOST_DROP_MALFORMED, bytes);
		return XDP_DROP;
	}
	return XDP_PASS;
}

/* Where an IPv4 header without options has its protocol, and GUE in UDP behind
 * it its first octet. */
#define FL_PROTO_AT (ETH_HLEN + 9)
#define FL_GUE_AT (ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr))

static __always_inline int fl_host_in(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct fl_host_control *c = fl_host_settings();
	int verdict;

	if (!c)
		return XDP_PASS;
	verdict = fl_in_plain(ctx, c, sizeof(struct iphdr));
	if (verdict != FL_NOT_PLAIN)
		return verdict;
	if (data + FL_GUE_AT + 1 <= end) {
		__u8 first = *(__u8 *)(data + ETH_HLEN);

		if (first == FL_HOPS_IHL)
			verdict = fl_in_hops_ipip(ctx);
		else if (first != 0x45 || *(__u8 *)(data + FL_PROTO_AT) != IPPROTO_UDP)
			verdict = FL_NOT_PLAIN;
		else if (*(__u8 *)(data + FL_GUE_AT))
			verdict = fl_in_hops_gue(ctx);
		else
			verdict = fl_in_gue(ctx);
		if (verdict != FL_NOT_PLAIN)
			return verdict;
	}
	verdict = fl_in_any(ctx);
	if (verdict != FL_ASK)
		return verdict;
	return fl_in_asked(ctx);
}

#endif
