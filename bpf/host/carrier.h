/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Carriers: where in a packet a cookie travels, a header each. A carrier undoes the
 * cookie before the stack sees it, and stamps what goes out. */
#ifndef FAIRLEAD_HOST_CARRIER_H
#define FAIRLEAD_HOST_CARRIER_H

#include "carrier_tcp_timestamp.h"

/* Returns 1 where the packet was restored, 0 where it needs nothing, -1 where it
 * is malformed. */
static __always_inline int fl_carrier_undo(struct xdp_md *ctx, const struct fl_host_control *c,
					   const struct fl_host_vip *v,
					   const struct fl_host_packet *p, const void *end)
{
	return p->proto == IPPROTO_TCP ? fl_restore(ctx, c, v, p, end) : 0;
}

/* Whether what leaves by the protocol may have to be stamped. */
static __always_inline _Bool fl_carries(__u8 proto)
{
	return proto == IPPROTO_TCP;
}

/* What no full socket sends; of one that has a constant, fl_stamp_socket. */
static __always_inline void fl_carrier_stamp(struct __sk_buff *skb, struct fl_host_control *c,
					     const struct fl_host_vip *v, struct fl_cursor *cur,
					     struct fl_host_packet *p)
{
	fl_stamp_answer(skb, c, v, cur, p);
}

#endif
