/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* To the server that had the bucket before (Beamer, NSDI'18, "daisy chaining";
 * Faild, NSDI'18, "draining"): the first of the chain, which is taken out of
 * it, so that a chain of n servers is n hops long at most. */
#ifndef FAIRLEAD_HOST_PREVIOUS_H
#define FAIRLEAD_HOST_PREVIOUS_H

#include "csum.h"
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

/* ---- and off ---------------------------------------------------------- */

/* What a checksum's sum gains where 16 covered bytes change. */
static __always_inline __u64 fl_csum_words(const __u64 *was, const __u64 *is)
{
	return (__u32)~was[0] + (__u64)(__u32) ~(was[0] >> 32) + (__u32)is[0] + (is[0] >> 32) +
	       (__u32)~was[1] + (__u64)(__u32) ~(was[1] >> 32) + (__u32)is[1] + (is[1] >> 32);
}

static __always_inline void fl_store(void *at, const __u64 *words)
{
	*(__u64 *)at = words[0];
	*(__u64 *)(at + 8) = words[1];
}

/* Outer IPv4 header: from this server to the next one, one hop less to live.
 * covered is what the hops in its option add to its checksum. */
static __always_inline int fl_readdress4(const struct fl_question *q, struct iphdr *ip, void *end,
					 __u64 covered, __u64 *pseudo)
{
	__u32 source = q->tunnel[1] >> 32, dest = q->next.addr[1] >> 32;

	if ((void *)(ip + 1) > end || ip->ttl <= 1)
		return -1;
	*pseudo = (__u64)(__u32)~ip->saddr + (__u32)~ip->daddr + source + dest;
	ip->ttl--;
	/* The TTL is the upper half of a word, as loaded the lower one. */
	ip->check = fl_csum_finish((__u64)(__u16)~ip->check + *pseudo + covered + 0xfffe);
	ip->saddr = source;
	ip->daddr = dest;
	return 0;
}

static __always_inline int fl_readdress6(const struct fl_question *q, struct ipv6hdr *ip, void *end,
					 __u64 *pseudo)
{
	__u64 was[2];

	if ((void *)(ip + 1) > end || ip->hop_limit <= 1)
		return -1;
	ip->hop_limit--;
	__builtin_memcpy(was, &ip->saddr, 16);
	*pseudo = fl_csum_words(was, q->tunnel);
	__builtin_memcpy(was, &ip->daddr, 16);
	*pseudo += fl_csum_words(was, q->next.addr);
	fl_store(&ip->saddr, q->tunnel);
	fl_store(&ip->daddr, q->next.addr);
	return 0;
}

/* GUE's checksum, where the sender made one, over pseudo header and hops. */
static __always_inline void fl_recheck_gue(struct udphdr *udp, void *end, __u64 change)
{
	__u16 check;

	if ((void *)(udp + 1) > end || !udp->check)
		return;
	check = fl_csum_finish((__u64)(__u16)~udp->check + change);
	udp->check = check ? check : 0xffff;
}

/* Ethernet header towards the next hop, and off. The tag is that of the way
 * out, whatever tag the packet came with. */
static __always_inline int fl_depart(struct xdp_md *ctx, const struct fl_question *q)
{
	__u64 to = q->next.mac_dst, from = q->next.mac_src;
	__u16 tag = from >> 48;
	__u16 type = q->outer6 ? FL_BE16(ETH_P_IPV6) : FL_BE16(ETH_P_IP);
	int more = (tag ? ETH_HLEN + 4 : ETH_HLEN) - (int)q->l2;
	void *data, *end;

	if (more && bpf_xdp_adjust_head(ctx, -more))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN + 4 > end)
		return XDP_DROP;
	*(__u64 *)data = (to & 0xffffffffffffULL) | from << 48;
	*(__u32 *)(data + 8) = from >> 16;
	if (tag) {
		*(__u32 *)(data + 12) = FL_BE16(ETH_P_8021Q) | (__u32)bpf_htons(tag) << 16;
		*(__u16 *)(data + 16) = type;
	} else {
		*(__u16 *)(data + 12) = type;
	}
	if (q->next.ifindex == ctx->ingress_ifindex)
		return XDP_TX;
	return bpf_redirect(q->next.ifindex, 0);
}

/* Passes a tunnel on as q->next and q->hops say. */
__noinline int fl_pass_on(struct xdp_md *ctx, const struct fl_question *q)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 was[2], is[2], covered, pseudo;
	void *outer, *hops;
	int failed;

	if (!q)
		return XDP_DROP;
	outer = fl_at(data, q->l2, 31);
	hops = fl_at(data, q->hops_at, FL_L3_MASK);
	if (hops + FL_HOPS_BYTES > end)
		return XDP_DROP;
	was[0] = *(__u64 *)hops;
	was[1] = is[1] = *(__u64 *)(hops + 8);
	/* Type and length stay: they belong to the place. */
	is[0] = (q->hops.chain & ~0xffffULL) | (was[0] & 0xffff);
	covered = fl_csum_words(was, is);
	if (q->outer6)
		failed = fl_readdress6(q, outer, end, &pseudo);
	else
		failed = fl_readdress4(q, outer, end,
				       q->hops_place == FL_HOPS_IN_OPTION4 ? covered : 0, &pseudo);
	if (failed) { /* it has gone round without end */
		fl_host_reason(FL_HOST_DROP_LOOP, q->bytes);
		return XDP_DROP;
	}
	*(__u64 *)hops = is[0];
	if (q->hops_place == FL_HOPS_IN_GUE)
		fl_recheck_gue(fl_at(data, q->hops_at - 4 - sizeof(struct udphdr), FL_L3_MASK), end,
			       covered + pseudo);
	fl_host_reason(FL_HOST_FORWARD_PREVIOUS, q->bytes);
	return fl_depart(ctx, q);
}

#endif
