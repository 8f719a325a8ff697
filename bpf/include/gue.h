/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* GUE version 0 (draft-ietf-intarea-gue) as Fairlead has it: no options, no flags,
 * the inner protocol in octet 1; hops are private data, in words in octet 0. */
#ifndef FAIRLEAD_GUE_H
#define FAIRLEAD_GUE_H

#include <linux/types.h>
#include <bpf/bpf_endian.h>

#define FL_GUE_PORT 6080
#define FL_GUE_BYTES (8 + 4) /* UDP and GUE */

/* UDP and GUE headers at h. length: of what follows, of which `private` bytes are
 * private data. */
static __always_inline void fl_gue_write(void *h, __u16 sport, __u32 length, __u8 inner,
					 __u32 private, __u16 check)
{
	*(__u64 *)h = (__u64)bpf_htons(sport) | (__u64)bpf_htons(FL_GUE_PORT) << 16 |
		      (__u64)bpf_htons(length + FL_GUE_BYTES) << 32 | (__u64)check << 48;
	*(__u32 *)(h + 8) = (__u32)inner << 8 | private / 4;
}

#endif
