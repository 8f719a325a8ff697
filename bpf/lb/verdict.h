/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The last stage: the one place that acts on what the others decided. */
#ifndef FAIRLEAD_LB_VERDICT_H
#define FAIRLEAD_LB_VERDICT_H

#include "ask.h"
#include "forward.h"
#include "fragment.h"
#include "icmp.h"
#include "input.h"
#include "maps.h"
#include "scheme.h"
#include "tier.h"

/* Counts a connection in or out. Only TCP's ends are seen, so only TCP's
 * beginnings count as open. */
static __always_inline void
fl_count_connection(const struct fl_vip *v, const struct fl_lb_packet *p, const struct fl_way *w)
{
	__u32 index = w->index;
	__s32 *open;

	if (p->opens) {
		struct fl_vip_cpu *cpu = w->cpu;
		__u32 id = v->id;

		w->line->opened++;
		if (!cpu)
			cpu = bpf_map_lookup_elem(&vip_cpu, &id);
		if (cpu)
			cpu->new_conns++;
		if (p->proto != IPPROTO_TCP)
			return;
	}
	open = bpf_map_lookup_elem(&conns, &index);
	if (!open)
		return;
	if (p->opens)
		__sync_fetch_and_add(open, 1);
	else if (*open > 0) /* a FIN sent twice must not lead below zero */
		__sync_fetch_and_add(open, -1);
}

static __always_inline int fl_act(struct xdp_md *ctx, const struct fl_vip *v,
				  const struct fl_lb_packet *p, struct fl_way *w, __u32 now,
				  int reason, bool plain)
{
	int action = XDP_DROP;
	__u32 failed;

	/* A known connection's packet in the middle of it: nearly all. */
	if (plain && likely(reason == FL_KNOWN && !p->closes)) {
		action = fl_forward_plain(ctx, p, w);
		if (likely(action != XDP_ABORTED)) {
			w->line->packets++;
			w->line->bytes += p->len;
			return action;
		}
		action = XDP_DROP;
	}
	switch (reason) {
	case FL_KNOWN:
	case FL_FORWARD_NEW:
	case FL_FORWARD_NO_TIMESTAMP:
	case FL_FORWARD_UDP:
	case FL_FORWARD_BAD_COOKIE:
	case FL_FORWARD_STATELESS:
	case FL_FORWARD_ICMP:
	case FL_FORWARD_FRAGMENT:
	case FL_FORWARD_TIER_DOWN:
	case FL_FORWARD_OTHER_TIER:
		if (unlikely(!v || !w->line)) /* never; the verifier cannot know */
			return XDP_ABORTED;
		action = plain && reason != FL_KNOWN ? fl_forward_plain(ctx, p, w) : XDP_ABORTED;
		if (action == XDP_ABORTED)
			action = fl_forward(ctx, p, w, &failed);
		if (likely(action != XDP_ABORTED)) {
			w->line->packets++;
			w->line->bytes += p->len;
			if (p->opens || p->closes)
				fl_count_connection(v, p, w);
			if (reason == FL_KNOWN)
				return action;
			break;
		}
		reason = failed;
		action = XDP_DROP;
		if (reason != FL_REPLY_TOO_BIG)
			break;
		/* Never an error about an error, nor about a fragment, whose
		 * sender could not tell what it was about (RFC 1122 §3.2.2). */
		if (p->kind == FL_KIND_SEGMENT)
			action = fl_too_big(ctx, p->l3, p->family, w->line->mtu);
		if (action != XDP_TX) {
			action = XDP_DROP;
			reason = FL_DROP_TOO_BIG;
		}
		break;
	case FL_REPLY_ECHO:
		if (p->kind == FL_KIND_OTHER) /* always */
			action = fl_echo(ctx, p->l3, p->l4, p->family);
		break;
	case FL_ASK_RST:
	case FL_ASK_ICMP: {
		__u64 kind = reason == FL_ASK_ICMP ? FL_ASK_KIND_ICMP : FL_ASK_KIND_RST;
		int r = fl_ask_servers(ctx, v ? v->id : 0, p->l3, p->len << 8 | p->family,
				       kind << 32 | now);

		if (r)
			reason = r;
		break;
	}
	case FL_PASS_NOT_IP:
	case FL_PASS_NO_VIP:
	case FL_PASS_VIP_OTHER:
	case FL_PASS_NOT_MINE:
		action = XDP_PASS;
		break;
	}
	fl_count_reason(reason, p->len);
	if (unlikely(v && reason >= FL_DROP_MALFORMED_IP && action == XDP_DROP)) {
		__u32 id = v->id;
		struct fl_vip_cpu *cpu = bpf_map_lookup_elem(&vip_cpu, &id);

		if (cpu)
			cpu->dropped++;
	}
	return action;
}

