/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* GUE version 0 (draft-ietf-intarea-gue) as Fairlead has it: no options, no flags,
 * the inner protocol in octet 1; hops are private data, in words in octet 0. */
#ifndef FAIRLEAD_GUE_H
#define FAIRLEAD_GUE_H

#include "hops.h"
#include "udp.h"

#define FL_GUE_PORT 6080
#define FL_GUE_BYTES (8 + 4) /* UDP and GUE */

static __always_inline struct fl_shim fl_gue_shim(__u8 inner, bool hops)
{
	return (struct fl_shim){ .port = FL_GUE_PORT,
				 .bytes = 4,
				 .words = { (__u32)inner << 8 | (hops ? FL_HOPS_BYTES / 4 : 0) } };
}

#endif
