/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Tracked flows are told to the other balancers of their VIP, so that any of
 * them may take any packet: a record goes into the ring `shared`, which the
 * daemon reads and sends. */
#ifndef FAIRLEAD_LB_SHARE_H
#define FAIRLEAD_LB_SHARE_H

#include "maps.h"

static __always_inline void fl_share(__u64 x, __u32 vip_id, __u32 slot, __u32 state, __u32 tcp)
{
	struct fl_shared *r = bpf_ringbuf_reserve(&shared, sizeof(*r), 0);

	if (!r) {
		struct fl_vip_cpu *cpu = bpf_map_lookup_elem(&vip_cpu, &vip_id);

		if (cpu)
			cpu->share_lost++;
		return;
	}
	r->x = x;
	r->slot = slot;
	r->state = state;
	r->tcp = tcp;
	r->vip_id = vip_id;
	bpf_ringbuf_submit(r, 0);
}

#endif
