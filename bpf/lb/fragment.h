/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Fragments have no ports, so they find their VIP by an entry of their own,
 * (address, protocol | FL_PROTO_FRAG), and go by the hash of addresses where
 * that VIP's policy says so (flows.h, scheme.h). Here: what no VIP serves. */
#ifndef FAIRLEAD_LB_FRAGMENT_H
#define FAIRLEAD_LB_FRAGMENT_H

#include "packet.h"
#include "vip.h"

/* No service takes the packet: is it at least to a VIP's address? A fragment
 * to one is dropped, as nobody could put it together. What may be of an MPTCP
 * join goes on, with the address's entry in *joins. */
static __always_inline int fl_unserved(const struct fl_snapshot *s, const struct fl_lb_packet *p,
				       struct fl_vip **joins)
{
	struct fl_vip *address = fl_vip_address(s, p);

	if (!address)
		return FL_PASS_NO_VIP;
	if (p->kind == FL_KIND_FRAGMENT)
		return FL_DROP_FRAGMENT;
	if (address->flags & FL_VIP_JOIN && p->proto == IPPROTO_TCP &&
	    bpf_ntohs(p->dport) >= FL_JOIN_PORT) {
		*joins = address;
		return FL_CONTINUE;
	}
	return FL_PASS_VIP_OTHER;
}

#endif
