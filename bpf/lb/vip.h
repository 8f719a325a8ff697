/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 2: which VIP? First address, port and protocol, then a VIP of all
 * ports. Where neither stands, the address's own entry tells a packet that is
 * for nobody from one that is for a VIP but for nothing we serve. */
#ifndef FAIRLEAD_LB_VIP_H
#define FAIRLEAD_LB_VIP_H

#include "vip_table.h"
#include "maps.h"
#include "packet.h"

/* Which half of vips and tables this packet sees, read once. */
struct fl_snapshot {
	__u32 half;
	__u64 seed;
	__u32 now;
	bool tunnelled; /* it came in a tunnel from tier one */
};

static __always_inline bool fl_vip_is(const struct fl_vip *v, __u64 addr0, __u64 addr1, __u16 port,
				      __u8 proto)
{
	/* port, proto and used as one word; used is 1. */
	return v->addr[1] == addr1 && v->addr[0] == addr0 &&
	       *(__u32 *)&v->port == (port | (__u32)proto << 16 | 1u << 24);
}

static __always_inline struct fl_vip *fl_vip_at(const struct fl_snapshot *s, const __u64 *addr,
						__u16 port, __u8 proto)
{
	__u64 product = fl_vip_product(addr[0], addr[1], port, proto, s->seed);
	struct fl_vip *v = &vips[s->half][FL_VIP_LINE1(product)];

	if (likely(fl_vip_is(v, addr[0], addr[1], port, proto)))
		return v;
	v = &vips[s->half][FL_VIP_LINE2(product)];
	if (fl_vip_is(v, addr[0], addr[1], port, proto))
		return v;
	return NULL;
}

/* The address's own entry (no service), or NULL. */
static __always_inline struct fl_vip *fl_vip_address(const struct fl_snapshot *s,
						     const struct fl_lb_packet *p)
{
	return fl_vip_at(s, p->daddr, 0, p->family == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6);
}

static __always_inline struct fl_vip *fl_vip_find(const struct fl_snapshot *s,
						  const struct fl_lb_packet *p)
{
	struct fl_vip *v;

	if (p->kind == FL_KIND_FRAGMENT)
		return fl_vip_at(s, p->daddr, 0, p->proto | FL_PROTO_FRAG);
	v = fl_vip_at(s, p->daddr, p->dport, p->proto);
	return likely(v) ? v : fl_vip_at(s, p->daddr, 0, p->proto);
}

#endif
