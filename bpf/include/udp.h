/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a forwarding over UDP puts between the UDP header and the packet, or the
 * hops if it has them: a shim, which each such forwarding's header tells (gue.h). */
#ifndef FAIRLEAD_UDP_H
#define FAIRLEAD_UDP_H

#include <stdbool.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>

#define FL_UDP_BYTES 8
#define FL_SHIM_WORDS 3
#define FL_SHIM_BYTES (4 * FL_SHIM_WORDS)

struct fl_shim {
	__u32 words[FL_SHIM_WORDS]; /* as loaded; zero behind `bytes` */
	__u32 bytes;                /* a multiple of 4 */
	__u16 port;                 /* UDP destination */
};
/* Servers read no further: FL_L3_MASK (bpf/host/question.h). */
_Static_assert(FL_UDP_BYTES + FL_SHIM_BYTES + 16 < 40, "headers end within FL_L3_MASK");

/* UDP header and shim at h. sport and length (of what follows the shim) in host
 * order, check as stored. */
static __always_inline void fl_shim_write(void *h, const struct fl_shim *s, __u16 sport,
					  __u32 length, __u16 check)
{
	*(__u64 *)h = (__u64)bpf_htons(sport) | (__u64)bpf_htons(s->port) << 16 |
		      (__u64)bpf_htons(length + s->bytes + FL_UDP_BYTES) << 32 | (__u64)check << 48;
	/* No loop: what indexes the words keeps them on the stack. */
	*(__u32 *)(h + FL_UDP_BYTES) = s->words[0];
	if (s->bytes > 4)
		*(__u32 *)(h + FL_UDP_BYTES + 4) = s->words[1];
	if (s->bytes > 8)
		*(__u32 *)(h + FL_UDP_BYTES + 8) = s->words[2];
}

#endif
