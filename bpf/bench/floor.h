/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The floor: the least that any balancer does, written in the usual way.
 * Parse IPv4 and TCP, VIP in a BPF hash map, hash of the tuple, a table of
 * 65,537 entries, a per-CPU counter, IPIP. Nothing else: no IPv6, options,
 * ICMP, fragments, policy, MTU; nothing is remembered. */
#ifndef FAIRLEAD_BENCH_FLOOR_H
#define FAIRLEAD_BENCH_FLOOR_H

#include "packet.h"

#define FLOOR_ROWS 65537

struct floor_key {
	__u32 addr;
	__u16 port;
	__u16 proto;
};

struct floor_server {
	__u32 addr;
	__u8 dst[6];
	__u8 src[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct floor_key);
	__type(value, __u32);
} floor_vips SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOOR_ROWS);
	__type(key, __u32);
	__type(value, __u32);
} floor_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct floor_server);
} floor_servers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct fl_count);
} floor_counts SEC(".maps");

/* Bob Jenkins' hash of three words, as in the kernel's jhash_3words. */
static __always_inline __u32 floor_rol(__u32 x, __u32 n)
{
	return x << n | x >> (32 - n);
}

/* Its mixing, which Jenkins' hashlittle2 shares. */
static __always_inline void floor_mix(__u32 *a, __u32 *b, __u32 *c)
{
	*c ^= *b;
	*c -= floor_rol(*b, 14);
	*a ^= *c;
	*a -= floor_rol(*c, 11);
	*b ^= *a;
	*b -= floor_rol(*a, 25);
	*c ^= *b;
	*c -= floor_rol(*b, 16);
	*a ^= *c;
	*a -= floor_rol(*c, 4);
	*b ^= *a;
	*b -= floor_rol(*a, 14);
	*c ^= *b;
	*c -= floor_rol(*b, 24);
}

static __always_inline __u32 floor_jhash(__u32 a, __u32 b, __u32 c)
{
	const __u32 start = 0xdeadbeef + (3 << 2);

	a += start;
	b += start;
	c += start;
	floor_mix(&a, &b, &c);
	return c;
}

/* What the floor reads of a packet. */
struct floor_packet {
	__u32 saddr;
	__u32 daddr;
	__u16 sport;
	__u16 dport;
	__u16 length;
	__u8 tos;
	__u8 flags; /* TCP's */
};

/* False: it is no plain TCP to a VIP. */
static __always_inline bool floor_parse(struct xdp_md *ctx, struct floor_packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct tcphdr *tcp = (void *)(ip + 1);
	struct floor_key key = {};

	if ((void *)(tcp + 1) > end)
		return false;
	if (eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5 || ip->protocol != IPPROTO_TCP)
		return false;
	if (ip->frag_off & bpf_htons(0x3fff))
		return false;
	p->saddr = ip->saddr;
	p->daddr = ip->daddr;
	p->sport = tcp->source;
	p->dport = tcp->dest;
	p->tos = ip->tos;
	p->length = bpf_ntohs(ip->tot_len);
	p->flags = *((__u8 *)tcp + 13);
	key.addr = p->daddr;
	key.port = p->dport;
	key.proto = IPPROTO_TCP;
	return bpf_map_lookup_elem(&floor_vips, &key) != NULL;
}

/* The server in the row that a hash names; false: there is none. */
static __always_inline bool floor_place(__u32 hash, __u32 *index)
{
	__u32 at = hash % FLOOR_ROWS, *row = bpf_map_lookup_elem(&floor_rows, &at);

	if (!row)
		return false;
	*index = *row;
	return true;
}

static __always_inline __u32 floor_hash(const struct floor_packet *p)
{
	return floor_jhash(p->saddr, p->daddr, (__u32)p->sport << 16 | p->dport);
}

/* Counts the packet and sends it to the server of this number. */
static __always_inline int floor_forward(struct xdp_md *ctx, const struct floor_packet *p,
					 __u32 index)
{
	struct floor_server *server = bpf_map_lookup_elem(&floor_servers, &index);
	void *data, *end;
	struct ethhdr *eth;
	struct iphdr *outer;
	struct fl_count *count;
	__u32 sum = 0;

	if (!server)
		return XDP_DROP;
	count = bpf_map_lookup_elem(&floor_counts, &index);
	if (count) {
		count->packets++;
		count->bytes += p->length;
	}

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*outer)))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	eth = data;
	outer = (void *)(eth + 1);
	if ((void *)(outer + 1) > end)
		return XDP_DROP;
	__builtin_memcpy(eth->h_dest, server->dst, 6);
	__builtin_memcpy(eth->h_source, server->src, 6);
	eth->h_proto = bpf_htons(ETH_P_IP);
	outer->version = 4;
	outer->ihl = 5;
	outer->tos = p->tos;
	outer->tot_len = bpf_htons(p->length + sizeof(*outer));
	outer->id = 0;
	outer->frag_off = 0;
	outer->ttl = 64;
	outer->protocol = IPPROTO_IPIP;
	outer->check = 0;
	outer->saddr = bpf_htonl(0x0afe0000) | (p->saddr >> 16 << 16);
	outer->daddr = server->addr;
	for (int i = 0; i < 10; i++)
		sum += *((__u16 *)outer + i);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	outer->check = ~sum;
	return XDP_TX;
}

static __always_inline int floor_balance(struct xdp_md *ctx)
{
	struct floor_packet p;
	__u32 index;

	if (!floor_parse(ctx, &p))
		return XDP_PASS;
	return floor_place(floor_hash(&p), &index) ? floor_forward(ctx, &p, index) : XDP_DROP;
}

#endif
