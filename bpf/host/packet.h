/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reading a packet from layer 3 on, on the way in and on the way out. A
 * cursor that each parser checks, advances and returns. */
#ifndef FAIRLEAD_HOST_PACKET_H
#define FAIRLEAD_HOST_PACKET_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "host.h"
#include "ipv6.h"
#include "vip.h"

#define FL_BE16(x) __bpf_constant_htons(x)

struct fl_cursor {
	void *pos;
	void *end;
};

struct fl_host_packet {
	__u64 src[2]; /* as in fl_host_vip */
	__u64 dst[2];
	void *l4;     /* after the IP header */
	__u16 sport;  /* BE; 0 without ports */
	__u16 dport;
	__u16 l4_len; /* bytes from l4 to the end that the IP header names */
	__u16 l3_len; /* bytes from the IP header on */
	__u8 proto;   /* with FL_PROTO_FRAG: a fragment, l4 is not to be read */
};

enum fl_parse { FL_PARSE_OK, FL_PARSE_MALFORMED };

static __always_inline int fl_parse_ports(const struct fl_cursor *c, struct fl_host_packet *p)
{
	__be16 *ports = p->l4;

	p->sport = p->dport = 0;
	if (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP)
		return FL_PARSE_OK;
	if (p->l4_len < 8 || (void *)(ports + 2) > c->end)
		return FL_PARSE_MALFORMED;
	p->sport = ports[0];
	p->dport = ports[1];
	return FL_PARSE_OK;
}

/* What a constant stands for, as text. */
#define FL_TEXT(constant) FL_TEXT_OF(constant)
#define FL_TEXT_OF(text) #text

/* The pointer `at`, found anew as data plus a number of at most `mask` bytes:
 * the same to the verifier whichever way the parsers came to it, so that the
 * ways join here (a tenth of the work to verify). In assembly, since the
 * compiler would see through it. What is read at the result is checked with
 * the packet's end again. */
#define fl_join(data, at, mask)                                       \
	({                                                            \
		__u64 _offset = (void *)(at) - (void *)(data);        \
		asm volatile("%0 &= " FL_TEXT(mask) : "+r"(_offset)); \
		(void *)(data) + _offset;                             \
	})

/* Protocols of 128 and more are nobody's here, and must not be taken for
 * fragments of another. */
static __always_inline __u8 fl_protocol(__u8 proto)
{
	return proto & FL_PROTO_FRAG ? 0 : proto;
}

/* Whether the packet is as long as its IP header says (l3_len) is for the
 * caller to see: it can be longer than lies between pos and end. */
static __always_inline int fl_parse_ip4(struct fl_cursor *c, struct fl_host_packet *p)
{
	struct iphdr *ip = c->pos;
	__u32 header, total;

	if ((void *)(ip + 1) > c->end || ip->version != 4)
		return FL_PARSE_MALFORMED;
	header = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	if (header < sizeof(*ip) || total < header || c->pos + header > c->end)
		return FL_PARSE_MALFORMED;
	p->src[0] = p->dst[0] = 0;
	p->src[1] = fl_mapped4(ip->saddr);
	p->dst[1] = fl_mapped4(ip->daddr);
	p->proto = fl_protocol(ip->protocol);
	p->l3_len = total;
	p->l4_len = total - header;
	p->l4 = c->pos + header;
	if (ip->frag_off & FL_BE16(0x3fff)) {
		p->proto |= FL_PROTO_FRAG;
		p->sport = p->dport = 0;
		return FL_PARSE_OK;
	}
	return fl_parse_ports(c, p);
}

/* Up to the fixed header's end. */
static __always_inline int fl_parse_fixed6(struct fl_cursor *c, struct fl_host_packet *p)
{
	struct ipv6hdr *ip = c->pos;

	if ((void *)(ip + 1) > c->end || ip->version != 6)
		return FL_PARSE_MALFORMED;
	__builtin_memcpy(p->src, &ip->saddr, 16);
	__builtin_memcpy(p->dst, &ip->daddr, 16);
	p->proto = ip->nexthdr;
	p->l4_len = bpf_ntohs(ip->payload_len);
	p->l3_len = sizeof(*ip) + p->l4_len;
	p->l4 = ip + 1;
	return FL_PARSE_OK;
}

/* On the way out. Extension headers: none but the hop-by-hop header of eight
 * bytes and the fragment header, which are what our own stack sends. */
static __always_inline int fl_parse_ip6(struct fl_cursor *c, struct fl_host_packet *p)
{
	if (fl_parse_fixed6(c, p))
		return FL_PARSE_MALFORMED;
	if (p->proto == IPPROTO_HOPOPTS) {
		__u8 *hop = p->l4;

		if ((void *)(hop + 8) > c->end)
			return FL_PARSE_MALFORMED;
		if (!hop[1]) {
			if (p->l4_len < 8)
				return FL_PARSE_MALFORMED;
			p->proto = hop[0];
			p->l4 += 8;
			p->l4_len -= 8;
		}
	}
	p->proto = fl_protocol(p->proto);
	if (p->proto == IPPROTO_FRAGMENT) {
		__u8 *frag = p->l4;

		if ((void *)(frag + 8) > c->end)
			return FL_PARSE_MALFORMED;
		p->proto = fl_protocol(frag[0]) | FL_PROTO_FRAG;
		p->sport = p->dport = 0;
		return FL_PARSE_OK;
	}
	return fl_parse_ports(c, p);
}

/* On the way out, to an Ethernet device, the packet starts
 * with its MAC header, and a VLAN tag is not in the packet yet. */
static __always_inline int fl_out_parse(struct __sk_buff *skb, struct fl_cursor *c,
					struct fl_host_packet *p)
{
	void *data = (void *)(long)skb->data;
	int malformed = FL_PARSE_MALFORMED;

	c->end = (void *)(long)skb->data_end;
	c->pos = data + ETH_HLEN;

	if (skb->protocol == FL_BE16(ETH_P_IP))
		malformed = fl_parse_ip4(c, p);
	else if (skb->protocol == FL_BE16(ETH_P_IPV6))
		malformed = fl_parse_ip6(c, p);
	return malformed || p->l3_len > skb->len - ETH_HLEN ? FL_PARSE_MALFORMED : FL_PARSE_OK;
}

/* On the way in, at offset l3: through all extension headers that a balancer
 * finds its way through. */
static __always_inline int fl_parse_ip6_in(struct xdp_md *ctx, struct fl_cursor *c,
					   struct fl_host_packet *p, __u32 l3)
{
	__u32 header;
	int walk;

	if (fl_parse_fixed6(c, p))
		return FL_PARSE_MALFORMED;
	if (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP && p->proto != IPPROTO_ICMPV6) {
		walk = fl_ipv6_walk(ctx, l3 + sizeof(struct ipv6hdr), p->proto);
		header = (walk & 0xffff) - l3;
		if (walk < 0 || header > p->l3_len)
			return FL_PARSE_MALFORMED;
		p->proto = fl_protocol(walk >> 16);
		p->l4 = c->pos + (header & FL_OFFSET_MASK);
		p->l4_len = p->l3_len - header;
		if (walk & FL_WALK_FRAGMENT) {
			p->proto |= FL_PROTO_FRAG;
			p->sport = p->dport = 0;
			return FL_PARSE_OK;
		}
	}
	return fl_parse_ports(c, p);
}

/* The verifier loses the bounds of what finds an option returns; the
 * compiler, which knows them, drops every mask that is not in assembly. */
static __always_inline __u32 fl_option_offset(int at)
{
	__u32 offset = at;

	asm volatile("%0 &= 63" : "+r"(offset));
	return offset;
}

#endif
