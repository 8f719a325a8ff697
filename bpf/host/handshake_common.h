/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What both halves of a handshake need: the listener, the cookie in the timestamp. */
#ifndef FAIRLEAD_HOST_HANDSHAKE_COMMON_H
#define FAIRLEAD_HOST_HANDSHAKE_COMMON_H

#include "carrier.h"
#include "echo.h"

/* Where the socket of the packet's connection is but a listener, the listener, or
 * NULL. *sk, not NULL, is to be released. */
static __always_inline struct tcp_sock *
fl_listener(struct __sk_buff *skb, const struct fl_host_packet *p, struct bpf_sock **sk)
{
	*sk = fl_lookup(skb, p->src, p->sport, p->dst, p->dport);
	if (!*sk || (*sk)->state != FL_TCP_LISTEN)
		return 0;
	return (void *)bpf_skc_to_tcp_sock(*sk);
}

static __always_inline struct fl_offload_count *fl_offload_counted(const struct fl_host_vip *v)
{
	__u32 id = v->id;

	return bpf_map_lookup_elem(&host_offloaded, &id);
}

#endif
