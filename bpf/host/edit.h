/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Out: changing a word of a TCP header and its checksum on the way out.
 *
 * The stack hands over most packets with CHECKSUM_PARTIAL: the checksum field
 * holds the pseudo-header's sum only and the device (or the kernel, later)
 * adds the rest, so a change of the header needs nothing. Where the checksum
 * is complete it is fixed here. Super-packets (GSO) are always PARTIAL, and
 * their segments copy the options: one change serves all. */
#ifndef FAIRLEAD_HOST_EDIT_H
#define FAIRLEAD_HOST_EDIT_H

#include <bpf/bpf_core_read.h>
#include "csum.h"
#include "kernel.h"
#include "packet.h"

/* Changes the word at `at` bytes into the TCP header from `was` to `is` (as
 * in the packet). Pointers into the packet are void afterwards. 0: done. */
static __always_inline int fl_edit_word(struct __sk_buff *skb, void *data, struct tcphdr *tcp,
					int at, __u32 was, __u32 is, void *end)
{
	__u32 *word = (void *)tcp + fl_option_offset(at);

	/* Reading ip_summed directly saves two helper calls a packet; on older
	 * kernels bpf_l4_csum_replace looks at it for us. */
	if (bpf_ksym_exists(bpf_cast_to_kern_ctx)) {
		struct sk_buff *kernel = bpf_cast_to_kern_ctx(skb);

		if ((void *)(word + 1) > end || (void *)(tcp + 1) > end)
			return -1;
		*word = is;
		if (BPF_CORE_READ_BITFIELD(kernel, ip_summed) != FL_CHECKSUM_PARTIAL) {
			if (at & 1) {
				was = fl_csum_odd(was);
				is = fl_csum_odd(is);
			}
			tcp->check = fl_csum_replace32(tcp->check, was, is);
		}
		return 0;
	}
	__u32 l4 = (void *)tcp - data;

	if (bpf_l4_csum_replace(skb, l4 + __builtin_offsetof(struct tcphdr, check),
				at & 1 ? fl_csum_odd(was) : was, at & 1 ? fl_csum_odd(is) : is, 4))
		return -1;
	return bpf_skb_store_bytes(skb, l4 + at, &is, 4, 0);
}

#endif
