/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What of QUIC can be read without its keys. */
#ifndef FAIRLEAD_QUIC_H
#define FAIRLEAD_QUIC_H

#include <linux/types.h>

/* Whether a datagram, payload bytes of which begin at b, is a client's first
 * of a QUIC connection: a long header with the fixed bit and the type Initial
 * of version 1 (RFC 9000 §17.2.2) or 2 (RFC 9369 §3), in a datagram no smaller
 * than a client sends it (RFC 9000 §14.1). */
static __always_inline _Bool fl_quic_initial(const __u8 *b, __u32 payload, const void *end)
{
	__u32 version, form;

	if (payload < 1200 || (const void *)(b + 5) > end)
		return 0;
	form = b[0] & 0xf0;
	version = (__u32)b[1] << 24 | b[2] << 16 | b[3] << 8 | b[4];
	return (form == 0xc0 && version == 1) || (form == 0xd0 && version == 0x6b3343cf);
}

#endif
