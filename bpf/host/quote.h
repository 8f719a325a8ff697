/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* ICMP errors: they belong to the server that sent what they quote, so the
 * question is asked of the quoted connection. */
#ifndef FAIRLEAD_HOST_QUOTE_H
#define FAIRLEAD_HOST_QUOTE_H

#include "question.h"

/* Errors of RFC 792 and RFC 4443 that quote a packet. */
static __always_inline _Bool fl_icmp_error(__u8 type, _Bool ipv6)
{
	if (ipv6)
		return type >= 1 && type <= 4;
	return type == 3 || type == 4 || type == 11 || type == 12;
}

/* Reads the connection that the error at q->l4 quotes. 0: it quotes none that
 * could be of the VIP (q->vip) or of TCP or UDP; nothing is changed then. */
static __always_inline _Bool fl_quoted(struct xdp_md *ctx, struct fl_question *q, _Bool ipv6)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u8 *icmp = fl_at(data, q->l4, 255);
	__u64 client[2], vip[2];
	__u16 *ports;
	__u8 proto;

	if ((void *)(icmp + 8) > end || !fl_icmp_error(icmp[0], ipv6))
		return 0;
	if (ipv6) {
		struct ipv6hdr *ip = (void *)(icmp + 8);

		if ((void *)(ip + 1) > end || ip->version != 6)
			return 0;
		__builtin_memcpy(vip, &ip->saddr, 16);
		__builtin_memcpy(client, &ip->daddr, 16);
		proto = ip->nexthdr;
		ports = (void *)(ip + 1);
	} else {
		struct iphdr *ip = (void *)(icmp + 8);

		if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5 ||
		    ip->frag_off & FL_BE16(0x1fff)) /* a later fragment has no ports */
			return 0;
		vip[0] = client[0] = 0;
		vip[1] = fl_mapped4(ip->saddr);
		client[1] = fl_mapped4(ip->daddr);
		proto = ip->protocol;
		ports = fl_at(ip, ip->ihl * 4, 60);
	}
	if ((proto != IPPROTO_TCP && proto != IPPROTO_UDP) || (void *)(ports + 4) > end ||
	    vip[1] != q->vip[1] || vip[0] != q->vip[0])
		return 0;
	q->client[0] = client[0];
	q->client[1] = client[1];
	q->dport = ports[0];
	q->sport = ports[1];
	q->proto = proto;
	q->seq = bpf_ntohl(*(__u32 *)(ports + 2));
	q->quote = 1;
	return 1;
}

#endif
