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
#include "timestamp.h"
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

/* Where the timestamp's place is not the usual one. Global functions, so that
 * the verifier walks the option loop once a program and not once for each way
 * that leads here; such a function can be given no packet pointers, so it
 * takes the header's offset and finds them again. l4: offset of the TCP
 * header; len: bytes of options (0 to 40). */
__noinline int fl_timestamp_xdp(struct xdp_md *ctx, __u32 l4, __u32 len)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	/* IP headers and tunnels before it are far below this. */
	if (l4 > 1024 || data + l4 + sizeof(struct tcphdr) > end)
		return FL_TCPOPT_MALFORMED;
	return fl_tcpopt_timestamp(data + l4 + sizeof(struct tcphdr), len, end);
}

__noinline int fl_timestamp_skb(struct __sk_buff *skb, __u32 l4, __u32 len)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (l4 > 1024 || data + l4 + sizeof(struct tcphdr) > end)
		return FL_TCPOPT_MALFORMED;
	return fl_tcpopt_timestamp(data + l4 + sizeof(struct tcphdr), len, end);
}

/* The verifier loses the bounds of what the functions above return; the
 * compiler, which knows them, drops every mask that is not in assembly. */
static __always_inline __u32 fl_option_offset(int at)
{
	__u32 offset = at;

	asm volatile("%0 &= 63" : "+r"(offset));
	return offset;
}

/* Offset of TSval from the TCP header's start (22 to 52), or FL_TCPOPT_*.
 * l4_len bounds the header as the IP header does; `anywhere` is one of the
 * two functions above. */
#define fl_timestamp_offset(ctx, tcp, data, l4_len, end, anywhere)                      \
	({                                                                              \
		const __u8 *_opts = (const __u8 *)((tcp) + 1);                          \
		__u32 _header;                                                          \
		int _at = FL_TCPOPT_MALFORMED;                                          \
                                                                                        \
		if ((const void *)_opts <= (const void *)(end)) {                       \
			_header = (tcp)->doff * 4;                                      \
			if (_header < sizeof(struct tcphdr) || _header > (l4_len)) {    \
				/* malformed */                                         \
			} else if (_header >= 32 &&                                     \
				   (const void *)(_opts + 12) <= (const void *)(end) && \
				   *(__u32 *)_opts == FL_TCPOPT_ALIGNED) {              \
				_at = sizeof(struct tcphdr) + 4;                        \
			} else if (_header == sizeof(struct tcphdr)) {                  \
				_at = FL_TCPOPT_NONE;                                   \
			} else {                                                        \
				_at = anywhere(ctx, (void *)(tcp) - (void *)(data),     \
					       _header - sizeof(struct tcphdr));        \
				if (_at >= 0)                                           \
					_at += sizeof(struct tcphdr);                   \
			}                                                               \
		}                                                                       \
		_at;                                                                    \
	})

#endif
