/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* ICMP and ICMPv6 to a VIP's address: echo requests are answered, errors go
 * to the server whose packet they quote. That packet went from the VIP to the
 * client: turned round, its tuple is the connection's, and its TSval carries
 * the cookie that the client would echo. */
#ifndef FAIRLEAD_LB_ICMP_H
#define FAIRLEAD_LB_ICMP_H

#include "carrier.h"
#include "csum.h"
#include "icmptype.h"
#include "quote.h"
#include "vip.h"

struct fl_icmp {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__u32 rest;
};

/* A quoted later fragment has no ports. */
static __always_inline int fl_quote_fragment(struct fl_lb_packet *p, __u32 proto)
{
	if (proto != IPPROTO_TCP && proto != IPPROTO_UDP)
		return FL_DROP_FRAGMENT;
	p->proto = proto;
	p->kind = FL_KIND_FRAGMENT;
	p->carried = FL_CARRIED_CUT;
	return FL_CONTINUE;
}

/* Turns p into the connection that the error quotes, whose header is at offset
 * *quoted. */
static __always_inline int fl_icmp_quote(struct xdp_md *ctx, struct fl_lb_packet *p, __u32 *quoted)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 at = p->l4 + 8, l4;
	struct fl_quote q;
	__u16 *ports;

	if (!fl_quote_read(&q, data + (at & FL_OFFSET_MASK), end, p->family == 6) ||
	    q.vip[1] != p->daddr[1] || q.vip[0] != p->daddr[0])
		return FL_DROP_MALFORMED_L4; /* or it quotes no packet of this VIP */
	p->saddr[0] = q.client[0];
	p->saddr[1] = q.client[1];
	if (q.later)
		return fl_quote_fragment(p, q.proto);
	l4 = at + q.l4;
	if (q.proto != IPPROTO_TCP && q.proto != IPPROTO_UDP)
		return FL_PASS_VIP_OTHER;
	ports = data + (l4 & FL_OFFSET_MASK);
	/* Eight bytes are what the oldest rule quotes (RFC 792). */
	if ((void *)(ports + 4) > end || l4 - p->l3 + 8 > p->len)
		return FL_DROP_MALFORMED_L4;
	p->sport = ports[1];
	p->dport = ports[0];
	p->proto = q.proto;
	p->kind = FL_KIND_QUOTE;
	*quoted = l4;
	return FL_CONTINUE;
}

/* Everything that is neither a segment, nor a datagram, nor a fragment.
 * Decides, or turns p into the connection that it concerns. */
