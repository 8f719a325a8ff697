/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* CFLB's path selector as a router reads it (Detal et al., 2012, sections 3.2
 * and 3.3, algorithm 1; docs/cflb.md). Go's twin is package fabric/pathsel; a
 * test holds them together.
 *
 *   fields ──back──▶ selector ──digit TTL mod L──▶ less H(u, TTL) ──▶ port ──live?──▶ hop
 *                                                                       └─no: hash─▶ hop
 *
 * In two stages, as the first does not need the route: fl_pathsel_read() of
 * the packet, then fl_pathsel_choose() of the route's group. Call the first with
 * a constant `six`: then nothing of the other family's is left in the code, and
 * the verifier removes the permutations that are not in use. */
#ifndef FAIRLEAD_PATHSEL_H
#define FAIRLEAD_PATHSEL_H

#include <stdbool.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define FL_PATHSEL_ROUNDS 8        /* of feistel */
#define FL_PATHSEL_RC5_ROUNDS 12
#define FL_PATHSEL_SKIP32_ROUNDS 24
#define FL_PATHSEL_MAX_LENGTH 32   /* digits: 32 bits, radix 2 */
#define FL_PATHSEL_MAX_RADIX 64
#define FL_PATHSEL_MAX_HOPS 64
#define FL_PATHSEL_NO_HOP 0xff

enum fl_permutation {
	FL_PERMUTATION_NONE,    /* no selectors: the router's hash alone */
	FL_PERMUTATION_FEISTEL,
	FL_PERMUTATION_RC5,
	FL_PERMUTATION_SKIP32,
};

enum fl_field {
	FL_FIELD_PORTS,       /* source << 16 | destination */
	FL_FIELD_SOURCE_PORT,
	FL_FIELD_FLOW_LABEL,
};

/* How a hop was chosen: see pathsel.How. */
enum fl_how {
	FL_HOW_SELECTED, /* the digit names a hop of the group */
	FL_HOW_GONE,     /* it names a port of the router that is none of the group's */
	FL_HOW_HASHED,   /* it names no port, or the packet has none */
	FL_HOW_SINGLE,   /* there was nothing to choose */
	FL_HOW_COUNT,
};

/* What differs between IPv4 ([0]) and IPv6 ([1]). */
struct fl_pathsel_family {
	__u64 round[FL_PATHSEL_ROUNDS][2]; /* feistel: xor, odd multiplier */
	__u32 power[FL_PATHSEL_MAX_LENGTH]; /* radix^position */
	__u32 last; /* greatest value that is a selector */
	__u32 inverse; /* 65536 / length + 1 */
	__u8 length; /* L */
	__u8 half; /* half of the fields' bits */
	__u8 field; /* enum fl_field */
	__u8 shift; /* log2(radix); 0: no power of two */
	__u32 pad;
};

/* Indices of fl_pathsel.multiply; addresses are one word each, or four. */
#define FL_PATHSEL_WORD_PROTO 8
#define FL_PATHSEL_WORD_OTHER 9
#define FL_PATHSEL_WORD_FIELD 10
#define FL_PATHSEL_WORD_TTL 11
#define FL_PATHSEL_WORDS 12

/* The fabric's selector: pathsel.Material. Meant to be `const volatile`. */
struct fl_pathsel {
	__u64 add;
	__u64 multiply[FL_PATHSEL_WORDS];
	__u64 finish[2]; /* odd */
	struct fl_pathsel_family family[2];
	__u16 rc5[2 * FL_PATHSEL_RC5_ROUNDS + 2];
	__u8 skip32[10];
	__u8 permutation; /* enum fl_permutation */
	__u8 radix; /* 2 to 64 */
};
_Static_assert(sizeof(struct fl_pathsel) == 120 + 2 * 272 + 64, "no padding in it");

/* Equal next hops: pathsel.Group, which documents the members. */
struct fl_pathsel_group {
	__u64 ports;
	__u64 known;
	__u32 count;
	__u32 even;
	__u8 hop[FL_PATHSEL_MAX_RADIX];
	__u32 last[FL_PATHSEL_MAX_HOPS];
};
_Static_assert(sizeof(struct fl_pathsel_group) == 24 + 64 + 256, "no padding in it");

/* What a router sees of a packet: pathsel.Flow. */
struct fl_flow {
	__u32 src[4];  /* as in the packet; IPv4 in [0] */
	__u32 dst[4];
	__u32 ports;   /* source << 16 | destination, host order; 0: it has none, or
	                * is a fragment, a first one, too */
	__u32 label;   /* IPv6's flow label, host order */
	__u8 proto;
};

