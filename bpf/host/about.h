/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* ICMP errors: they belong to the server that sent what they quote, so the
 * question is asked of the quoted connection. */
#ifndef FAIRLEAD_HOST_ABOUT_H
#define FAIRLEAD_HOST_ABOUT_H

#include "icmptype.h"
#include "question.h"
#include "quote.h"

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
	__u8 family = ipv6 ? 6 : 4;
	struct fl_quote about;
	__u16 *ports;

	if ((void *)(icmp + 8) > end)
		return FL_ABOUT_OTHER;
	if (fl_icmp_is_echo(family, icmp[0]))
		return FL_ABOUT_ADDRESS;
	if (!fl_icmp_is_error(family, icmp[0]))
		return FL_ABOUT_OTHER;
	if (!fl_quote_read(&about, icmp + 8, end, ipv6) ||
	    (about.proto != IPPROTO_TCP && about.proto != IPPROTO_UDP) ||
	    about.vip[1] != q->vip[1] || about.vip[0] != q->vip[0])
		return FL_ABOUT_OTHER;
	if (about.later) {
		q->proto = about.proto;
		return FL_ABOUT_FRAGMENT;
	}
	ports = fl_at(icmp + 8, about.l4, 63);
	if ((void *)(ports + 4) > end)
		return FL_ABOUT_OTHER;
	q->client[0] = about.client[0];
	q->client[1] = about.client[1];
	q->dport = ports[0];
	q->sport = ports[1];
	q->proto = about.proto;
	q->seq = bpf_ntohl(*(__u32 *)(ports + 2));
	q->quote = 1;
	return FL_ABOUT_CONNECTION;
}

#endif
