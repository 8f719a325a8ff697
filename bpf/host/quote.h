/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* ICMP errors: they belong to the server that sent what they quote, so the
 * question is asked of the quoted connection. */
#ifndef FAIRLEAD_HOST_QUOTE_H
#define FAIRLEAD_HOST_QUOTE_H

#include "icmptype.h"
#include "question.h"

/* What an ICMP message is about. */
enum fl_about {
	FL_ABOUT_OTHER,      /* nothing of TCP or UDP that the VIP (q->vip) sent */
	FL_ABOUT_ADDRESS,    /* echo */
	FL_ABOUT_FRAGMENT,   /* an error, quoting a later fragment: no ports */
	FL_ABOUT_CONNECTION, /* an error; its quote is read into q */
};

/* Reads what the message at q->l4 is about. For FL_ABOUT_FRAGMENT q->proto is
 * what it was a fragment of; else, but for FL_ABOUT_CONNECTION, nothing is
 * changed. */
static __always_inline int fl_icmp_about(struct xdp_md *ctx, struct fl_question *q, _Bool ipv6)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u8 *icmp = fl_at(data, q->l4, FL_L4_MASK);
	__u8 family = ipv6 ? 6 : 4, proto;
	__u64 client[2], vip[2];
	__u16 *ports;
	_Bool later = 0;

	if ((void *)(icmp + 8) > end)
		return FL_ABOUT_OTHER;
	if (fl_icmp_is_echo(family, icmp[0]))
		return FL_ABOUT_ADDRESS;
	if (!fl_icmp_is_error(family, icmp[0]))
		return FL_ABOUT_OTHER;
	if (ipv6) {
		struct ipv6hdr *ip = (void *)(icmp + 8);
		__u8 *frag = (void *)(ip + 1);

		if ((void *)frag > end || ip->version != 6)
			return FL_ABOUT_OTHER;
		__builtin_memcpy(vip, &ip->saddr, 16);
		__builtin_memcpy(client, &ip->daddr, 16);
		proto = ip->nexthdr;
		ports = (void *)frag;
		if (proto == IPPROTO_FRAGMENT) {
			if ((void *)(frag + 8) > end)
				return FL_ABOUT_OTHER;
			proto = frag[0];
			later = ((__u32)frag[2] << 8 | frag[3]) & 0xfff8;
			ports = (void *)(frag + 8);
		}
	} else {
		struct iphdr *ip = (void *)(icmp + 8);

		if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
			return FL_ABOUT_OTHER;
		vip[0] = client[0] = 0;
		vip[1] = fl_mapped4(ip->saddr);
		client[1] = fl_mapped4(ip->daddr);
		proto = ip->protocol;
		later = ip->frag_off & FL_BE16(0x1fff);
		ports = fl_at(ip, ip->ihl * 4, 60);
	}
	if ((proto != IPPROTO_TCP && proto != IPPROTO_UDP) || vip[1] != q->vip[1] ||
	    vip[0] != q->vip[0])
		return FL_ABOUT_OTHER;
	if (later) {
		q->proto = proto;
		return FL_ABOUT_FRAGMENT;
	}
	if ((void *)(ports + 4) > end)
		return FL_ABOUT_OTHER;
	q->client[0] = client[0];
	q->client[1] = client[1];
	q->dport = ports[0];
	q->sport = ports[1];
	q->proto = proto;
	q->seq = bpf_ntohl(*(__u32 *)(ports + 2));
	q->quote = 1;
	return FL_ABOUT_CONNECTION;
}

#endif
