/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which tunnels are taken: of the form that the VIP's balancers send, and from
 * those who may send them. What comes out of one goes to the stack as if it had
 * come over the link, so whoever could send any could redirect the server's
 * routes and answer for its neighbours. */
#ifndef FAIRLEAD_HOST_TUNNEL_H
#define FAIRLEAD_HOST_TUNNEL_H

#include "maps.h"
#include "question.h"

/* Who sent a tunnel, by its outer source: enum fl_from. Prefixes of balancers
 * are few, servers many. */
__noinline int fl_from(__u64 first, __u64 second)
{
	__u64 source[2] = { first, second };

	for (__u32 i = 0; i < FL_HOST_SOURCES; i++) {
		__u32 index = i;
		struct fl_host_source *s = bpf_map_lookup_elem(&host_sources, &index);

		if (!s || !(s->mask[0] | s->mask[1]))
			break;
		if ((second & s->mask[1]) == s->addr[1] && (first & s->mask[0]) == s->addr[0])
			return FL_FROM_BALANCER;
	}
	return bpf_map_lookup_elem(&host_senders, source) ? FL_FROM_SERVER : FL_FROM_NOBODY;
}

/* The same of an IPv4 source, in the place of the plain way: the first prefixes
 * without a call, which hold all balancers of most. (What ends the list, and
 * prefixes of IPv6 that this cannot tell, have no mask here.) */
#define FL_SOURCES_FIRST 4

static __always_inline int fl_from4(__u64 source)
{
	for (__u32 i = 0; i < FL_SOURCES_FIRST; i++) {
		__u32 index = i;
		struct fl_host_source *s = bpf_map_lookup_elem(&host_sources, &index);

		if (!s || !s->mask[1])
			break;
		if ((source & s->mask[1]) == s->addr[1] && !s->addr[0])
			return FL_FROM_BALANCER;
	}
	return fl_from(0, source);
}

/* Whether v's balancers send tunnels of this form. */
static __always_inline _Bool fl_form_taken(const struct fl_host_vip *v, __u8 forwarding)
{
	return !guards || !(v->flags & FL_HOST_VIP_REFUSES(forwarding));
}

/* Whether v's tunnels come from known sources alone, whatever its scheme: where
 * servers pass packets on to each other a forged one is theirs to send on, so
 * that is no matter of guards. */
static __always_inline _Bool fl_sources_known(const struct fl_host_vip *v)
{
	return fl_does(v, FL_DUTY_OWNER) || (guards && v->flags & FL_HOST_VIP_SOURCES);
}

/* Whether a tunnel for v is taken; *from says whose it is. Counted where not.
 * Servers pass on what is beamer's alone. */
static __always_inline _Bool fl_tunnel_taken(const struct fl_host_vip *v, const __u64 *source,
					     __u8 forwarding, __u32 bytes, __u8 *from)
{
	*from = FL_FROM_BALANCER;
	if (!fl_form_taken(v, forwarding)) {
		fl_host_reason(FL_HOST_DROP_FOREIGN_TUNNEL, bytes);
		return 0;
	}
	if (!fl_sources_known(v))
		return 1;
	*from = fl_from(source[0], source[1]);
	if (*from == FL_FROM_BALANCER || (*from == FL_FROM_SERVER && fl_does(v, FL_DUTY_HOPS)))
		return 1;
	fl_host_reason(FL_HOST_DROP_FOREIGN_SOURCE, bytes);
	return 0;
}

#endif
