/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Forwardings over UDP: those of shim.h.
 *
 *   Ethernet [tag] | IPv4 or IPv6 | UDP | shim | [hops] | packet as it came */
#ifndef FAIRLEAD_LB_FORWARD_UDP_H
#define FAIRLEAD_LB_FORWARD_UDP_H

#include "outer.h"
#include "shim.h"

/* Whether a tunnel over UDP and IPv6 gets a UDP checksum: it is wanted, and
 * fl_udp6_check can tell it. */
static __always_inline bool fl_udp6_summed(const struct fl_lb_packet *p)
{
	if (!gue6_checksum || p->kind != FL_KIND_SEGMENT)
		return false;
	if (p->proto == IPPROTO_UDP && !p->covered)
		return false;
	return p->family == 4 || p->l4 - p->l3 == sizeof(struct ipv6hdr);
}

/* That checksum without reading the payload: the bytes from
 * the inner TCP or UDP header on sum to the complement of their pseudo header,
 * or the inner checksum is wrong and the packet lost anyway; an IPv4 header
 * sums to 0xffff by its own checksum. In an inner IPv6 packet the addresses
 * cancel out. Only for what fl_udp6_summed says yes to. inner points
 * to the inner header, 20 bytes of which may be read. */
static __always_inline __u16 fl_udp6_check(const struct fl_lb_packet *p, const struct fl_way *w,
					   const struct fl_shim *s, __u16 sport, const void *inner,
					   bool hops)
{
	__u32 l4 = p->l4 - p->l3, pseudo, i;
	__u32 udp = p->len + FL_UDP_BYTES + s->bytes + (hops ? FL_HOPS_BYTES : 0);
	const struct fl_line *line = w->line;
	__u64 saddr[2], sum, part;
	__u16 check;

	pseudo = (__u32)bpf_htons(p->len - l4) + bpf_htons(p->proto);
	if (p->family == 4) {
		part = fl_csum_finish((__u64)pseudo + *(__u32 *)(inner + 12) +
				      *(__u32 *)(inner + 16));
	} else {
		part = fl_csum_finish(pseudo);
		part += *(__u32 *)inner;
		part += *(__u32 *)(inner + 4);
	}
	sum = part;
	fl_source6(saddr, w->hash);
	for (i = 0; i < 2; i++) {
		sum += (saddr[i] & 0xffffffff) + (saddr[i] >> 32);
		sum += (line->addr[i] & 0xffffffff) + (line->addr[i] >> 32);
	}
	/* Pseudo header, then UDP and shim; the length counts in both. */
	sum += (__u64)bpf_htons(udp) * 2 + bpf_htons(IPPROTO_UDP);
	sum += bpf_htons(sport) + bpf_htons(s->port);
	sum += (__u64)s->words[0] + s->words[1] + s->words[2];
	if (hops)
		sum += fl_hops_sum(w);
	check = fl_csum_finish(sum);
	return check ? check : 0xffff;
}

static __always_inline int fl_udp(struct xdp_md *ctx, const struct fl_lb_packet *p,
				  const struct fl_way *w, const struct fl_outer *o,
				  const struct fl_shim *s)
{
	__u32 own = FL_UDP_BYTES + s->bytes, hops = o->hops ? FL_HOPS_BYTES : 0;
	struct fl_spread spread;
	__u16 check = 0;
	void *h, *inner;

	fl_spread(&spread, w, true);
	h = fl_outer(ctx, p, w, o, own + hops, false, IPPROTO_UDP, spread.label);
	if (unlikely(!h))
		return XDP_ABORTED;
	if (o->summed) {
		inner = h + own + hops;
		if (inner + sizeof(struct iphdr) > (void *)(long)ctx->data_end)
			return XDP_ABORTED;
		check = fl_udp6_check(p, w, s, spread.sport, inner, o->hops);
	}
	fl_shim_write(h, s, spread.sport, p->len + hops, check);
	if (o->hops)
		fl_write_hops(h + own, w);
	return fl_send(ctx, w->line->ifindex);
}

#endif
