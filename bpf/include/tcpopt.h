/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Finding the timestamp among TCP's options (RFC 9293 §3.1, RFC 7323 §3).
 *
 *   kind 0           end of options: nothing after it is read
 *   kind 1           no operation, one byte
 *   kind, length, …  length counts kind and itself: 2 or more, and it must
 *                    end within the options, else the packet is malformed
 *
 * The first option of kind 8 is the timestamp, which has length 10 or the
 * packet is malformed; what follows it is not looked at. */
#ifndef FAIRLEAD_TCPOPT_H
#define FAIRLEAD_TCPOPT_H

#include <linux/types.h>

/* Flags: the header's fourteenth octet. */
#define FL_TCP_FIN 0x01
#define FL_TCP_SYN 0x02
#define FL_TCP_RST 0x04
#define FL_TCP_ACK 0x10

#define FL_TCPOPT_MAX 40 /* doff has four bits: 15 words less the header's 5 */
#define FL_TCPOPT_NONE (-1)
#define FL_TCPOPT_MALFORMED (-2)

/* NOP NOP TIMESTAMP 10 as a little-endian load: how Linux, BSD, macOS and
 * Windows lay it out in every segment but the SYN. TSval follows at 4. */
#define FL_TCPOPT_ALIGNED 0x0a080101u

/* Offset of TSval within the options, or FL_TCPOPT_*. opts points to the
 * first option byte in the packet, len (0 to 40) says how many there are, end
 * is the packet's end. TSecr follows TSval; all eight bytes lie before
 * opts + len, which the caller has shown to be before the packet's end; the
 * verifier has not, so the caller that reads must compare with end again.
 *
 * Put it in a __noinline function of the program: verified once, a few
 * thousand instructions, instead of once for each way that leads there. */
static __always_inline int fl_tcpopt_timestamp(const __u8 *opts, __u32 len, const void *end)
{
	__u32 i = 0;

	for (int n = 0; n < FL_TCPOPT_MAX; n++) {
		const __u8 *p;
		__u32 size;

		/* For the verifier: i is at most 40 here. In assembly, so that the
		 * compiler keeps it: with the same range on every way through the
		 * loop, the ways join and 40 rounds cost 40 times one. */
		asm volatile("%0 &= 63" : "+r"(i));
		if (i >= len || i >= FL_TCPOPT_MAX)
			return FL_TCPOPT_NONE;
		p = opts + i;
		if ((const void *)(p + 1) > end)
			return FL_TCPOPT_MALFORMED;
		if (p[0] == 0)
			return FL_TCPOPT_NONE;
		if (p[0] == 1) {
			i++;
			continue;
		}
		/* `>`, not `>=`: an option may end exactly where the packet ends,
		 * and the timestamp of a bare ACK does. */
		if ((const void *)(p + 2) > end)
			return FL_TCPOPT_MALFORMED;
		size = p[1];
		if (size < 2 || i + size > len)
			return FL_TCPOPT_MALFORMED;
		if (p[0] == 8)
			return size == 10 ? (int)i + 2 : FL_TCPOPT_MALFORMED;
		i += size;
	}
	return FL_TCPOPT_NONE;
}

#endif
