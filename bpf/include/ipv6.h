/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* IPv4 addresses as IPv6's, and extension headers, walked alike by the balancer
 * and by the server: what the one forwards the other must find its way through. */
#ifndef FAIRLEAD_IPV6_H
#define FAIRLEAD_IPV6_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ipv6.h>
#include <bpf/bpf_helpers.h>

/* An IPv4 address as the second word of ::ffff:a.b.c.d; the first is 0. */
static __always_inline __u64 fl_mapped4(__u32 addr)
{
	return 0xffff0000ULL | (__u64)addr << 32;
}

static __always_inline _Bool fl_is_mapped(const __u64 *addr)
{
	return !addr[0] && (__u32)addr[1] == 0xffff0000U;
}

/* Packet offsets are far below this; masking with it tells the verifier. */
#define FL_OFFSET_MASK 0x7ff

/* No header begins behind this: what follows one (a quoted packet's headers,
 * TCP options) is then below the mask. */
#define FL_L4_MAX 1024

/* Follows IPv6 extension headers (RFC 8200 §4) from offset off on, where a
 * header of type next stands. Returns offset | type << 16 of the first that
 * is none, | FL_WALK_FRAGMENT if it is not the whole of it, or a negative
 * number where a header is cut off, begins behind FL_L4_MAX, or is the eighth
 * and not a fragment's. */
#define FL_WALK_FRAGMENT (1 << 24)

__noinline int fl_ipv6_walk(struct xdp_md *ctx, __u32 off, __u32 next)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	for (int i = 0; i < 8; i++) {
		__u8 *h;

		if (off > FL_L4_MAX)
			return -1;
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS &&
		    next != IPPROTO_FRAGMENT)
			return (int)(off | (next & 0xff) << 16);
		h = data + (off & FL_OFFSET_MASK);
		if ((void *)(h + 8) > end)
			return -1;
		if (next == IPPROTO_FRAGMENT) {
			next = h[0];
			off += 8;
			/* Offset or "more": a fragment. Neither: an atomic one
			 * (RFC 6946), which is a whole packet. */
			if (((__u32)h[2] << 8 | h[3]) & 0xfff9)
				return (int)(off | (next & 0xff) << 16 | FL_WALK_FRAGMENT);
		} else {
			next = h[0];
			off += (h[1] + 1) * 8;
		}
	}
	return -1;
}

#endif
