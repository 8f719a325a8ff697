/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* In, for nearly every packet there is: a TCP segment over IPv4, with the
 * timestamp where everybody has it, in an IPv4 tunnel without options or a
 * tag. Everything stands at a constant offset, so one comparison with the
 * packet's end does for all reads; it does what in.h does, in half the time.
 * Whatever looks different goes the long way, which says why. */
#ifndef FAIRLEAD_HOST_PLAIN_H
#define FAIRLEAD_HOST_PLAIN_H

#include "carrier.h"
#include "decap.h"
#include "tunnel.h"

#define FL_NOT_PLAIN (-1)

struct fl_plain {
	struct iphdr ip;
	struct tcphdr tcp;
	__u32 kind; /* FL_TCPOPT_ALIGNED */
	__u32 tsval;
	__u32 tsecr;
} __attribute__((packed));

/* Ethernet and outer header are told apart by `cut`, a constant: 20 for ipip,
 * 32 for gue. Returns the verdict or FL_NOT_PLAIN; nothing is changed then. */
static __always_inline int fl_in_plain(struct xdp_md *ctx, const struct fl_host_control *c,
				       const __u32 cut)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *outer = (void *)(eth + 1);
	struct udphdr *udp = (void *)(outer + 1);
	struct fl_plain *in = (void *)outer + cut;
	struct fl_host_count *count;
	struct fl_host_vip *v;
	struct fl_host_packet p;
	__u32 was, is, header, macs1;
	__u64 macs0;

	if ((void *)(in + 1) > end)
		return FL_NOT_PLAIN;
	if (eth->h_proto != FL_BE16(ETH_P_IP) || *(__u8 *)outer != 0x45 ||
	    outer->frag_off & FL_BE16(0x3fff) || (outer->tos & 3) == 3)
		return FL_NOT_PLAIN;
	if (cut == sizeof(*outer)) {
		if (outer->protocol != IPPROTO_IPIP)
			return FL_NOT_PLAIN;
	} else if (outer->protocol != IPPROTO_UDP || udp->dest != bpf_htons(FL_GUE_PORT) ||
		   *(__u32 *)(udp + 1) != bpf_htonl(IPPROTO_IPIP << 16)) {
		return FL_NOT_PLAIN;
	}
	if (*(__u8 *)in != 0x45 || in->ip.frag_off & FL_BE16(0x3fff) ||
	    in->ip.protocol != IPPROTO_TCP || in->kind != FL_TCPOPT_ALIGNED || in->tcp.syn)
		return FL_NOT_PLAIN;
	p.l3_len = bpf_ntohs(in->ip.tot_len);
	header = in->tcp.doff * 4;
	if (header < 32 || sizeof(in->ip) + header > p.l3_len || (void *)in + p.l3_len > end)
		return FL_NOT_PLAIN;

	p.src[0] = p.dst[0] = 0;
	p.src[1] = fl_mapped4(in->ip.saddr);
	p.dst[1] = fl_mapped4(in->ip.daddr);
	p.sport = in->tcp.source;
	p.dport = in->tcp.dest;
	v = fl_host_vip_find(c, p.dst, p.dport, IPPROTO_TCP);
	if (!v || !fl_does(v, FL_DUTY_COOKIE) || fl_carrier_of(v) != FL_CARRIER_TCP_TIMESTAMP ||
	    v->tunnel[0] || v->tunnel[1] != fl_mapped4(outer->daddr))
		return FL_NOT_PLAIN;
	if (!fl_form_taken(v, cut == sizeof(*outer) ? FL_FWD_IPIP : FL_FWD_GUE) ||
	    (fl_sources_known(v) && fl_from4(fl_mapped4(outer->saddr)) != FL_FROM_BALANCER))
		return FL_NOT_PLAIN;

	count = fl_host_counted(v->id, 0, p.l3_len);
	was = in->tsecr;
	if (fl_restored(ctx, c, v, &p, (void *)in + offsetof(struct fl_plain, tcp), was, &is)) {
		in->tsecr = is;
		in->tcp.check = fl_csum_replace32(in->tcp.check, was, is);
		if (count)
			count->restored++;
	}

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

#endif
