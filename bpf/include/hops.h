/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Hops: what a tunnel of scheme beamer says beside the packet (docs/wire-format.md,
 * "Hops"; Beamer, NSDI'18, "daisy chaining", with a chain in place of the one
 * previous server). Sixteen octets, the same wherever they stand:
 *
 *   0       type: FL_HOPS_OPTION, in IPv6 FL_HOPS_OPTION6
 *   1       length: 16, in IPv6 14 (its options do not count type and length)
 *   2-7     previous[3], slots, BE, newest first; FL_BUCKET_NONE: none
 *   8-11    time of the bucket's last move, shared ms, BE
 *   12-15   generation of the bucket table, BE
 *
 * where they stand:
 *
 *   gue           private data behind GUE's four octets, hlen 4, flags 0
 *   ipip, IPv4    the one option of the outer header, ihl 9
 *   ipip, IPv6    a destination options header of 24 octets: next header,
 *                 length 2, PadN of six octets, then the hops
 *
 * Go's twin is wire.Hops. */
#ifndef FAIRLEAD_HOPS_H
#define FAIRLEAD_HOPS_H

#include <linux/types.h>
#include <bpf/bpf_endian.h>

#include "fairlead.h"

#define FL_HOPS_BYTES 16
#define FL_HOPS6_BYTES 24 /* with the destination options header before them */
#define FL_HOPS_OPTION 0x9e  /* copied, class 0, number 30: RFC 3692's experiment */
#define FL_HOPS_OPTION6 0x1e /* skipped by who does not know it: RFC 4727's experiment */

/* As loaded: octets 0 and 1. */
#define FL_HOPS_TYPE (FL_HOPS_OPTION | FL_HOPS_BYTES << 8)
#define FL_HOPS_TYPE6 (FL_HOPS_OPTION6 | (FL_HOPS_BYTES - 2) << 8)

/* As loaded: octets 0-7 of hops without a chain. */
#define FL_HOPS_EMPTY (0xffffffffffff0000ULL | FL_HOPS_TYPE)

/* Whether octets 0-7 hold no chain, wherever they stand. */
#define fl_hops_empty(chain) (((chain) | 0xffff) == (FL_HOPS_EMPTY | 0xffff))

/* As loaded: the destination options header's first eight octets but for the
 * next header, which is octet 0. */
#define FL_HOPS6_HEAD (2ULL << 8 | 1ULL << 16 | 4ULL << 24)

/* Hops as two words, as they are stored to and loaded from the packet. */
struct fl_hops {
	__u64 chain; /* octets 0-7 */
	__u64 when;  /* octets 8-15 */
};

/* Octets 0-7 from previous[0..2]. */
static __always_inline __u64 fl_hops_chain(__u16 p0, __u16 p1, __u16 p2)
{
	return FL_HOPS_TYPE | (__u64)bpf_htons(p0) << 16 | (__u64)bpf_htons(p1) << 32 |
	       (__u64)bpf_htons(p2) << 48;
}

/* Octets 8-15. */
static __always_inline __u64 fl_hops_when(__u32 time, __u32 generation)
{
	return bpf_htonl(time) | (__u64)bpf_htonl(generation) << 32;
}

/* previous[i], 0..2 (a constant). */
static __always_inline __u16 fl_hops_previous(const struct fl_hops *h, int i)
{
	return bpf_ntohs((__u16)(h->chain >> (16 + 16 * i)));
}

static __always_inline __u32 fl_hops_time(const struct fl_hops *h)
{
	return bpf_ntohl((__u32)h->when);
}

static __always_inline __u32 fl_hops_generation(const struct fl_hops *h)
{
	return bpf_ntohl((__u32)(h->when >> 32));
}

/* Without its first server: for the one who passes the packet on to it. */
static __always_inline __u64 fl_hops_shift(__u64 chain)
{
	return (chain & 0xffff) | (chain >> 32 << 16) | 0xffffULL << 48;
}

#endif
