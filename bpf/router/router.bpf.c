// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* The router's program: it picks the next hop of what the kernel would forward,
 * and leaves all else to the kernel.
 *
 *   parse ─▶ input ─▶ route: prefix ─▶ group ─▶ selector or hash ─▶ hop ─▶ forward
 *     └────────┴──────────┴─────────── pass, counted by reason ─────────────┘
 *
 * A stage returns a reason or goes on; verdict.h acts on it. */
#include "verdict.h"

/* frags: frames in several buffers, as of a large MTU, are forwarded, too. */
SEC("xdp.frags")
int router(struct xdp_md *ctx)
{
	return fl_router(ctx);
}

char _license[] SEC("license") = "Dual BSD/GPL";
