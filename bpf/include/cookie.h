/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Cheetah's cookie (paper §3.1, App. C; docs/wire-format.md draws it), whatever
 * carries it:
 *
 *   field = epoch parity (1 bit) | P(value) (bits - 1 bits), bits = 10..15
 *   shift = 32 - bits
 *   value = tier | slot | seat, the seat in the lowest seat_bits (scheme
 *           cheetah-stateful; else 0 bits), the tier in the highest tier_bits (two
 *           tiers; else 0 bits): neither, and the value is the slot
 *
 * P is a permutation keyed by the connection's hash, so a client that
 * changes its cookie lands on a slot of the same VIP at random. Decoding is
 * the cheap direction (multiply, xorshift); encoding, its inverse, happens
 * once a connection. Four rounds: with three, flipping the top bit moves the
 * slot by a guessable amount 16 to 255 times as often as chance (TestOpaque
 * measures it); with four at most 3 times. Go's twin is scheme/cheetah. */
#ifndef FAIRLEAD_COOKIE_H
#define FAIRLEAD_COOKIE_H

#include "siphash.h"

/* Hash of a connection as the balancer sees it (client is the source).
 * Addresses and ports as loaded from the packet (network byte order). */
static __always_inline __u64 fl_hash4(const __u64 *key, __u32 saddr, __u16 sport, __u16 dport)
{
	struct fl_sip s;

	fl_sip_init(&s, key);
	fl_sip_word(&s, (__u64)saddr | (__u64)sport << 32 | (__u64)dport << 48);
	return fl_sip_end(&s);
}

static __always_inline __u64 fl_hash6(const __u64 *key, __u64 saddr_hi, __u64 saddr_lo, __u16 sport,
				      __u16 dport)
{
	struct fl_sip s;

	fl_sip_init(&s, key);
	fl_sip_word(&s, saddr_hi); /* first eight bytes on the wire */
	fl_sip_word(&s, saddr_lo);
	fl_sip_word(&s, (__u64)sport | (__u64)dport << 16);
	return fl_sip_end(&s);
}

/* Parity of the epoch that a field was encoded under. */
static __always_inline __u32 fl_cookie_epoch(__u32 field, __u32 shift)
{
	return (field >> (31 - shift)) & 1;
}

/* P^-1: permuted bits of a field -> value. n = 31 - shift permuted bits. */
static __always_inline __u32 fl_cookie_value(__u64 hash, __u32 field, __u32 shift)
{
	__u32 n = 31 - shift, mask = (1u << n) - 1, half = (n + 1) >> 1;
	__u32 x = field & mask;

	x = (x + (__u32)(hash >> 48)) * ((__u32)hash | 1) & mask;
	x ^= x >> half;
	x = (x + (__u32)(hash >> 32)) * ((__u32)(hash >> 16) | 1) & mask;
	x ^= x >> half;
	x = (x + (__u32)(hash >> 8)) * ((__u32)(hash >> 40) | 1) & mask;
	x ^= x >> half;
	x = (x + (__u32)hash) * ((__u32)(hash >> 27) | 1) & mask;
	x ^= x >> half;
	return x;
}

/* Inverse of an odd number mod 2^32: Newton doubles the right bits, from 3
 * (a*a = 1 mod 8) to 6, 12, 24. 24 >= 14, the widest permutation. */
static __always_inline __u32 fl_odd_inverse(__u32 a)
{
	__u32 x = a;

	x *= 2 - a * x;
	x *= 2 - a * x;
	x *= 2 - a * x;
	return x;
}

/* The parts of a value. Seat 0 is none: the connection goes by its slot alone. */
static __always_inline __u32 fl_value_slot(__u32 value, __u32 seat_bits)
{
	return value >> (seat_bits & 15);
}

static __always_inline __u32 fl_value_seat(__u32 value, __u32 seat_bits)
{
	return value & ((1u << (seat_bits & 15)) - 1);
}

/* The bits of a value, which has n, that its slot and seat take; above it is its tier. */
static __always_inline __u32 fl_value_below(__u32 n, __u32 tier_bits)
{
	return (1u << ((n - tier_bits) & 15)) - 1;
}

/* What a balancer tells a server of a new connection, in the SYN's TSecr, which
 * holds nothing else: FL_TOLD and all parts of its value but the slot. */
#define FL_TOLD (1u << 31)

/* The field that names value under the epoch of the given parity. */
static __always_inline __u32 fl_cookie_encode(__u64 hash, __u32 value, __u32 epoch, __u32 shift)
{
	__u32 n = 31 - shift, mask = (1u << n) - 1, half = (n + 1) >> 1;
	__u32 x = value & mask;

	/* x ^= x >> half undoes itself because 2 * half >= n. */
	x ^= x >> half;
	x = (x * fl_odd_inverse((__u32)(hash >> 27) | 1) - (__u32)hash) & mask;
	x ^= x >> half;
	x = (x * fl_odd_inverse((__u32)(hash >> 40) | 1) - (__u32)(hash >> 8)) & mask;
	x ^= x >> half;
	x = (x * fl_odd_inverse((__u32)(hash >> 16) | 1) - (__u32)(hash >> 32)) & mask;
	x ^= x >> half;
	x = (x * fl_odd_inverse((__u32)hash | 1) - (__u32)(hash >> 48)) & mask;
	return (epoch & 1) << n | x;
}

#endif