/* What a packet says, before its route is known. */
struct fl_choice {
	__u64 own;     /* the router's hash; its upper 32 bits are good */
	__u32 digit;   /* below the radix */
	__u32 how;     /* FL_HOW_SELECTED, or HASHED: the digit was drawn */
};

/* ---- Permutations, from fields back to the selector --------------------- */

/* half is a constant. The round function folds the product's two words into
 * one: docs/cflb.md says why its uppermost half alone will not do. */
static __always_inline __u32 fl_pathsel_feistel(const volatile struct fl_pathsel_family *f,
						const __u32 half, __u32 fields)
{
	__u32 mask = (1u << half) - 1, r = fields >> half, l = fields & mask, before;
	__u64 y;
	int i;

#pragma unroll
	for (i = FL_PATHSEL_ROUNDS - 1; i >= 0; i--) {
		y = (l ^ f->round[i][0]) * f->round[i][1];
		before = r ^ (__u32)(y ^ y >> 32) >> (32 - half);
		r = l;
		l = before;
	}
	return l << half | r;
}

/* BPF cannot rotate: the word is doubled and shifted. */
static __always_inline __u16 fl_pathsel_rotate_right(__u16 x, __u16 by)
{
	return (__u16)(((__u32)x | (__u32)x << 16) >> (by & 15));
}

static __always_inline __u32 fl_pathsel_rc5(const volatile struct fl_pathsel *k, __u32 fields)
{
	__u16 a = fields >> 16, b = fields;
	int i;

#pragma unroll
	for (i = 2 * FL_PATHSEL_RC5_ROUNDS; i >= 2; i -= 2) {
		b = fl_pathsel_rotate_right(b - k->rc5[i + 1], a) ^ a;
		a = fl_pathsel_rotate_right(a - k->rc5[i], b) ^ b;
	}
	return (__u32)(__u16)(a - k->rc5[0]) << 16 | (__u16)(b - k->rc5[1]);
}

/* F of Skipjack's specification (NIST 1998, table 2). */
/* clang-format off */
static const __u8 fl_skipjack[256] = {
	0xa3, 0xd7, 0x09, 0x83, 0xf8, 0x48, 0xf6, 0xf4, 0xb3, 0x21, 0x15, 0x78, 0x99, 0xb1, 0xaf, 0xf9,
	0xe7, 0x2d, 0x4d, 0x8a, 0xce, 0x4c, 0xca, 0x2e, 0x52, 0x95, 0xd9, 0x1e, 0x4e, 0x38, 0x44, 0x28,
	0x0a, 0xdf, 0x02, 0xa0, 0x17, 0xf1, 0x60, 0x68, 0x12, 0xb7, 0x7a, 0xc3, 0xe9, 0xfa, 0x3d, 0x53,
	0x96, 0x84, 0x6b, 0xba, 0xf2, 0x63, 0x9a, 0x19, 0x7c, 0xae, 0xe5, 0xf5, 0xf7, 0x16, 0x6a, 0xa2,
	0x39, 0xb6, 0x7b, 0x0f, 0xc1, 0x93, 0x81, 0x1b, 0xee, 0xb4, 0x1a, 0xea, 0xd0, 0x91, 0x2f, 0xb8,
	0x55, 0xb9, 0xda, 0x85, 0x3f, 0x41, 0xbf, 0xe0, 0x5a, 0x58, 0x80, 0x5f, 0x66, 0x0b, 0xd8, 0x90,
	0x35, 0xd5, 0xc0, 0xa7, 0x33, 0x06, 0x65, 0x69, 0x45, 0x00, 0x94, 0x56, 0x6d, 0x98, 0x9b, 0x76,
	0x97, 0xfc, 0xb2, 0xc2, 0xb0, 0xfe, 0xdb, 0x20, 0xe1, 0xeb, 0xd6, 0xe4, 0xdd, 0x47, 0x4a, 0x1d,
	0x42, 0xed, 0x9e, 0x6e, 0x49, 0x3c, 0xcd, 0x43, 0x27, 0xd2, 0x07, 0xd4, 0xde, 0xc7, 0x67, 0x18,
	0x89, 0xcb, 0x30, 0x1f, 0x8d, 0xc6, 0x8f, 0xaa, 0xc8, 0x74, 0xdc, 0xc9, 0x5d, 0x5c, 0x31, 0xa4,
	0x70, 0x88, 0x61, 0x2c, 0x9f, 0x0d, 0x2b, 0x87, 0x50, 0x82, 0x54, 0x64, 0x26, 0x7d, 0x03, 0x40,
	0x34, 0x4b, 0x1c, 0x73, 0xd1, 0xc4, 0xfd, 0x3b, 0xcc, 0xfb, 0x7f, 0xab, 0xe6, 0x3e, 0x5b, 0xa5,
	0xad, 0x04, 0x23, 0x9c, 0x14, 0x51, 0x22, 0xf0, 0x29, 0x79, 0x71, 0x7e, 0xff, 0x8c, 0x0e, 0xe2,
	0x0c, 0xef, 0xbc, 0x72, 0x75, 0x6f, 0x37, 0xa1, 0xec, 0xd3, 0x8e, 0x62, 0x8b, 0x86, 0x10, 0xe8,
	0x08, 0x77, 0x11, 0xbe, 0x92, 0x4f, 0x24, 0xc5, 0x32, 0x36, 0x9d, 0xcf, 0xf3, 0xa6, 0xbb, 0xac,
	0x5e, 0x6c, 0xa9, 0x13, 0x57, 0x25, 0xb5, 0xe3, 0xbd, 0xa8, 0x3a, 0x01, 0x05, 0x59, 0x2a, 0x46,
};
/* clang-format on */

