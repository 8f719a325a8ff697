/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Carrier tcp-timestamp (docs/wire-format.md draws it):
 *
 *   wire TSval = shared ms when sent + (field << shift)      (mod 2^32)
 *
 * Clients echo it in TSecr. Go's twin is scheme/cheetah. */
#ifndef FAIRLEAD_TIMESTAMP_H
#define FAIRLEAD_TIMESTAMP_H

#include <linux/types.h>
#include "tcpopt.h"

/* Balancers' and hosts' clocks may differ by this much, either way. An echo
 * is decoded right while its age is at most 2^shift - 2 * FL_SKEW_MS. */
#define FL_SKEW_MS 1000

/* The field that a TSecr (or a quoted TSval) carries, given the shared clock. */
static __always_inline __u32 fl_timestamp_field(__u32 ts, __u32 now_ms, __u32 shift)
{
	return (ts - now_ms + ((1u << shift) - FL_SKEW_MS)) >> shift;
}

#endif
