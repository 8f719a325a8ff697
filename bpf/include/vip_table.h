/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where in a VIP table a key stands: one of two lines, both taken from one
 * product. User space (Go's tables.Build) places the entries and tries
 * seeds until all fit. */
#ifndef FAIRLEAD_VIP_TABLE_H
#define FAIRLEAD_VIP_TABLE_H

#include "fairlead.h"

/* addr as in fl_vip.addr, port BE as loaded. */
static __always_inline __u64 fl_vip_product(__u64 addr0, __u64 addr1, __u16 port, __u8 proto,
					    __u64 seed)
{
	/* IPv4 has addr0 == 0: the compiler cannot know, the multiply is cheap. */
	__u64 x = addr1 ^ addr0 * 0x9e3779b97f4a7c15ULL ^ ((__u64)port << 16 | proto);

	/* A product's bits depend only on lower bits of its factors: without
	 * the fold, the last octet of an address would not reach line 2. */
	x ^= x >> 32;
	return x * seed;
}

#define FL_VIP_LINE1(product) ((product) >> (64 - FL_VIP_BITS))
#define FL_VIP_LINE2(product) (((product) >> (64 - 2 * FL_VIP_BITS)) & (FL_VIP_LINES - 1))

#endif
