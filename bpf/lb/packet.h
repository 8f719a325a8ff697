/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 1: what kind of packet is it, and whose? Nothing is dropped here: a
 * malformed packet is remembered as such and dropped once its address is
 * known to be a VIP's, else it is the kernel's. */
#ifndef FAIRLEAD_LB_PACKET_H
#define FAIRLEAD_LB_PACKET_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "csum.h"
#include "balancer.h"
#include "ipv6.h"

/* Hints that keep the plain way of a packet in one piece of code: each jump
 * out of line and back costs it. */
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* A stage returns a reason (enum fl_reason) when it has decided, or this. */
#define FL_CONTINUE (-1)

enum fl_kind {
	FL_KIND_SEGMENT,  /* TCP or UDP with its own header */
	FL_KIND_QUOTE,    /* ICMP error: tuple and timestamp are the quoted ones, reversed */
	FL_KIND_FRAGMENT, /* no ports */
	FL_KIND_OTHER,    /* ICMP, another protocol, or malformed: stage special */
};

/* What the packet has of what carries a cookie. */
enum fl_carried {
	FL_CARRIED_NONE, /* the header is whole and has no such thing */
	FL_CARRIED_WHOLE,
	FL_CARRIED_CUT, /* a quote too short to tell */
};

struct fl_lb_packet {
	__u64 saddr[2];  /* the client, as in fl_vip.addr */
	__u64 daddr[2];  /* the VIP */
	__u32 l3;        /* offset of the IP header: 14, or 18 with a tag */
	__u32 l4;        /* offset of what follows it */
	__u32 len;       /* bytes from the IP header on, by its own account */
	__u32 word;      /* what the carrier holds, where `carried` says that it does */
	__u32 malformed; /* a reason, if not 0 */
	__u16 sport;     /* BE, the client's */
	__u16 dport;     /* BE, the VIP's */
	__u8 family;     /* 4 or 6 */
	__u8 proto;
	__u8 tos;        /* DSCP and ECN */
	__u8 flags;      /* TCP's */
	__u8 kind;       /* enum fl_kind */
	__u8 carried;    /* enum fl_carried */
	bool opens;      /* a connection: SYN alone, QUIC Initial */
	bool closes;     /* TCP: FIN, RST */
	bool covered;    /* UDP: the checksum covers the rest of the packet */
};

/* Nobody may send a packet whose time to live is 0, nor a router forward it
 * (RFC 1122 §3.2.1.7, RFC 1812 §5.3.1, RFC 8200 §3), and one whose header does
 * not have its checksum is for whom nobody knows. The kernel would drop the
 * latter; the former would be answered by what of it has the VIP. Both count as
 * malformed. */

/* Whether l3 begins an IPv4 packet with TCP and nothing unusual: no options,
 * whole, all there. Fills p if so. */
static __always_inline bool fl_plain_ipv4(struct fl_lb_packet *p, void *l3, void *end)
{
	struct iphdr *ip = l3;
	__u16 *ports = l3 + sizeof(*ip);

	if (l3 + sizeof(*ip) + sizeof(struct tcphdr) > end)
		return false;
	p->len = bpf_ntohs(ip->tot_len);
	if (*(__u8 *)ip != 0x45 || ip->protocol != IPPROTO_TCP || !ip->ttl ||
	    ip->frag_off & bpf_htons(0x3fff) || p->len > (__u64)(end - l3) ||
	    p->len < sizeof(*ip) + sizeof(struct tcphdr) || !fl_csum_good4(ip))
		return false;
	p->family = 4;
	p->proto = IPPROTO_TCP;
	p->kind = FL_KIND_SEGMENT;
	p->tos = ip->tos;
	p->l4 = p->l3 + sizeof(*ip);
	p->saddr[1] = fl_mapped4(ip->saddr);
	p->daddr[1] = fl_mapped4(ip->daddr);
	p->sport = ports[0];
	p->dport = ports[1];
	return true;
}

/* No IPv6 packet may have a mapped address (RFC 4291 has them for sockets), and ours
 * are IPv4's: it would be taken for IPv4's VIP and connections, past all filters. */
static __always_inline bool fl_mapped_pair(const struct fl_lb_packet *p)
{
	return fl_is_mapped(p->daddr) || fl_is_mapped(p->saddr);
}

/* The same for IPv6: no extension header. */
static __always_inline bool fl_plain_ipv6(struct fl_lb_packet *p, void *l3, void *end)
{
	struct ipv6hdr *ip = l3;
	__u16 *ports = l3 + sizeof(*ip);

	if (l3 + sizeof(*ip) + sizeof(struct tcphdr) > end)
		return false;
	p->len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	if (*(__u8 *)ip >> 4 != 6 || ip->nexthdr != IPPROTO_TCP || !ip->hop_limit ||
	    p->len > (__u64)(end - l3) || p->len < sizeof(*ip) + sizeof(struct tcphdr))
		return false;
	p->family = 6;
	p->proto = IPPROTO_TCP;
	p->kind = FL_KIND_SEGMENT;
	p->tos = bpf_ntohs(*(__u16 *)ip) >> 4;
	p->l4 = p->l3 + sizeof(*ip);
	/* The kernel's header aligns addresses to four bytes; the compiler would
	 * load each half by half. */
	p->saddr[0] = *(__u64 *)(l3 + 8);
	p->saddr[1] = *(__u64 *)(l3 + 16);
	p->daddr[0] = *(__u64 *)(l3 + 24);
	p->daddr[1] = *(__u64 *)(l3 + 32);
	p->sport = ports[0];
	p->dport = ports[1];
	/* Or it may be mapped: the long way asks. */
	return (__u32)p->daddr[1] != 0xffff0000U && (__u32)p->saddr[1] != 0xffff0000U;
}

