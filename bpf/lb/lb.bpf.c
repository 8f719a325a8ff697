// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* The balancer's programs. `lb` is XDP; a packet's way through it, stage by stage,
 * each of which decides and none of which forwards but the last:
 *
 *   verdict.h   the way itself, and what becomes of each reason
 *   tier.h         in tier two: out of tier one's tunnel
 *   packet.h    1  what kind of packet? up to the ports; its frame to us? (input.h)
 *   icmp.h         echo, and ICMP errors, which become what they quote
 *   vip.h       2  which VIP? what none serves: fragment.h
 *   scheme.h    3  whose is it? l4.h reads TCP and UDP, carrier.h what holds a
 *                  cookie; then a header a scheme: scheme_*.h, of which those that
 *                  go by the hash share by_hash.h (flows.h, share.h, place.h);
 *                  seats.h keeps what cheetah-stateful knows, tell.h says it;
 *                  rates.h drops what is over a limit
 *   policy.h    4  whose does a new connection become?
 *   forward.h   5  the way to the server: a header a forwarding, forward_*.h, before
 *                  which stands outer.h; spread.h says how tunnels spread
 *   ask.h          what names no server: all are asked
 *
 * The rest is for the daemon (syscalls.h):
 *
 *   line_write  writes one server line on every CPU, counters kept
 *   clock       two clocks read at one moment
 *   flow_write  takes flows that other balancers told
 *   flow_sweep  clears what is over in the flow table, and counts
 *
 * A new scheme is a header with one entry, and a line in scheme.h and in the enum of
 * include/fairlead.h; a carrier the same in carrier.h, a forwarding in forward.h. */
#include "verdict.h"

SEC("xdp")
int lb(struct xdp_md *ctx)
{
	return fl_balance(ctx);
}

#include "syscalls.h"

char _license[] SEC("license") = "Dual BSD/GPL";