/* Skipjack's G: round is a constant after unrolling, so no division is left. */
static __always_inline __u16 fl_pathsel_skip32_g(const volatile struct fl_pathsel *k, int round,
						 __u16 w)
{
	__u8 hi = w >> 8, lo = w;

	hi ^= fl_skipjack[(__u8)(lo ^ k->skip32[4 * round % 10])];
	lo ^= fl_skipjack[(__u8)(hi ^ k->skip32[(4 * round + 1) % 10])];
	hi ^= fl_skipjack[(__u8)(lo ^ k->skip32[(4 * round + 2) % 10])];
	lo ^= fl_skipjack[(__u8)(hi ^ k->skip32[(4 * round + 3) % 10])];
	return (__u16)(hi << 8 | lo);
}

static __always_inline __u32 fl_pathsel_skip32(const volatile struct fl_pathsel *k, __u32 fields)
{
	__u16 r = fields >> 16, l = fields;
	int i;

#pragma unroll
	for (i = FL_PATHSEL_SKIP32_ROUNDS - 2; i >= 0; i -= 2) {
		l ^= fl_pathsel_skip32_g(k, i + 1, r) ^ (i + 1);
		r ^= fl_pathsel_skip32_g(k, i, l) ^ i;
	}
	return (__u32)l << 16 | r;
}

static __always_inline __u32 fl_pathsel_back(const volatile struct fl_pathsel *k, bool six,
					     __u32 fields)
{
	switch (k->permutation) {
	case FL_PERMUTATION_RC5:
		return fl_pathsel_rc5(k, fields);
	case FL_PERMUTATION_SKIP32:
		return fl_pathsel_skip32(k, fields);
	}
	switch (k->family[six].field) {
	case FL_FIELD_SOURCE_PORT:
		return fl_pathsel_feistel(&k->family[six], 8, fields);
	case FL_FIELD_FLOW_LABEL:
		return fl_pathsel_feistel(&k->family[six], 10, fields);
	}
	return fl_pathsel_feistel(&k->family[six], 16, fields);
}

/* ---- Hashes: why these is said in hash.go ------------------------------- */

/* The sum over what a source cannot choose. */
static __always_inline __u64 fl_pathsel_sum(const volatile struct fl_pathsel *k, bool six,
					    const struct fl_flow *flow, __u32 other)
{
	__u64 sum = k->add + k->multiply[FL_PATHSEL_WORD_PROTO] * flow->proto;
	int i;

	if (six) {
#pragma unroll
		for (i = 0; i < 4; i++)
			sum += k->multiply[i] * flow->src[i] + k->multiply[4 + i] * flow->dst[i];
	} else {
		sum += k->multiply[0] * flow->src[0] + k->multiply[1] * flow->dst[0];
	}
	if (k->family[six].field != FL_FIELD_PORTS)
		sum += k->multiply[FL_PATHSEL_WORD_OTHER] * other;
	return sum;
}

/* The router's own hash. */
static __always_inline __u64 fl_pathsel_own(const volatile struct fl_pathsel *k,
					    const volatile __u64 *seed, __u64 sum, __u32 fields)
{
	__u64 h = (sum + k->multiply[FL_PATHSEL_WORD_FIELD] * fields) ^ seed[0];

	h = (h ^ h >> 32) * seed[1];
	return (h ^ h >> 29) * k->finish[0];
}

