// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* The balancer's programs.
 *
 *   lb          XDP: parse ─▶ VIP ─▶ scheme ─▶ policy ─▶ forward, by verdict.h
 *   line_write  writes one server line on every CPU, counters kept
 *   clock       two clocks read at one moment
 *   flow_write  takes flows that other balancers told
 *   flow_sweep  clears what is over in the flow table, and counts
 */
#include "verdict.h"

SEC("xdp")
int lb(struct xdp_md *ctx)
{
	return fl_balance(ctx);
}

#include "syscalls.h"

char _license[] SEC("license") = "Dual BSD/GPL";