static __always_inline int fl_special(struct xdp_md *ctx, struct fl_lb_packet *p,
				      const struct fl_snapshot *s)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct fl_vip *address, *v;
	struct fl_icmp *icmp;
	__u32 quoted = 0;
	__u8 type;
	int r;

	address = fl_vip_address(s, p);
	if (!address)
		return FL_PASS_NO_VIP;
	if (p->malformed)
		return p->malformed;
	if (p->proto != (p->family == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return FL_PASS_VIP_OTHER;
	icmp = data + (p->l4 & FL_OFFSET_MASK);
	if ((void *)(icmp + 1) > end || p->l4 - p->l3 + sizeof(*icmp) > p->len)
		return FL_DROP_MALFORMED_L4;
	type = icmp->type;
	if (type == (p->family == 4 ? FL_ICMP_ECHO : FL_ICMP6_ECHO))
		return address->flags & FL_VIP_ICMP_ECHO ? FL_REPLY_ECHO : FL_DROP_ECHO;
	if (!fl_icmp_is_error(p->family, type))
		return FL_PASS_VIP_OTHER; /* neighbour discovery, say */
	r = fl_icmp_quote(ctx, p, &quoted);
	if (r != FL_CONTINUE)
		return r;
	v = fl_vip_find(s, p);
	if (p->kind == FL_KIND_QUOTE)
		return fl_carrier_quoted(ctx, v, p, quoted, p->len - (quoted - p->l3));
	/* Only scheme beamer takes what has no ports: by addresses as its VIP's
	 * fragments, else all servers are asked. */
	return v && v->scheme == FL_SCHEME_BEAMER ? FL_CONTINUE : FL_DROP_FRAGMENT;
}

/* Swaps the MAC addresses of the frame at data, of which 12 bytes may be
 * read, writing to out (which may be data). */
static __always_inline void fl_swap_macs(const void *data, void *out)
{
	__u64 dst = *(__u64 *)data & 0xffffffffffffULL;
	__u32 src_low = *(__u32 *)(data + 6);
	__u16 src_high = *(__u16 *)(data + 10);

	*(__u32 *)out = src_low;
	*(__u16 *)(out + 4) = src_high;
	*(__u32 *)(out + 6) = (__u32)dst;
	*(__u16 *)(out + 10) = dst >> 32;
}

/* Turns an echo request at l3, l4 into its reply, in place. */
__noinline int fl_echo(struct xdp_md *ctx, __u32 l3, __u32 l4, __u32 family)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	void *l3p = data + (l3 & FL_OFFSET_MASK);
	struct fl_icmp *icmp = data + (l4 & FL_OFFSET_MASK);
	__u16 old, new;

	if (data + ETH_HLEN > end || (void *)(icmp + 1) > end)
		return XDP_DROP;
	old = *(__u16 *)icmp;
	if (family == 4) {
		struct iphdr *ip = l3p;
		__be32 saddr;
		__u16 ttl;

		if ((void *)(ip + 1) > end)
			return XDP_DROP;
		saddr = ip->saddr;
		ip->saddr = ip->daddr;
		ip->daddr = saddr;
		ttl = *(__u16 *)&ip->ttl; /* with the protocol: an aligned pair */
		ip->ttl = 64;
		ip->check = fl_csum_replace16(ip->check, ttl, *(__u16 *)&ip->ttl);
		icmp->type = FL_ICMP_ECHO_REPLY;
	} else {
		struct ipv6hdr *ip = l3p;
		struct in6_addr saddr;

		if ((void *)(ip + 1) > end)
			return XDP_DROP;
		saddr = ip->saddr;
		ip->saddr = ip->daddr;
		ip->daddr = saddr;
		ip->hop_limit = 64;
		icmp->type = FL_ICMP6_ECHO_REPLY;
	}
	new = *(__u16 *)icmp;
	icmp->checksum = fl_csum_replace16(icmp->checksum, old, new);
	fl_swap_macs(data, data);
	return XDP_TX;
}

/* ---- packet too big ------------------------------------------------------ */

/* How much of the packet is quoted. RFC 1812 §4.3.2.3: as much as fits 576
 * bytes; RFC 4443 §3.2: the minimum MTU, 1280. Packets that are too big are
 * longer than that as long as the tunnel's MTU is sane, and the checksum helper
 * takes 512 bytes at a time, so IPv4's quote is what makes 512 with ICMP's
 * header and IPv6's 1240 with ICMPv6's (512 + 512 + 216). */
#define FL_QUOTE4 (512 - 8)
#define FL_QUOTE6 (1240 - 8)

/* Tells the sender that the packet at l3 does not fit mtu bytes: ICMP
 * "fragmentation needed" (RFC 1191; only where the packet asks not to be
 * fragmented) or ICMPv6 "packet too big", from the VIP, sent back where it
 * came from. Returns XDP_TX, or XDP_ABORTED with the
 * packet unusable where that cannot be. */
