/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The SYN cookies that the programs answer with: first sequence numbers by which the
 * ACK that ends a handshake says, unforgeably, what the SYN began. Go's twin is
 * scheme/cheetah (syncookie.go).
 *
 *   31        23          11            0
 *   | options  |  early    |   whole    |
 *
 *   options  MSS (3 bits), window scale (4), SACK (1), ECN (1), hidden by 9 bits of
 *            the first MAC
 *   early    12 bits of the first MAC, over the client, the VIP and the time
 *   whole    11 bits of the second, over that and the client's first number
 *
 * Two, since a segment may come before the one that it follows: early says that
 * its handshake is ours, whole that the segment is the first. One that is not is
 * dropped, for the stack would reset it, and comes again after the first.
 *
 * The time is the timestamp itself, which the client echoes and which has the cookie
 * of Cheetah in it (10 bits or more that a forger must guess as well). A client
 * without timestamps says half a FL_OFFLOAD_MS instead, and no options but its MSS:
 * six bits that have to be as they are. */
#ifndef FAIRLEAD_HOST_SYNCOOKIE_H
#define FAIRLEAD_HOST_SYNCOOKIE_H

#include "siphash.h"

#define FL_SYN_EARLY_BITS 12
#define FL_SYN_WHOLE_BITS 11
#define FL_SYN_OPTIONS_BITS 9
#define FL_SYN_NO_WSCALE 15

/* What a handshake is bound to. */
struct fl_handshake {
	__u64 connection;   /* fl_host_hash; without timestamps fl_handshake_bare */
	__u32 time;         /* TSval of the SYN-ACK; without timestamps the half window */
	__u32 form;         /* 1: with timestamps; and by what our windows are shifted << 8 */
};

struct fl_macs {
	__u64 first;
	__u64 second;
};

static __always_inline void fl_handshake_mac(const __u64 *key, const struct fl_handshake *h,
					     __u32 client_isn, struct fl_macs *m)
{
	struct fl_sip s, fork;

	fl_sip_init(&s, key);
	fl_sip_word(&s, h->connection);
	fl_sip_word(&s, (__u64)h->time | (__u64)h->form << 32);
	fork = s;
	m->first = fl_sip_end(&fork);
	fl_sip_word(&s, client_isn);
	m->second = fl_sip_end(&s);
}

/* A connection without timestamps: no cookie says under which of the VIP's keys it was
 * hashed. Addresses and ports as in the packet. */
static __always_inline __u64 fl_handshake_bare(const __u64 *key, const __u64 *client, __u16 sport,
					       __u16 dport, __u32 vip_id)
{
	struct fl_sip s;

	fl_sip_init(&s, key);
	fl_sip_word(&s, client[0]);
	fl_sip_word(&s, client[1]);
	fl_sip_word(&s, (__u64)sport | (__u64)dport << 16 | (__u64)vip_id << 32);
	return fl_sip_end(&s);
}

static __always_inline __u32 fl_syn_number(const struct fl_macs *m, __u32 options)
{
	__u32 hidden = (options ^ (__u32)m->first) & ((1u << FL_SYN_OPTIONS_BITS) - 1);
	__u32 early = m->first >> FL_SYN_OPTIONS_BITS & ((1u << FL_SYN_EARLY_BITS) - 1);
	__u32 whole = m->second & ((1u << FL_SYN_WHOLE_BITS) - 1);

	return hidden << (FL_SYN_EARLY_BITS + FL_SYN_WHOLE_BITS) | early << FL_SYN_WHOLE_BITS |
	       whole;
}

static __always_inline __u32 fl_syn_options(const struct fl_macs *m, __u32 number)
{
	return (number >> (FL_SYN_EARLY_BITS + FL_SYN_WHOLE_BITS) ^ (__u32)m->first) &
	       ((1u << FL_SYN_OPTIONS_BITS) - 1);
}

/* Whether the handshake is one of ours. */
static __always_inline _Bool fl_syn_early(const struct fl_macs *m, __u32 number)
{
	if ((number >> FL_SYN_WHOLE_BITS ^ m->first >> FL_SYN_OPTIONS_BITS) &
	    ((1u << FL_SYN_EARLY_BITS) - 1))
		return 0;
	return 1;
}

/* Whether the segment is the first of it. */
static __always_inline _Bool fl_syn_whole(const struct fl_macs *m, __u32 number)
{
	return !((number ^ m->second) & ((1u << FL_SYN_WHOLE_BITS) - 1));
}

/* Options without a timestamp beside them. */
static __always_inline _Bool fl_syn_bare(__u32 options)
{
	return options >> 3 == FL_SYN_NO_WSCALE;
}

/* MSS are rounded down to one of eight, of IPv4's and of IPv6's. */
#define FL_SYN_MSS 8
const volatile __u16 syn_mss[2 * FL_SYN_MSS] = { 536,  1220, 1300, 1360, 1400, 1440, 1460, 8960,
						 1220, 1300, 1340, 1380, 1400, 1420, 1440, 8940 };

static __always_inline __u32 fl_mss_of(__u32 index, _Bool ipv6)
{
	return syn_mss[(index & (FL_SYN_MSS - 1)) + ipv6 * FL_SYN_MSS];
}

#endif
