/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Is the frame for this machine? A promiscuous interface, a bridge that floods
 * and whoever sends to all show frames that the kernel would not take; to
 * forward those would be to forward a packet twice, or round for ever. They are
 * the kernel's, which knows who else on this machine wants them. */
#ifndef FAIRLEAD_LB_INPUT_H
#define FAIRLEAD_LB_INPUT_H

#include "maps.h"
#include "packet.h"

/* By the cache alone: false for a frame that fl_mine may know better. start: the
 * frame's first 8 bytes. */
static __always_inline bool fl_mine_at_once(struct xdp_md *ctx, __u64 start, __u32 vlan)
{
	__u64 word = FL_INPUT_WORD(start, vlan);
	__u32 ifindex = ctx->ingress_ifindex;
	const struct fl_input *in = &input_cache[FL_INPUT_LINE(word, ifindex)];

	return likely(in->word == word && in->ifindex == ifindex) || !control.inputs;
}

static __always_inline bool fl_mine(struct xdp_md *ctx, __u64 start, __u32 vlan)
{
	struct fl_input key = { .word = FL_INPUT_WORD(start, vlan),
				.ifindex = ctx->ingress_ifindex };

	return fl_mine_at_once(ctx, start, vlan) || bpf_map_lookup_elem(&inputs, &key);
}

#endif
