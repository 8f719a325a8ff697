/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Forwarding l2: a new Ethernet header, nothing else.
 *
 *   Ethernet [tag] | packet as it came */
#ifndef FAIRLEAD_LB_FORWARD_L2_H
#define FAIRLEAD_LB_FORWARD_L2_H

#include "outer.h"

/* Returns the XDP action,
 * XDP_ABORTED where there is no room for a tag. l3_family: offset of the IP
 * header << 8 | 4 or 6. A function of its own, for the sake of the verifier. */
__noinline int fl_l2(struct xdp_md *ctx, __u64 mac_dst, __u64 mac_src, __u32 l3_family,
		     __u32 ifindex)
{
	__u32 l2 = mac_src >> 48 ? ETH_HLEN + 4 : ETH_HLEN;
	void *data, *end;

	if (bpf_xdp_adjust_head(ctx, (int)((l3_family >> 8) - l2)))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN + 4 > end)
		return XDP_ABORTED;
	fl_ethernet(data, mac_dst, mac_src,
		    (l3_family & 0xff) == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6));
	return fl_send(ctx, ifindex);
}

#endif
