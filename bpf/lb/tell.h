/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a balancer tells a server of a new connection: a word in the SYN's own TSecr,
 * which holds nothing (bpf/include/cookie.h). The server puts it back. */
#ifndef FAIRLEAD_LB_TELL_H
#define FAIRLEAD_LB_TELL_H

#include "carrier_tcp_timestamp.h"

/* Linux's SYN: MSS, SACK-permitted, timestamp. */
#define FL_TELL_USUAL 12

/* Writes the word into the SYN whose TCP header is at l4, whatever its client has
 * there. */
__noinline int fl_tell(struct xdp_md *ctx, __u32 l4, __u32 word)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 was, is = bpf_htonl(word), len;
	struct tcphdr *tcp;
	__u8 *at;
	int off;

	if (l4 > FL_OFFSET_MASK)
		return 0;
	tcp = data + l4;
	if ((void *)(tcp + 1) > end)
		return 0;
	len = tcp->doff * 4 - sizeof(*tcp);
	if (len > FL_TCPOPT_MAX)
		return 0;
	at = (void *)(tcp + 1);
	if ((void *)(at + 16) <= end && len >= 16 && *(__u16 *)at == 0x0402 &&
	    *(__u32 *)(at + 4) == 0x0a080204) {
		off = FL_TELL_USUAL;
	} else {
		off = fl_tcpopt_timestamp(at, len, end);
		if (off < 0)
			return 0;
		off += 4;
	}
	at += off & 0x3f;
	if ((void *)(at + 4) > end)
		return 0;
	was = *(__u32 *)at;
	if (was == is)
		return 0;
	*(__u32 *)at = is;
	if (off & 1)
		tcp->check = fl_csum_replace32(tcp->check, fl_csum_odd(was), fl_csum_odd(is));
	else
		tcp->check = fl_csum_replace32(tcp->check, was, is);
	return 0;
}

#endif
