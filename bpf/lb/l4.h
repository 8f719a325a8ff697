/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3 begins: what do TCP and UDP say? */
#ifndef FAIRLEAD_LB_L4_H
#define FAIRLEAD_LB_L4_H

#include "carrier.h"
#include "quic.h"

/* A SYN alone opens a connection; what has another of these flags with it is
 * of one that there is, or forged. */
static __always_inline bool fl_tcp_opens(__u8 flags)
{
	return (flags & (FL_TCP_SYN | FL_TCP_ACK | FL_TCP_RST | FL_TCP_FIN)) == FL_TCP_SYN;
}

/* Reads flags of a TCP segment, or checks a UDP header; and what the carrier holds. */
static __always_inline int fl_parse_l4(struct xdp_md *ctx, const struct fl_vip *v,
				       struct fl_lb_packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	void *l4 = data + (p->l4 & FL_OFFSET_MASK);
	__u32 room = p->len - (p->l4 - p->l3), size;

	if (p->proto == IPPROTO_UDP) {
		struct udphdr *udp = l4;

		if ((void *)(udp + 1) > end || bpf_ntohs(udp->len) < sizeof(*udp) ||
		    bpf_ntohs(udp->len) > room)
			return FL_DROP_MALFORMED_L4;
		/* From the VIP to itself: a server that echoes would answer
		 * itself for ever. (TCP ends such a thing by itself.) */
		if (p->saddr[1] == p->daddr[1] && p->saddr[0] == p->daddr[0])
			return FL_DROP_MALFORMED_IP;
		p->covered = udp->check && bpf_ntohs(udp->len) == room;
		p->opens =
			fl_quic_initial(l4 + sizeof(*udp), bpf_ntohs(udp->len) - sizeof(*udp), end);
		return fl_carrier_read(ctx, v, p, l4, end, sizeof(*udp));
	}
	if (unlikely(l4 + sizeof(struct tcphdr) > end))
		return FL_DROP_MALFORMED_L4;
	size = *(__u8 *)(l4 + 12) >> 4 << 2;
	p->flags = *(__u8 *)(l4 + 13);
	p->opens = fl_tcp_opens(p->flags);
	p->closes = p->flags & (FL_TCP_FIN | FL_TCP_RST);
	if (unlikely(size < sizeof(struct tcphdr) || size > room))
		return FL_DROP_MALFORMED_L4;
	return fl_carrier_read(ctx, v, p, l4, end, size);
}

#endif
