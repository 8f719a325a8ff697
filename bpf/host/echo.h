/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a handshake that the programs answered is known by: its echo. */
#ifndef FAIRLEAD_HOST_ECHO_H
#define FAIRLEAD_HOST_ECHO_H

#include <bpf/bpf_endian.h>
#include "maps.h"
#include "syncookie.h"

/* skb->tc_index of the answers, by which host_out knows them. Nobody else gives one
 * to what is sent on from ingress. */
#define FL_TC_ANSWER 0xfa1e

static __always_inline struct fl_offload *fl_offload_settings(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&host_offload, &zero);
}

static __always_inline __u32 fl_handshake_form(const struct fl_offload *o, _Bool timestamps)
{
	return (timestamps ? 1 : 0) | o->wscale << 8;
}

/* Without timestamps. */
static __always_inline __u32 fl_handshake_time(__u32 now)
{
	return now / (FL_OFFLOAD_MS / 2);
}

/* Whether what has no socket ends, or follows what ends, a handshake of ours: it is
 * left as it is, for host_handshake, which has nothing to restore. Global: verified
 * once, and not for each way to it. connection: fl_host_hash; echo: TSecr | the
 * acknowledgement << 32. */
__noinline int fl_echo_opens(__u64 connection, __u64 echo)
{
	struct fl_offload *o = fl_offload_settings();
	struct fl_handshake h = { .connection = connection, .time = (__u32)echo };
	struct fl_macs m;

	if (!o)
		return 0;
	h.form = fl_handshake_form(o, 1);
	fl_handshake_mac(o->key, &h, 0, &m);
	return fl_syn_early(&m, (__u32)(echo >> 32) - 1);
}

#endif
