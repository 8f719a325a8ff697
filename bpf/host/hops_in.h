/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* In, for nearly every packet of scheme beamer: a TCP segment over IPv4 in an
 * IPv4 tunnel with hops, without a tag. What in.h, own.h and decap.h do, with
 * everything at constant offsets, as plain.h does for scheme cheetah. */
#ifndef FAIRLEAD_HOST_HOPS_IN_H
#define FAIRLEAD_HOST_HOPS_IN_H

#include "own.h"
#include "plain.h"

#define FL_HOPS_IHL 0x49 /* octet 0 of an IPv4 header with sixteen of options */

struct fl_segment {
	struct iphdr ip;
	struct tcphdr tcp;
} __attribute__((packed));

/* `cut` is a constant: 36 for ipip, 48 for gue. The hops end the tunnel's
 * headers for the one, and GUE's private data for the other: both stand 16
 * bytes before the inner header. Returns the verdict or FL_NOT_PLAIN; nothing is
 * changed then. */
static __always_inline int fl_in_hops(struct xdp_md *ctx, const __u32 cut)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct fl_host_control *c = fl_host_settings();
	struct ethhdr *eth = data;
	struct iphdr *outer = (void *)(eth + 1);
	struct udphdr *udp = (void *)(outer + 1);
	struct fl_segment *in = (void *)outer + cut;
	__u64 *hops = (void *)in - FL_HOPS_BYTES, source[2], vip[2], macs0;
	struct fl_question *q;
	struct fl_host_vip *v;
	__u32 length, macs1;
	_Bool stale;
	int from, verdict;

	if (!c || (void *)(in + 1) > end)
		return FL_NOT_PLAIN;
	if (eth->h_proto != FL_BE16(ETH_P_IP) || outer->frag_off & FL_BE16(0x3fff) ||
	    (outer->tos & 3) == 3)
		return FL_NOT_PLAIN;
	if (cut == sizeof(*outer) + FL_HOPS_BYTES) {
		if (*(__u8 *)outer != FL_HOPS_IHL || outer->protocol != IPPROTO_IPIP)
			return FL_NOT_PLAIN;
	} else if (*(__u8 *)outer != 0x45 || outer->protocol != IPPROTO_UDP ||
		   udp->dest != bpf_htons(FL_GUE_PORT) ||
		   *(__u32 *)(udp + 1) != bpf_htonl(FL_HOPS_BYTES / 4 << 24 | IPPROTO_IPIP << 16)) {
		return FL_NOT_PLAIN;
	}
	length = bpf_ntohs(in->ip.tot_len);
	if (*(__u16 *)hops != FL_HOPS_TYPE || *(__u8 *)in != 0x45 ||
	    in->ip.frag_off & FL_BE16(0x3fff) || in->ip.protocol != IPPROTO_TCP ||
	    length < sizeof(*in) || (void *)in + length > end)
		return FL_NOT_PLAIN;

	vip[0] = source[0] = 0;
	vip[1] = fl_mapped4(in->ip.daddr);
	v = fl_host_vip_find(c, vip, in->tcp.dest, IPPROTO_TCP);
	if (!v || !fl_does(v, FL_DUTY_HOPS) || v->tunnel[0] ||
	    v->tunnel[1] != fl_mapped4(outer->daddr) ||
	    !fl_form_taken(v, cut == sizeof(*outer) + FL_HOPS_BYTES ? FL_FWD_IPIP : FL_FWD_GUE))
		return FL_NOT_PLAIN;
	source[1] = fl_mapped4(outer->saddr);
	from = fl_from4(source[1]);
	if (from == FL_FROM_NOBODY) {
		fl_host_reason(FL_HOST_DROP_FOREIGN_SOURCE, length);
		return XDP_DROP;
	}
	stale = fl_generation_stale(c, v, bpf_ntohl((__u32)(hops[1] >> 32)),
				    from == FL_FROM_BALANCER) ||
		v->flags & FL_HOST_VIP_UNSETTLED;
	if (stale || hops[0] != FL_HOPS_EMPTY) {
		q = fl_question();
		if (!q)
			return XDP_DROP; /* cannot be */
		q->client[0] = q->vip[0] = q->source[0] = q->tunnel[0] = 0;
		q->client[1] = fl_mapped4(in->ip.saddr);
		q->vip[1] = vip[1];
		q->source[1] = source[1];
		q->tunnel[1] = v->tunnel[1];
		q->hops.chain = hops[0];
		q->hops.when = hops[1];
		q->vip_id = v->id;
		q->chain_ms = v->chain_ms;
		q->seq = bpf_ntohl(in->tcp.seq);
		q->ack = bpf_ntohl(in->tcp.ack_seq);
		q->bytes = length;
		q->sport = in->tcp.source;
		q->dport = in->tcp.dest;
		q->slot = v->slot;
		q->l2 = ETH_HLEN;
		q->udp = ETH_HLEN + sizeof(*outer);
		q->hops_at = ETH_HLEN + cut - FL_HOPS_BYTES;
		q->l3 = ETH_HLEN + cut;
		q->l4 = ETH_HLEN + cut + sizeof(in->ip);
		q->l4_len = length - sizeof(in->ip);
		q->proto = IPPROTO_TCP;
		q->flags = ((__u8 *)&in->tcp)[13];
		q->hops_place =
			cut == sizeof(*outer) + FL_HOPS_BYTES ? FL_HOPS_IN_OPTION4 : FL_HOPS_IN_UDP;
		q->from = from;
		q->quote = 0;
		q->opening = 0;
		q->stale = stale;
		q->outer6 = 0;
		q->mac = 0;
		verdict = fl_own(ctx, q);
		if (verdict == FL_PASS_ON)
			return fl_beamer_pass_on(ctx, q);
		if (verdict != FL_TAKE)
			return verdict;
	}

	fl_host_counted(v->id, 0, length);
	macs0 = *(__u64 *)data;
	macs1 = *(__u32 *)(data + 8);
	if (bpf_xdp_adjust_head(ctx, cut))
		return XDP_DROP; /* cannot be: the packet is longer */
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + sizeof(*eth) > end)
		return XDP_DROP;
	*(__u64 *)data = macs0;
	*(__u32 *)(data + 8) = macs1;
	*(__u16 *)(data + 12) = FL_BE16(ETH_P_IP);
	return XDP_PASS;
}

__noinline int fl_in_hops_ipip(struct xdp_md *ctx)
{
	return fl_in_hops(ctx, sizeof(struct iphdr) + FL_HOPS_BYTES);
}

__noinline int fl_in_hops_gue(struct xdp_md *ctx)
{
	return fl_in_hops(ctx, sizeof(struct iphdr) + FL_GUE_BYTES + FL_HOPS_BYTES);
}

#endif
