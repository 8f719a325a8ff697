/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Finding the VIP of an address, and how a moment is stamped. */
#ifndef FAIRLEAD_HOST_VIP_H
#define FAIRLEAD_HOST_VIP_H

#include "maps.h"
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

/* Hash of the connection under the key of an epoch's parity. */
static __always_inline __u64 fl_host_hash(const struct fl_host_vip *v, __u32 parity,
					  const __u64 *client, __u16 sport, __u16 dport)
{
	const __u64 *key = v->key[parity & 1];

	if (fl_is_mapped(client))
		return fl_hash4(key, client[1] >> 32, sport, dport);
	return fl_hash6(key, client[0], client[1], sport, dport);
}

/* What a connection is stamped with. */
struct fl_stamp {
	__u32 slot;
	__u32 epoch; /* parity */
};

/* How a SYN-ACK sent at ms (CLOCK_MONOTONIC) is stamped; 0: not at all, since
 * this server had no slot then. See struct fl_host_vip. */
static __always_inline _Bool fl_stamp_at(const struct fl_host_vip *v, __u64 ms, struct fl_stamp *s)
{
	__u32 other = (v->stamp_epoch ^ 1) & 1;

	s->slot = v->slot;
	if (ms < v->slot_since) {
		if (v->old_slot == FL_NO_SLOT)
			return 0;
		s->slot = v->old_slot;
	}
	s->epoch = v->stamp_epoch & 1;
	if (ms < v->stamp_since && v->epochs >> other & 1)
		s->epoch = other;
	return 1;
}

static __always_inline __u64 fl_monotonic_ms(void)
{
	return bpf_ktime_get_ns() / 1000000;
}

/* The full time of a 32-bit millisecond reading that is not in the future. */
static __always_inline __u64 fl_full_ms(__u64 now, __u32 ms)
{
	__u32 age = (__u32)now - ms;

	return (__s32)age < 0 ? now : now - age;
}

#endif
