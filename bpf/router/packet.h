/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 1: what is in the packet that routing asks about? */
#ifndef FAIRLEAD_ROUTER_PACKET_H
#define FAIRLEAD_ROUTER_PACKET_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "csum.h"
#include "router.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* A stage returns enum fl_router_reason when the packet is the kernel's, or this. */
#define FL_CONTINUE (-1)

struct fl_router_packet {
	__u32 l3;     /* offset of the IP header: 14, or 18 with a tag */
	__u32 len;    /* bytes from the IP header on, by its own account */
	__u16 vlan;   /* 0: untagged, or a tag that names no VLAN */
	__u8 family;  /* 4 or 6 */
	__u8 ttl;     /* hop limit, as received */
	struct fl_flow flow; /* IPv6's protocol: what its first header says comes next */
};

/* Whether len bytes from l3 on have arrived. Of a frame in several buffers only
 * the first stands between data and data_end. */
static __always_inline bool fl_whole(struct xdp_md *ctx, __u32 l3, __u32 len)
{
	__u64 here = ctx->data_end - ctx->data;

	return likely(l3 + len <= here) || l3 + len <= bpf_xdp_get_buff_len(ctx);
}

/* Ports of a TCP or UDP packet that is whole: source in the upper half. A
 * fragment has none, nor has its first: all fragments of a packet must take
 * one way. */
static __always_inline __u32 fl_ports(const void *l4, const void *end)
{
	if (unlikely(l4 + 4 > end))
		return 0;
	return bpf_ntohl(*(const __u32 *)l4);
}

static __always_inline bool fl_has_ports(__u8 proto)
{
	return proto == IPPROTO_TCP || proto == IPPROTO_UDP;
}

/* Addresses that the kernel forwards from nobody or to nobody: 0/8, 127/8,
 * and all from 224/4 on. */
static __always_inline bool fl_stays4(__u32 addr)
{
	__u8 first = (__u8)addr; /* BE: the lowest byte in memory */

	return first >= 224 || first == 127 || first == 0;
}

/* :: and ::1, fe80::/10, ff00::/8. */
static __always_inline bool fl_stays6(const __u32 *addr)
{
	return (__u8)addr[0] == 0xff ||
	       (addr[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000) ||
	       (!addr[0] && !addr[1] && !addr[2] && (addr[3] & ~bpf_htonl(1)) == 0);
}

static __always_inline int fl_parse_ipv4(struct xdp_md *ctx, struct fl_router_packet *p, void *l3,
					 void *end)
{
	struct iphdr *ip = l3;

	if (l3 + sizeof(*ip) > end || ip->version != 4 || ip->ihl < 5)
		return FL_PASS_MALFORMED;
	p->len = bpf_ntohs(ip->tot_len);
	if (p->len < sizeof(*ip) || !fl_whole(ctx, p->l3, p->len))
		return FL_PASS_MALFORMED;
	if (ip->ihl != 5)
		return FL_PASS_OPTIONS;
	/* The kernel drops these (RFC 1812, 5.2.2). */
	if (unlikely(!fl_csum_good4(ip)))
		return FL_PASS_MALFORMED;
	if (fl_stays4(ip->saddr) || fl_stays4(ip->daddr))
		return FL_PASS_ADDRESS;
	p->family = 4;
	p->ttl = ip->ttl;
	p->flow.src[0] = ip->saddr;
	p->flow.dst[0] = ip->daddr;
	p->flow.proto = ip->protocol;
	if (fl_has_ports(ip->protocol) && !(ip->frag_off & bpf_htons(0x3fff)) &&
	    p->len >= sizeof(*ip) + 4)
		p->flow.ports = fl_ports(ip + 1, end);
	return FL_CONTINUE;
}

/* Extension headers are not walked: a router has no business in any but the
 * hop-by-hop options, and the first of them is the same in all fragments of a
 * packet. What has one goes by its addresses and that header's number. */
static __always_inline int fl_parse_ipv6(struct xdp_md *ctx, struct fl_router_packet *p, void *l3,
					 void *end)
{
	struct ipv6hdr *ip = l3;

	if (l3 + sizeof(*ip) > end || ip->version != 6)
		return FL_PASS_MALFORMED;
	p->len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	if (!fl_whole(ctx, p->l3, p->len))
		return FL_PASS_MALFORMED;
	if (ip->nexthdr == IPPROTO_HOPOPTS)
		return FL_PASS_OPTIONS;
	if (fl_stays6(ip->saddr.s6_addr32) || fl_stays6(ip->daddr.s6_addr32))
		return FL_PASS_ADDRESS;
	p->family = 6;
	p->ttl = ip->hop_limit;
	for (int i = 0; i < 4; i++) {
		p->flow.src[i] = ip->saddr.s6_addr32[i];
		p->flow.dst[i] = ip->daddr.s6_addr32[i];
	}
	p->flow.proto = ip->nexthdr;
	p->flow.label = bpf_ntohl(*(__u32 *)ip) & 0xfffff;
	if (fl_has_ports(ip->nexthdr) && p->len >= sizeof(*ip) + 4)
		p->flow.ports = fl_ports(ip + 1, end);
	return FL_CONTINUE;
}

static __always_inline int fl_parse(struct xdp_md *ctx, struct fl_router_packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u16 type;

	p->l3 = ETH_HLEN;
	if (data + ETH_HLEN + 4 > end)
		return FL_PASS_NOT_IP;
	type = *(__u16 *)(data + 12);
	if (type == bpf_htons(ETH_P_8021Q)) {
		p->vlan = bpf_ntohs(*(__u16 *)(data + 14)) & 0xfff;
		type = *(__u16 *)(data + 16);
		p->l3 = ETH_HLEN + 4;
	}
	if (type == bpf_htons(ETH_P_IP))
		return fl_parse_ipv4(ctx, p, data + p->l3, end);
	if (type == bpf_htons(ETH_P_IPV6))
		return fl_parse_ipv6(ctx, p, data + p->l3, end);
	return FL_PASS_NOT_IP;
}

#endif