/* ---- Reading ------------------------------------------------------------- */

/* The port that a selector names at a time to live. */
static __always_inline __u32 fl_pathsel_digit(const volatile struct fl_pathsel *k, bool six,
					      __u32 p, __u64 sum, __u8 ttl)
{
	const volatile struct fl_pathsel_family *f = &k->family[six];
	/* ttl / length without dividing. f->inverse is at most 1 too large, so that
	 * the quotient is at most 255 / 65536 too large, which is less than
	 * 1 / length, the distance to the next whole number. */
	__u32 position = ttl - (ttl * f->inverse >> 16) * f->length;
	__u32 radix = k->radix, digit, shift;
	__u64 h = sum + k->multiply[FL_PATHSEL_WORD_TTL] * ttl;

	h = (h ^ h >> 32) * k->finish[0];
	h = (h ^ h >> 32) * k->finish[1];
	shift = (h >> 32) * radix >> 32;
	if (f->shift)
		return ((p >> (f->shift * position & 31)) - shift) & (radix - 1);
	digit = p / f->power[position & (FL_PATHSEL_MAX_LENGTH - 1)] % radix + radix - shift;
	return digit < radix ? digit : digit - radix;
}

/* Reads a packet; seed: pathsel.Router.Seed; ttl as received. */
static __always_inline void fl_pathsel_read(const volatile struct fl_pathsel *k,
					    const volatile __u64 *seed, const struct fl_flow *flow,
					    bool six, __u8 ttl, struct fl_choice *c)
{
	__u32 fields = flow->ports, other = 0, p = 0;
	__u64 sum;

	switch (k->family[six].field) {
	case FL_FIELD_SOURCE_PORT:
		fields = flow->ports >> 16;
		other = flow->ports & 0xffff;
		break;
	case FL_FIELD_FLOW_LABEL:
		fields = flow->label;
		other = flow->ports;
		break;
	}
	if (fields && k->permutation != FL_PERMUTATION_NONE)
		p = fl_pathsel_back(k, six, fields);
	sum = fl_pathsel_sum(k, six, flow, other);
	c->own = fl_pathsel_own(k, seed, sum, fields);
	c->how = FL_HOW_HASHED;
	c->digit = 0;
	if (k->permutation == FL_PERMUTATION_NONE)
		return;
	if (fields && p <= k->family[six].last) {
		c->how = FL_HOW_SELECTED;
		c->digit = fl_pathsel_digit(k, six, p, sum, ttl);
	} else {
		__u64 again = (c->own ^ c->own >> 32) * k->finish[1];

		c->digit = (again >> 32) * k->radix >> 32;
	}
}

/* The hop that the hash takes. */
static __always_inline __u32 fl_pathsel_hashed(const struct fl_pathsel_group *g, __u32 hash)
{
	__u32 at = 0, step;

	if (g->even)
		return (__u64)hash * g->count >> 32;
#pragma unroll
	for (step = FL_PATHSEL_MAX_HOPS / 2; step; step /= 2)
		if (hash > g->last[(at + step - 1) & (FL_PATHSEL_MAX_HOPS - 1)])
			at += step;
	return at;
}

/* Takes one of a group's hops: its index, below 64. A group has no numbered
 * hops where there are no selectors. */
static __always_inline __u32 fl_pathsel_choose(const volatile struct fl_pathsel *k,
					       const struct fl_pathsel_group *g,
					       const struct fl_choice *c, enum fl_how *how)
{
	__u32 digit = c->digit & (FL_PATHSEL_MAX_RADIX - 1), hashed, is, known;

	if (g->count == 1) {
		*how = FL_HOW_SINGLE;
		return 0;
	}
	*how = c->how;
	hashed = fl_pathsel_hashed(g, c->own >> 32);
	if (k->permutation != FL_PERMUTATION_NONE) {
		/* Without a jump: which of the two it is, the digit's hop or the
		 * hash's, is random for most traffic, and a jump that the processor
		 * foresaw wrongly costs as much as some rounds. */
		is = -(__u32)(g->ports >> digit & 1);
		known = g->known >> digit & 1;
		barrier_var(is);
		hashed = (g->hop[digit] & is) | (hashed & ~is);
		if (c->how == FL_HOW_SELECTED)
			*how = (FL_HOW_HASHED - known) & ~is;
	}
	return hashed & (FL_PATHSEL_MAX_HOPS - 1);
}

#endif
