/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 2: does the kernel route packets that come in there? */
#ifndef FAIRLEAD_ROUTER_INPUT_H
#define FAIRLEAD_ROUTER_INPUT_H

#include "maps.h"
#include "packet.h"

static __always_inline int fl_input(struct xdp_md *ctx, const struct fl_router_packet *p)
{
	struct fl_input_key key = { .ifindex = ctx->ingress_ifindex, .vlan = p->vlan };
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 *input = bpf_map_lookup_elem(&inputs, &key), word;

	if (!input)
		return FL_PASS_INPUT;
	word = *(volatile __u64 *)input;
	if (data + 8 > end || (*(__u64 *)data ^ word) << 16)
		return FL_PASS_OTHER_MAC;
	if (!(word >> 48 & (p->family == 4 ? FL_INPUT_IPV4 : FL_INPUT_IPV6)))
		return FL_PASS_NOT_FORWARDING;
	return p->ttl > 1 ? FL_CONTINUE : FL_PASS_TTL;
}

#endif
