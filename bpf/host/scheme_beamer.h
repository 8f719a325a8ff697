/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Scheme beamer at the server: the chain comes as the hops of a tunnel
 * (bpf/include/hops.h), which is passed on with them. Whose the packet is, and who
 * is asked next, is own.h's and previous.h's to say. */
#ifndef FAIRLEAD_HOST_SCHEME_BEAMER_H
#define FAIRLEAD_HOST_SCHEME_BEAMER_H

#include "csum.h"
#include "maps.h"
#include "question.h"

/* 0: malformed. */
static __always_inline _Bool fl_beamer_read(struct fl_question *q, void *data, void *end)
{
	__u64 *hops = fl_at(data, q->hops_at, FL_L3_MASK);

	if ((void *)(hops + 2) > end)
		return 0;
	q->hops.chain = hops[0];
	q->hops.when = hops[1];
	return 1;
}

/* Whether a balancer's table of this generation is older than others' that
 * this server knows of. It learns from what balancers send, as far as that lies
 * close to what its agent says. Generations are serial numbers: the later of two
 * is less than 2^31 ahead. */
static __always_inline _Bool fl_generation_stale(const struct fl_host_control *c,
						 const struct fl_host_vip *v, __u32 generation,
						 _Bool learn)
{
	struct fl_host_own *own;
	__u32 id = v->id, ahead = generation - v->generation, seen;

	own = bpf_map_lookup_elem(&host_own, &id);
	if (!own)
		return 0;
	seen = *(volatile __u32 *)&own->newest;
	seen = seen ? seen - v->generation : 0; /* ahead of the agent's */
	if (seen > FL_GENERATION_AHEAD)
		seen = 0;
	if (ahead == seen)
		return 0;
	if ((__s32)(ahead - seen) < 0) {
		if (learn)
			*(volatile __u32 *)&own->stale_ms = fl_shared_now(c) | 1;
		return 1;
	}
	if (!learn)
		return 0;
	if (ahead <= FL_GENERATION_AHEAD)
		*(volatile __u32 *)&own->newest = generation;
	else
		fl_host_reason(FL_HOST_GENERATION_JUMP, 0);
	return 0;
}

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

/* UDP's checksum, where the sender made one, over pseudo header and hops. */
static __always_inline void fl_recheck_udp(struct udphdr *udp, void *end, __u64 change)
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
__noinline int fl_beamer_pass_on(struct xdp_md *ctx, const struct fl_question *q)
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
	if (q->hops_place == FL_HOPS_IN_UDP)
		fl_recheck_udp(fl_at(data, q->udp, FL_L3_MASK), end, covered + pseudo);
	fl_host_reason(FL_HOST_FORWARD_PREVIOUS, q->bytes);
	return fl_depart(ctx, q);
}

#endif
