/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* In: what stands before the packet. */
#ifndef FAIRLEAD_HOST_OUTER_H
#define FAIRLEAD_HOST_OUTER_H

#include "packet.h"
#include "question.h"

struct fl_outer {
	__u64 src[2];      /* outer source and destination, as in fl_host_vip */
	__u64 dst[2];
	__u16 hops_at;      /* their offset, unless hops_place is FL_HOPS_IN_NONE */
	__u16 inner;       /* offset of the inner IP header; without a tunnel, of the
	                    * packet's own */
	__u16 udp;         /* offset of the outer UDP header, with FL_HOPS_IN_UDP */
	__u16 cut;         /* bytes between the Ethernet header and inner */
	__u16 inner_proto; /* ETH_P_IP or ETH_P_IPV6, BE */
	__u16 l2_len;      /* 14, or 18 with a tag */
	__u8 congested;    /* the outer header says: congestion experienced */
	__u8 hops_place;   /* enum fl_hops_place */
	__u8 ipv6;         /* the outer header is */
	__u8 forwarding;   /* enum fl_forwarding, where cut is not 0 */
};

#endif
