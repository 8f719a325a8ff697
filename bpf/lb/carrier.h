/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Carriers: where in a packet a cookie travels, a header each. A carrier reads
 * what it holds into p->word and says in p->carried whether it does; of a
 * segment, of what an ICMP error quotes; and tells the cookie's field of it. */
#ifndef FAIRLEAD_LB_CARRIER_H
#define FAIRLEAD_LB_CARRIER_H

#include "carrier_tcp_timestamp.h"

/* Of the segment or datagram at l4, whose header has `size` bytes. Returns FL_CONTINUE, or
 * why it is malformed. */
static __always_inline int fl_carrier_read(struct xdp_md *ctx, const struct fl_vip *v,
					   struct fl_lb_packet *p, void *l4, const void *end,
					   __u32 size)
{
	switch (v->carrier) {
	case FL_CARRIER_TCP_TIMESTAMP:
		return fl_timestamp_read(ctx, p, l4, end, size);
	}
	return FL_CONTINUE;
}

/* Of the quoted one, size bytes of which are quoted at offset l4. v: whose it is,
 * NULL: nobody's. */
static __always_inline int fl_carrier_quoted(struct xdp_md *ctx, const struct fl_vip *v,
					     struct fl_lb_packet *p, __u32 l4, __u32 size)
{
	switch (v ? v->carrier : 0) {
	case FL_CARRIER_TCP_TIMESTAMP:
		return fl_timestamp_quoted(ctx, p, l4, size);
	}
	return FL_CONTINUE;
}

static __always_inline __u32 fl_carrier_field(const struct fl_vip *v, const struct fl_lb_packet *p,
					      __u32 now)
{
	switch (v->carrier) {
	case FL_CARRIER_TCP_TIMESTAMP:
		return fl_timestamp_field(p->word, now, v->shift);
	}
	return 0;
}

#endif