/* From the tuple on: VIP, scheme, policy, forwarding. Inlined where p's family,
 * protocol and kind are constants, the compiler leaves out what they exclude. */
static __always_inline int fl_pipeline(struct xdp_md *ctx, struct fl_lb_packet *p,
				       const struct fl_snapshot *s, bool plain)
{
	struct fl_way w = {};
	struct fl_vip *v = fl_vip_find(s, p);
	int reason = likely(v) ? FL_CONTINUE : fl_unserved(s, p, &v);

	if (likely(reason == FL_CONTINUE))
		reason = fl_scheme(ctx, v, p, &w, s->now);
	return fl_act(ctx, v, p, &w, s->now, fl_unless_stray(s, reason), plain);
}

static __always_inline void fl_snapshot(struct fl_snapshot *s)
{
	s->half = *(volatile __u32 *)&control.active & 1;
	s->seed = control.vip_seed[s->half];
	s->now = fl_now_ms(*(volatile __u32 *)&control.clock_base);
}

/* Every packet that is not plain TCP: UDP, ICMP, fragments, headers with
 * options or extensions, malformed ones. Fills p up to the tuple, or decides.
 * A function of its own: verified once, and its many cases keep no register
 * of the plain way busy. */
__noinline int fl_prepare(struct xdp_md *ctx, struct fl_lb_packet *p, __u32 half, __u64 seed)
{
	struct fl_snapshot s = { .half = half & 1, .seed = seed };
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	int reason;

	if (!p) /* a global function's argument may be null to the verifier */
		return FL_PASS_NOT_IP;
	reason = fl_parse(ctx, p);
	if (reason == FL_CONTINUE && data + ETH_HLEN + 4 <= end &&
	    !fl_mine(ctx, *(__u64 *)data, p->l3 == ETH_HLEN ? 0 : fl_vlan(data)))
		return FL_PASS_NOT_MINE;
	if (reason == FL_CONTINUE && p->kind == FL_KIND_OTHER)
		reason = fl_special(ctx, p, &s);
	return reason;
}

static __always_inline int fl_general(struct xdp_md *ctx, const struct fl_snapshot *s)
{
	struct fl_lb_packet p = {};
	struct fl_way none = {};
	int reason;

	reason = fl_prepare(ctx, &p, s->half, s->seed);
	if (reason != FL_CONTINUE)
		return fl_act(ctx, NULL, &p, &none, s->now, fl_unless_stray(s, reason), false);
	return fl_pipeline(ctx, &p, s, false);
}

/* The whole way of a packet. Plain TCP, which is nearly all, is recognized by
 * a few comparisons and goes through its own copy of the pipeline. */
static __always_inline int fl_balance(struct xdp_md *ctx)
{
	void *data, *end, *l3;
	struct fl_lb_packet p = {};
	struct fl_snapshot s;
	__u32 vlan = 0;
	__u16 type;

	fl_snapshot(&s);
	s.tunnelled = false;
	if (tier_addr[0] | tier_addr[1]) {
		int reason = fl_tier_in(ctx);

		if (reason == FL_TIER_UNTRUSTED) {
			fl_count_reason(FL_DROP_TIER_SOURCE, ctx->data_end - ctx->data);
			return XDP_DROP;
		}
		s.tunnelled = reason == FL_TIER_TAKEN;
	}
	data = (void *)(long)ctx->data, end = (void *)(long)ctx->data_end;
	if (unlikely(data + ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr) > end))
		goto general;
	type = *(__u16 *)(data + 12);
	p.l3 = ETH_HLEN;
	if (unlikely(type == bpf_htons(ETH_P_8021Q))) {
		type = *(__u16 *)(data + 16);
		vlan = fl_vlan(data);
		p.l3 = ETH_HLEN + 4;
	}
	if (unlikely(!fl_mine_at_once(ctx, *(__u64 *)data, vlan)))
		goto general;
	l3 = data + p.l3;
	if (likely(type == bpf_htons(ETH_P_IP) && fl_plain_ipv4(&p, l3, end))) {
		return fl_pipeline(ctx, &p, &s, true);
	}
	if (likely(type == bpf_htons(ETH_P_IPV6) && fl_plain_ipv6(&p, l3, end))) {
		return fl_pipeline(ctx, &p, &s, true);
	}
general:
	return fl_general(ctx, &s);
}

#endif
