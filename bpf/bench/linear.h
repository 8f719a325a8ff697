/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Hashes that are linear in a packet's tuple: Toeplitz, with which NICs spread packets
 * over queues, and CRC-32C. BPF has an instruction for neither. The hash of twelve
 * octets is the exclusive or of what each contributes, from a table of their own:
 * user space fills the table for the one or the other (bench/linear.go). */
#ifndef FAIRLEAD_BENCH_LINEAR_H
#define FAIRLEAD_BENCH_LINEAR_H

#include "floor.h"

struct linear_hash {
	__u32 octet[12][256];
	__u32 empty; /* of twelve zeros */
	__u32 pad;
};

struct linear_hash linear_toeplitz SEC(".data.linear");
struct linear_hash linear_crc SEC(".data.linear");

#define LINEAR_WORD(h, i, w)                                                \
	((h)->octet[i][(w) & 0xff] ^ (h)->octet[(i) + 1][(w) >> 8 & 0xff] ^ \
	 (h)->octet[(i) + 2][(w) >> 16 & 0xff] ^ (h)->octet[(i) + 3][(w) >> 24])

/* Source, destination, ports, as they stand in the packet. */
static __always_inline __u32 linear_of(const struct linear_hash *h, const struct floor_packet *p)
{
	__u32 ports = p->sport | (__u32)p->dport << 16;

	return h->empty ^ LINEAR_WORD(h, 0, p->saddr) ^ LINEAR_WORD(h, 4, p->daddr) ^
	       LINEAR_WORD(h, 8, ports);
}

#endif