__noinline int fl_too_big(struct xdp_md *ctx, __u32 l3, __u32 family, __u32 mtu)
{
	void *data, *end;
	__u32 quote = family == 4 ? FL_QUOTE4 : FL_QUOTE6;
	int grow = family == 4 ? sizeof(struct iphdr) + 8 : sizeof(struct ipv6hdr) + 8;
	long cut = (long)bpf_xdp_get_buff_len(ctx) - l3 - quote;
	__u64 sum;

	if (l3 != ETH_HLEN && l3 != ETH_HLEN + 4)
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (family == 4) {
		struct iphdr *ip = data + l3;

		if ((void *)(ip + 1) > end || !(ip->frag_off & bpf_htons(0x4000)))
			return XDP_ABORTED;
	}
	/* A sender cannot go below the minimum that its family guarantees. */
	if (cut < 0 || mtu < (family == 4 ? 576 : 1280))
		return XDP_ABORTED;
	if (bpf_xdp_adjust_tail(ctx, (int)-cut) || bpf_xdp_adjust_head(ctx, -grow))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (family == 4) {
		struct iphdr *old, *ip;
		__u8 *icmp;

		if (data + l3 + 28 + FL_QUOTE4 > end)
			return XDP_ABORTED;
		fl_swap_macs(data + 28, data);
		*(__u16 *)(data + 12) = *(__u16 *)(data + 40);
		*(__u32 *)(data + 14) = *(__u32 *)(data + 42); /* the tag, if any */
		ip = data + l3;
		icmp = (void *)(ip + 1);
		old = (void *)(icmp + 8);
		*(__u32 *)ip = 0x45 | bpf_htons(28 + FL_QUOTE4) << 16;
		*((__u32 *)ip + 1) = 0;
		ip->ttl = 64;
		ip->protocol = IPPROTO_ICMP;
		ip->check = 0;
		ip->saddr = old->daddr;
		ip->daddr = old->saddr;
		sum = 0;
		for (int i = 0; i < 5; i++)
			sum += *((__u32 *)ip + i);
		ip->check = fl_csum_finish(sum);
		*(__u32 *)icmp = FL_ICMP_UNREACHABLE | FL_ICMP_FRAG_NEEDED << 8;
		*(__u32 *)(icmp + 4) = bpf_htonl(mtu & 0xffff);
		sum = (__u32)bpf_csum_diff(0, 0, (void *)icmp, 8 + FL_QUOTE4, 0);
		*(__u16 *)(icmp + 2) = fl_csum_finish(sum);
	} else {
		struct ipv6hdr *old, *ip;
		void *icmp;

		if (data + l3 + 48 + FL_QUOTE6 > end)
			return XDP_ABORTED;
		fl_swap_macs(data + 48, data);
		*(__u16 *)(data + 12) = *(__u16 *)(data + 60);
		*(__u32 *)(data + 14) = *(__u32 *)(data + 62);
		ip = data + l3;
		icmp = ip + 1;
		old = icmp + 8;
		*(__u32 *)ip = 0x60;
		ip->payload_len = bpf_htons(8 + FL_QUOTE6);
		ip->nexthdr = IPPROTO_ICMPV6;
		ip->hop_limit = 64;
		ip->saddr = old->daddr;
		ip->daddr = old->saddr;
		*(__u32 *)icmp = FL_ICMP6_TOO_BIG;
		*(__u32 *)(icmp + 4) = bpf_htonl(mtu);
		sum = (__u64)bpf_htons(8 + FL_QUOTE6) + bpf_htons(IPPROTO_ICMPV6);
		for (int i = 0; i < 8; i++)
			sum += *((__u32 *)&ip->saddr + i); /* both addresses */
		sum = (__u32)bpf_csum_diff(0, 0, icmp, 512, fl_csum_fold(sum));
		sum = (__u32)bpf_csum_diff(0, 0, icmp + 512, 512, fl_csum_fold(sum));
		sum = (__u32)bpf_csum_diff(0, 0, icmp + 1024, 216, fl_csum_fold(sum));
		*(__u16 *)(icmp + 2) = fl_csum_finish(sum);
	}
	return XDP_TX;
}

#endif
