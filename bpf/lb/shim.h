/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The forwardings over UDP, whose bytes a header of bpf/include each tells. */
#ifndef FAIRLEAD_LB_SHIM_H
#define FAIRLEAD_LB_SHIM_H

#include "fairlead.h"
#include "gue.h"

/* The shim of a forwarding; without bytes where it goes over no UDP. inner is the
 * packet's IP protocol number. */
static __always_inline struct fl_shim fl_shim_of(__u8 forwarding, __u8 inner, bool hops)
{
	switch (forwarding) {
	case FL_FWD_GUE:
		return fl_gue_shim(inner, hops);
	}
	return (struct fl_shim){};
}

#endif
