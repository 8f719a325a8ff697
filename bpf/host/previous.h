/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* To the server that had the bucket before (Beamer, NSDI'18, "daisy chaining";
 * Faild, NSDI'18, "draining"): the first of the chain, which is taken out of
 * it, so that a chain of n servers is n hops long at most. */
#ifndef FAIRLEAD_HOST_PREVIOUS_H
#define FAIRLEAD_HOST_PREVIOUS_H

#include "maps.h"
#include "question.h"

/* Clocks of balancers and servers may differ by so much. */
#define FL_CLOCK_AHEAD_MS 2000

static __always_inline _Bool fl_chain_names(__u64 chain, __u16 slot)
{
	__u64 at = (__u64)bpf_htons(slot);

	return (chain >> 16 & 0xffff) == at || (chain >> 32 & 0xffff) == at || chain >> 48 == at;
}

/* Puts a slot behind the last of the chain, which has room. */
static __always_inline __u64 fl_chain_append(__u64 chain, __u16 slot)
{
	__u64 at = (__u64)bpf_htons(slot);

	if ((chain >> 16 & 0xffff) == 0xffff)
		return (chain & ~(0xffffULL << 16)) | at << 16;
	if ((chain >> 32 & 0xffff) == 0xffff)
		return (chain & ~(0xffffULL << 32)) | at << 32;
	return (chain & ~(0xffffULL << 48)) | at << 48;
}

/* Whether the chain has ended by time. What lies in the future is fresh: an
 * owner that lives must not be forgotten because clocks disagree. The clock
 * wraps after 49 days; chains do not last half of that. */
static __always_inline _Bool fl_chain_over(const struct fl_question *q, __u32 now)
{
	__s32 age = (__s32)(now - fl_hops_time(&q->hops));

	if (age < -FL_CLOCK_AHEAD_MS)
		fl_host_reason(FL_HOST_CLOCK_AHEAD, q->bytes);
	return age > 0 && (__u32)age > q->chain_ms;
}

/* The server at a slot, into q->next; 0: it cannot be reached. A datagram that
 * nobody owns has to come back, which it does not from a machine that is
 * silent: a flow that begins would begin nowhere. A segment may as well be lost
 * there: a server behind the silent one would do no better than to reset a
 * connection that lives on where only the link is gone for a while. */
static __always_inline _Bool fl_peer(struct fl_question *q, __u16 slot, _Bool datagram)
{
	struct fl_host_peer_key key = { .vip_id = q->vip_id, .slot = slot };
	struct fl_host_peer *peer = bpf_map_lookup_elem(&host_peers, &key);

	if (!peer) {
		fl_host_reason(FL_HOST_UNKNOWN_PREVIOUS, q->bytes);
		return 0;
	}
	if (datagram && peer->flags & FL_PEER_SILENT) {
		fl_host_reason(FL_HOST_UNRESOLVED_PREVIOUS, q->bytes);
		return 0;
	}
	if (q->hops_place == FL_HOPS_IN_MAC)
		return 1; /* the switch knows the way */
	if ((peer->flags & ~FL_PEER_SILENT) != (q->outer6 ? FL_PEER_IPV6 : 0)) {
		fl_host_reason(FL_HOST_UNRESOLVED_PREVIOUS, q->bytes);
		return 0;
	}
	q->next = *peer;
	return 1;
}

/* Whether nobody was asked before this server. Balancers' prefixes may hold
 * servers as well. */
static __always_inline _Bool fl_is_first(const struct fl_question *q)
{
	return q->from == FL_FROM_BALANCER &&
	       (q->hops_place == FL_HOPS_IN_MAC || !bpf_map_lookup_elem(&host_senders, q->source));
}

/* Who is next: FL_PASS_ON, with the way in q->next and the rest of the chain in
 * q->hops; XDP_DROP; or FL_TAKE where there is nobody. */
static __always_inline int fl_previous(struct fl_question *q, __u32 now)
{
	_Bool datagram = q->proto == IPPROTO_UDP && !q->quote;
	__u64 chain = q->hops.chain;

	if (q->hops_place == FL_HOPS_IN_NONE || fl_hops_empty(chain))
		return FL_TAKE;
	if (q->hops_place != FL_HOPS_IN_MAC && fl_chain_over(q, now))
		return FL_TAKE;
	/* A datagram comes back to the first who had it (below), whose slot is
	 * then in the chain of all others and in nobody's own. */
	if (fl_chain_names(chain, q->slot)) {
		fl_host_reason(FL_HOST_DROP_LOOP, q->bytes);
		return XDP_DROP;
	}
	for (int i = 0; i < FL_CHAIN; i++) {
		__u16 slot = bpf_ntohs((__u16)(chain >> 16));

		chain = fl_hops_shift(chain);
		if (slot == FL_BUCKET_NONE || !fl_peer(q, slot, datagram))
			continue;
		/* If no previous server owns the flow it is new, and of the one
		 * who has the bucket now: back to that one, who takes it. */
		if (datagram && fl_is_first(q)) {
			chain = fl_chain_append(chain, q->slot);
			q->mac = FL_FAILD_MAC_BACK;
		}
		q->hops.chain = chain;
		q->next_slot = slot;
		return FL_PASS_ON;
	}
	return FL_TAKE;
}

#endif
