/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The Internet checksum (RFC 1071, RFC 1624). Sums are kept unfolded in 64
 * bits, in the packet's own byte order: ones' complement addition does not
 * care which byte comes first as long as all words agree. */
#ifndef FAIRLEAD_CSUM_H
#define FAIRLEAD_CSUM_H

#include <linux/types.h>

/* Folds an unfolded sum to 16 bits, not complemented. A sum of less than 2^16
 * 32-bit words is under 2^48: the first fold leaves under 2^33, the second
 * under 2^18, the third under 2^16 + 3, the fourth at most 0xffff. */
static __always_inline __u16 fl_csum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

/* Whether the header of an IPv4 packet without options has the right checksum:
 * whether its words' sum is a multiple of 0xffff (it is never 0). By the inverse
 * of 0xffff modulo 2^64 a multiple becomes its quotient, at most 2^64 / 0xffff,
 * any other number more. */
static __always_inline _Bool fl_csum_good4(const void *header)
{
	const __u32 *word = header;
	__u64 sum = (__u64)word[0] + word[1] + word[2] + word[3] + word[4];

	return sum * 0xfffefffefffeffffULL <= 0x0001000100010001ULL;
}

/* The checksum field for an unfolded sum over everything else. */
static __always_inline __u16 fl_csum_finish(__u64 sum)
{
	return (__u16)~fl_csum_fold(sum);
}

/* The checksum field after a 32-bit word of the covered bytes has changed,
 * RFC 1624 equation 3: HC' = ~(~HC + ~m + m'). The word must start at an even
 * offset of the covered bytes; at an odd one swap it first (fl_csum_odd). */
static __always_inline __u16 fl_csum_replace32(__u16 check, __u32 from, __u32 to)
{
	return fl_csum_finish((__u64)(__u16)~check + (__u32)~from + to);
}

static __always_inline __u16 fl_csum_replace16(__u16 check, __u16 from, __u16 to)
{
	return fl_csum_finish((__u64)(__u16)~check + (__u16)~from + to);
}

/* A word at an odd offset contributes with the bytes of each half swapped. */
static __always_inline __u32 fl_csum_odd(__u32 word)
{
	return (word & 0x00ff00ff) << 8 | (word >> 8 & 0x00ff00ff);
}

#endif
