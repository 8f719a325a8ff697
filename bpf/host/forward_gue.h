/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* In: forwarding gue (bpf/include/gue.h). */
#ifndef FAIRLEAD_HOST_FORWARD_GUE_H
#define FAIRLEAD_HOST_FORWARD_GUE_H

#include "gue.h"
#include "outer.h"

/* Reads what begins at offset *pos, behind the UDP header; *pos and *next are then
 * those of the packet within, and o has the hops. 0: none of ours. */
static __always_inline _Bool fl_gue(struct fl_outer *o, void *data, void *end, __u32 *pos,
				    __u8 *next)
{
	__u8 *gue = fl_at(data, *pos, FL_L3_MASK);
	__u16 *hops = (void *)(gue + 4);

	/* Version 0, no control message, no optional fields, no flags,
	 * hops or nothing: what our balancers send (docs/wire-format.md). */
	if ((void *)hops > end || *(__u16 *)(gue + 2))
		return 0;
	o->forwarding = FL_FWD_GUE;
	*next = gue[1];
	*pos += 4;
	if (gue[0]) {
		if (gue[0] != FL_HOPS_BYTES / 4 || (void *)hops + FL_HOPS_BYTES > end ||
		    *hops != FL_HOPS_TYPE)
			return 0;
		o->hops_at = *pos;
		o->hops_place = FL_HOPS_IN_UDP;
		*pos += FL_HOPS_BYTES;
	}
	return 1;
}

#endif
