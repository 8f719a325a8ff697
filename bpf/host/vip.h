/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Finding the VIP of an address. */
#ifndef FAIRLEAD_HOST_VIP_H
#define FAIRLEAD_HOST_VIP_H

#include "maps.h"
#include "scheme.h"
#include "cookie.h"
#include "ipv6.h"
#include "vip_table.h"

static __always_inline struct fl_host_vip *fl_host_vip_at(__u32 index, const __u64 *addr,
							  __u32 service)
{
	struct fl_host_vip *v = bpf_map_lookup_elem(&host_vips, &index);

	/* port, proto and used are one word: 24..31 used = 1. */
	if (v && v->addr[1] == addr[1] && v->addr[0] == addr[0] &&
	    *(__u32 *)&v->port == (service | 1u << 24))
		return v;
	return 0;
}

static __always_inline struct fl_host_vip *
fl_host_vip_exact(const struct fl_host_control *c, const __u64 *addr, __u16 port, __u8 proto)
{
	__u32 half = c->active & 1, service = port | (__u32)proto << 16;
	__u64 product = fl_vip_product(addr[0], addr[1], port, proto, c->vip_seed[half]);
	struct fl_host_vip *v;

	v = fl_host_vip_at(half * FL_VIP_LINES + FL_VIP_LINE1(product), addr, service);
	if (v)
		return v;
	return fl_host_vip_at(half * FL_VIP_LINES + FL_VIP_LINE2(product), addr, service);
}

/* The service at addr and port (BE); a VIP of all ports has port 0. */
static __always_inline struct fl_host_vip *
fl_host_vip_find(const struct fl_host_control *c, const __u64 *addr, __u16 port, __u8 proto)
{
	struct fl_host_vip *v = fl_host_vip_exact(c, addr, port, proto);

	if (v || !port)
		return v;
	return fl_host_vip_exact(c, addr, 0, proto);
}

#endif
