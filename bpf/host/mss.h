/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Out: lowers the MSS that a SYN-ACK offers, so that what the client sends
 * still fits when a balancer has put a tunnel's headers before it. */
#ifndef FAIRLEAD_HOST_MSS_H
#define FAIRLEAD_HOST_MSS_H

#include "edit.h"

/* Offset of the MSS option's value from the TCP header's start, or 0. Linux
 * writes it first in every SYN-ACK; only there is it looked for. */
static __always_inline int fl_mss_offset(const struct tcphdr *tcp, const void *end)
{
	const __u8 *opts = (const __u8 *)(tcp + 1);

	if (tcp->doff < 6 || (const void *)(opts + 4) > end || opts[0] != 2 || opts[1] != 4)
		return 0;
	return sizeof(*tcp) + 2;
}

/* Pointers into the packet are void afterwards. */
static __always_inline void fl_clamp_mss(struct __sk_buff *skb, void *data, struct tcphdr *tcp,
					 __u16 mss, void *end)
{
	__u32 was, is;
	int at = fl_mss_offset(tcp, end);

	if (!at)
		return;
	/* Kind, length and value are one aligned word. */
	was = *(__u32 *)((void *)tcp + sizeof(*tcp));
	if (bpf_ntohl(was) << 16 >> 16 <= mss)
		return;
	is = bpf_htonl((bpf_ntohl(was) & 0xffff0000) | mss);
	if (!fl_edit_word(skb, data, tcp, sizeof(*tcp), was, is, end))
		fl_host_reason(FL_HOST_OUT_MSS_CLAMPED, skb->len - ETH_HLEN);
}

#endif
