/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Flows of UDP. Most servers of UDP and QUIC have one socket for all clients,
 * which says nothing of whose a flow is; so a server remembers the flows whose
 * datagrams it took. A flow that was silent for as long as chains last
 * (chain_ms) is forgotten; of too many, the one not used for longest. */
#ifndef FAIRLEAD_HOST_FLOW_H
#define FAIRLEAD_HOST_FLOW_H

#include "kernel.h"
#include "question.h"
#include "quic.h"
#include "vip.h"

/* An entry is written at most this often: a look-up costs a tenth of it. */
#define FL_FLOW_FRESH_MS 1000

static __always_inline void fl_flow_key(struct fl_tuple *t, const struct fl_question *q)
{
	t->addr[0] = q->client[0];
	t->addr[1] = q->client[1];
	t->sport = q->sport;
	t->dport = q->dport;
	t->vip_id = q->vip_id;
}

/* Whether the flow is known; what is taken makes it known, see fl_flow_taken. */
static __always_inline _Bool fl_flow_known(const struct fl_question *q, __u32 now)
{
	struct fl_tuple t;
	__u32 *last;

	fl_flow_key(&t, q);
	last = bpf_map_lookup_elem(&host_flows, &t);
	/* Another CPU's clock may be a tick ahead. */
	return last && ((__s32)(now - *last) < 0 || now - *last <= q->chain_ms);
}

static __always_inline void fl_flow_taken(const struct fl_question *q, __u32 now)
{
	struct fl_tuple t;
	__u32 *last;

	fl_flow_key(&t, q);
	last = bpf_map_lookup_elem(&host_flows, &t);
	if (last && now - *last < FL_FLOW_FRESH_MS)
		return;
	bpf_map_update_elem(&host_flows, &t, &now, BPF_ANY);
}

/* A socket that is connected to this client. */
static __always_inline _Bool fl_udp_connected(struct xdp_md *ctx, const struct fl_question *q)
{
	struct bpf_sock_tuple t;
	struct bpf_sock *sk;
	_Bool connected;

	if (fl_is_mapped(q->vip)) {
		t.ipv4.saddr = q->client[1] >> 32;
		t.ipv4.daddr = q->vip[1] >> 32;
		t.ipv4.sport = q->sport;
		t.ipv4.dport = q->dport;
		sk = bpf_sk_lookup_udp(ctx, &t, sizeof(t.ipv4), BPF_F_CURRENT_NETNS, 0);
	} else {
		__builtin_memcpy(t.ipv6.saddr, q->client, 16);
		__builtin_memcpy(t.ipv6.daddr, q->vip, 16);
		t.ipv6.sport = q->sport;
		t.ipv6.dport = q->dport;
		sk = bpf_sk_lookup_udp(ctx, &t, sizeof(t.ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	if (!sk)
		return 0;
	connected = sk->state == FL_TCP_ESTABLISHED;
	bpf_sk_release(sk);
	return connected;
}

#endif