/* Whether the IPv4 header of size bytes at l3, all of them there, has its
 * checksum. */
static __always_inline bool fl_sound4(struct xdp_md *ctx, const struct iphdr *ip, __u32 l3,
				      __u32 size)
{
	__u32 options[10] = {}, more = size - sizeof(*ip);
	const __u32 *word = (const void *)ip;
	__u64 sum = (__u64)word[0] + word[1] + word[2] + word[3] + word[4];

	if (!more)
		return fl_csum_good4(ip);
	if (more > sizeof(options) || bpf_xdp_load_bytes(ctx, l3 + sizeof(*ip), options, more))
		return false;
	for (int i = 0; i < 10; i++)
		sum += options[i];
	return fl_csum_fold(sum) == 0xffff;
}

static __always_inline int fl_parse_ipv4(struct xdp_md *ctx, struct fl_lb_packet *p, void *data,
					 void *end)
{
	struct iphdr *ip = data + p->l3;
	__u32 size;

	if ((void *)(ip + 1) > end || ip->version != 4)
		return FL_PASS_NOT_IP;
	p->family = 4;
	p->saddr[0] = 0;
	p->saddr[1] = fl_mapped4(ip->saddr);
	p->daddr[0] = 0;
	p->daddr[1] = fl_mapped4(ip->daddr);
	p->proto = ip->protocol;
	p->tos = ip->tos;
	p->len = bpf_ntohs(ip->tot_len);
	size = ip->ihl * 4;
	p->l4 = p->l3 + size;
	/* Frames shorter than Ethernet's minimum are padded: the packet may be
	 * shorter than the frame, never longer. */
	if (size < sizeof(*ip) || p->len < size || p->len > (__u64)(end - (void *)ip) || !ip->ttl ||
	    !fl_sound4(ctx, ip, p->l3, size))
		p->malformed = FL_DROP_MALFORMED_IP;
	else if (ip->frag_off & bpf_htons(0x3fff)) /* MF or an offset */
		p->kind = FL_KIND_FRAGMENT;
	return FL_CONTINUE;
}

static __always_inline int fl_parse_ipv6(struct xdp_md *ctx, struct fl_lb_packet *p, void *data,
					 void *end)
{
	struct ipv6hdr *ip = data + p->l3;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return FL_PASS_NOT_IP;
	p->family = 6;
	p->saddr[0] = *(__u64 *)&ip->saddr.s6_addr[0];
	p->saddr[1] = *(__u64 *)&ip->saddr.s6_addr[8];
	p->daddr[0] = *(__u64 *)&ip->daddr.s6_addr[0];
	p->daddr[1] = *(__u64 *)&ip->daddr.s6_addr[8];
	p->proto = ip->nexthdr;
	/* version 4 bits, traffic class 8, flow label 20 */
	p->tos = bpf_ntohs(*(__u16 *)ip) >> 4;
	p->len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	p->l4 = p->l3 + sizeof(*ip);
	if (p->len > (__u64)(end - (void *)ip) || !ip->hop_limit || fl_mapped_pair(p)) {
		p->malformed = FL_DROP_MALFORMED_IP;
	} else if (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP &&
		   p->proto != IPPROTO_ICMPV6) {
		int walk = fl_ipv6_walk(ctx, p->l4, p->proto);

		if (walk < 0 || (__u32)(walk & 0xffff) - p->l3 > p->len) {
			p->malformed = FL_DROP_MALFORMED_IP;
		} else {
			p->l4 = walk & 0xffff;
			p->proto = walk >> 16;
			if (walk & FL_WALK_FRAGMENT)
				p->kind = FL_KIND_FRAGMENT;
		}
	}
	return FL_CONTINUE;
}

/* The VLAN of a tagged frame; 0: a tag that names none. */
static __always_inline __u32 fl_vlan(const void *data)
{
	return bpf_ntohs(*(__u16 *)(data + ETH_HLEN)) & 0xfff;
}

/* Fills p up to the ports. */
static __always_inline int fl_parse(struct xdp_md *ctx, struct fl_lb_packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u16 proto;
	int r;

	/* A tagged header ends at 18, inside the 34 that the smallest packet
	 * of interest has. */
	if (data + ETH_HLEN + sizeof(struct iphdr) > end)
		return FL_PASS_NOT_IP;
	proto = *(__u16 *)(data + 12);
	p->l3 = ETH_HLEN;
	if (proto == bpf_htons(ETH_P_8021Q)) {
		proto = *(__u16 *)(data + 16);
		p->l3 = ETH_HLEN + 4;
	}
	if (proto == bpf_htons(ETH_P_IP))
		r = fl_parse_ipv4(ctx, p, data, end);
	else if (proto == bpf_htons(ETH_P_IPV6))
		r = fl_parse_ipv6(ctx, p, data, end);
	else
		return FL_PASS_NOT_IP;
	if (r != FL_CONTINUE)
		return r;
	if (p->malformed) {
		p->kind = FL_KIND_OTHER;
	} else if (p->kind == FL_KIND_SEGMENT) {
		__u16 *ports = data + (p->l4 & FL_OFFSET_MASK);

		if (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP) {
			p->kind = FL_KIND_OTHER;
		} else if ((void *)(ports + 4) > end || p->l4 - p->l3 + 8 > p->len) {
			p->kind = FL_KIND_OTHER;
			p->malformed = FL_DROP_MALFORMED_L4;
		} else {
			p->sport = ports[0];
			p->dport = ports[1];
		}
	}
	return FL_CONTINUE;
}

#endif
