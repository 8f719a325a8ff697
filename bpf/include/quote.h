/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The headers that an ICMP error quotes: those of a packet that went from a VIP to
 * a client. Balancer and server read them alike. */
#ifndef FAIRLEAD_QUOTE_H
#define FAIRLEAD_QUOTE_H

#include <linux/ip.h>
#include "ipv6.h"

struct fl_quote {
	__u64 vip[2]; /* as in fl_vip.addr */
	__u64 client[2];
	__u32 l4;     /* bytes from the quoted IP header to what follows it */
	__u8 proto;
	_Bool later;  /* a fragment behind the first: what follows has no ports */
};

/* Reads the IP header at `at`, which may be of no packet. 0: it is none. */
static __always_inline _Bool fl_quote_read(struct fl_quote *q, const void *at, const void *end,
					   _Bool ipv6)
{
	const struct iphdr *ip = at;
	const struct ipv6hdr *ip6 = at;
	const __u8 *frag = (const void *)(ip6 + 1);

	if (!ipv6) {
		if ((const void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
			return 0;
		q->vip[0] = q->client[0] = 0;
		q->vip[1] = fl_mapped4(ip->saddr);
		q->client[1] = fl_mapped4(ip->daddr);
		q->proto = ip->protocol;
		q->later = ip->frag_off & bpf_htons(0x1fff);
		q->l4 = ip->ihl * 4;
		return 1;
	}
	if ((const void *)frag > end || ip6->version != 6)
		return 0;
	__builtin_memcpy(q->vip, &ip6->saddr, 16);
	__builtin_memcpy(q->client, &ip6->daddr, 16);
	q->proto = ip6->nexthdr;
	q->later = 0;
	q->l4 = sizeof(*ip6);
	if (q->proto == IPPROTO_FRAGMENT) {
		if ((const void *)(frag + 8) > end)
			return 0;
		q->proto = frag[0];
		q->later = ((__u32)frag[2] << 8 | frag[3]) & 0xfff8;
		q->l4 += 8;
	}
	return 1;
}

#endif
