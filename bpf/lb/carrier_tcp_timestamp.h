/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Carrier tcp-timestamp at the balancer: clients echo in TSecr what the server
 * sent as TSval; in a quote of what the server sent it is TSval itself. */
#ifndef FAIRLEAD_LB_CARRIER_TCP_TIMESTAMP_H
#define FAIRLEAD_LB_CARRIER_TCP_TIMESTAMP_H

#include "packet.h"
#include "timestamp.h"

/* The timestamp of the TCP header at offset l4 whose options take len bytes:
 * TSval (which = 0) or TSecr (which = 4), | 1 << 32; or FL_TCPOPT_*. A
 * function of its own so that the verifier walks the options once. */
#define FL_STAMP_FOUND (1LL << 32)

__noinline __s64 fl_timestamp(struct xdp_md *ctx, __u32 l4, __u32 len, __u32 which)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const __u8 *opts, *at;
	int off;

	if (l4 > FL_OFFSET_MASK || len > FL_TCPOPT_MAX)
		return FL_TCPOPT_MALFORMED;
	opts = data + l4 + sizeof(struct tcphdr);
	off = fl_tcpopt_timestamp(opts, len, end);
	if (off < 0)
		return off;
	at = opts + (off & 0x3f) + (which & 4);
	if ((void *)(at + 4) > end)
		return FL_TCPOPT_MALFORMED;
	return FL_STAMP_FOUND | *(__u32 *)at;
}

/* Of the TCP header at l4, which has `size` bytes. */
static __always_inline int fl_timestamp_read(struct xdp_md *ctx, struct fl_lb_packet *p, void *l4,
					     const void *end, __u32 size)
{
	__s64 found;

	if (p->proto != IPPROTO_TCP)
		return FL_CONTINUE;
	/* The two layouts that nearly all stacks use: NOP NOP TS in segments,
	 * MSS SACK-permitted TS in SYNs (Linux). */
	if (likely(size >= 32 && l4 + 32 <= end && *(__u32 *)(l4 + 20) == FL_TCPOPT_ALIGNED)) {
		p->word = *(__u32 *)(l4 + 28);
		p->carried = FL_CARRIED_WHOLE;
		goto found;
	}
	if (size >= 36 && l4 + 36 <= end && *(__u16 *)(l4 + 20) == 0x0402 &&
	    *(__u32 *)(l4 + 24) == 0x0a080204) {
		p->word = *(__u32 *)(l4 + 32);
		p->carried = FL_CARRIED_WHOLE;
		goto found;
	}
	if (size == sizeof(struct tcphdr)) {
		p->carried = FL_CARRIED_NONE;
		return FL_CONTINUE;
	}
	found = fl_timestamp(ctx, p->l4, size - sizeof(struct tcphdr), 4);
	if (found == FL_TCPOPT_MALFORMED)
		return FL_DROP_MALFORMED_OPTION;
	if (found < 0) {
		p->carried = FL_CARRIED_NONE;
		return FL_CONTINUE;
	}
	p->word = (__u32)found;
	p->carried = FL_CARRIED_WHOLE;
found:
	p->word = bpf_ntohl(p->word);
	return FL_CONTINUE;
}

/* Of the quoted TCP header, size bytes of which are quoted at offset l4. */
static __always_inline int fl_timestamp_quoted(struct xdp_md *ctx, struct fl_lb_packet *p, __u32 l4,
					       __u32 size)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u8 *tcp = data + (l4 & FL_OFFSET_MASK);
	__u32 header, quoted;
	__s64 found;

	if (p->proto != IPPROTO_TCP)
		return FL_CONTINUE;
	p->carried = FL_CARRIED_CUT;
	if (size < sizeof(struct tcphdr) || (void *)(tcp + sizeof(struct tcphdr)) > end)
		return FL_CONTINUE;
	header = tcp[12] >> 4 << 2;
	if (header < sizeof(struct tcphdr))
		return FL_DROP_MALFORMED_L4;
	quoted = header < size ? header : size;
	found = fl_timestamp(ctx, l4, quoted - sizeof(struct tcphdr), 0);
	if (found >= 0) {
		p->carried = FL_CARRIED_WHOLE;
		p->word = bpf_ntohl((__u32)found);
	} else if (quoted == header) {
		if (found == FL_TCPOPT_MALFORMED)
			return FL_DROP_MALFORMED_OPTION;
		p->carried = FL_CARRIED_NONE;
	}
	return FL_CONTINUE;
}

#endif
