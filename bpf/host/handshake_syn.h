/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A SYN, answered: the listener is asked what it would say, the kernel by which way
 * it would, and the packet becomes the answer. Nothing is kept of it. */
#ifndef FAIRLEAD_HOST_HANDSHAKE_SYN_H
#define FAIRLEAD_HOST_HANDSHAKE_SYN_H

#include "handshake_common.h"

/* Not yet in Debian 12's headers (since 6.3). */
#define FL_FIB_SKIP_NEIGH (1u << 2)
/* The kernel looks routes up for us only where the device that the packet came by
 * forwards; what the machine itself sends comes by the loopback, and the agent has
 * that forward (kernel/host/offload.go). */
#define FL_LOOPBACK 1

#define FL_SYN_HEADER 40    /* of the answer with timestamps */
#define FL_SYN_HEADER_BARE 24

/* A TCP header, and zeros behind it. */
struct fl_syn_header {
	__u32 words[16];
};

/* What a SYN's options say, in one number: */
enum fl_syn_said {
	FL_SAID_MSS = 7,              /* which of syn_mss */
	FL_SAID_WSCALE = 15 << 3,     /* FL_SYN_NO_WSCALE: none */
	FL_SAID_SACK = 1 << 7,
	FL_SYN_ECN = 1 << 8,          /* which is no option, but goes with them */
	FL_SAID_TIMESTAMP = 63 << 9,  /* where TSval is; 0: nowhere */
	FL_SAID_STRANGE = 1 << 15,    /* one that the stack has to see to */
};

/* Reads the options of a header of length bytes (20 to 60). They end as
 * fl_tcpopt_timestamp's do. Global: verified once. */
__noinline int fl_syn_read(const struct fl_syn_header *header, __u32 length, __u32 ipv6)
{
	__u32 i = sizeof(struct tcphdr), said = FL_SAID_WSCALE, mss = ipv6 ? 1220 : 536, index = 0;
	const __u8 *bytes;

	if (!header)
		return FL_SAID_STRANGE;
	bytes = (const __u8 *)header;
	for (int n = 0; n < FL_TCPOPT_MAX; n++) {
		__u32 kind, size;

		asm volatile("%0 &= 63" : "+r"(i)); /* as in fl_tcpopt_timestamp */
		if (i >= length || i >= 54)
			break; /* what is longer than nothing ends behind it */
		kind = bytes[i];
		if (kind == 0)
			break;
		if (kind == 1) {
			i++;
			continue;
		}
		size = bytes[i + 1];
		if (size < 2 || i + size > length)
			return FL_SAID_STRANGE;
		if (kind == 2 && size == 4)
			mss = bytes[i + 2] << 8 | bytes[i + 3];
		else if (kind == 3 && size == 3)
			said = (said & ~FL_SAID_WSCALE) | (bytes[i + 2] > 14 ? 14 : bytes[i + 2])
								  << 3;
		else if (kind == 4 && size == 2)
			said |= FL_SAID_SACK;
		else if (kind == 8 && size == 10)
			said = (said & ~FL_SAID_TIMESTAMP) | (i + 2) << 9;
		/* MD5, TCP-AO: a listener that wants it has to see it. */
		else if (kind == 19 || kind == 29)
			return FL_SAID_STRANGE;
		i += size;
	}
	if (mss < fl_mss_of(0, ipv6))
		return FL_SAID_STRANGE;
	for (__u32 k = 1; k < FL_SYN_MSS; k++)
		index += mss >= fl_mss_of(k, ipv6);
	return said | index;
}

/* What an address adds to the sum of a pseudo-header: of IPv4 its mapped prefix is
 * nothing (0xffff). */
static __always_inline __u64 fl_pseudo(const __u64 *addr)
{
	return (__u64)(__u32)addr[0] + (addr[0] >> 32) + (__u32)addr[1] + (addr[1] >> 32);
}

/* The sum over a pseudo-header and the words of a TCP header of length bytes. */
static __always_inline __u64 fl_tcp_sum(const struct fl_host_packet *p, __u32 length,
					const __u32 *words, __u32 count)
{
	__u64 sum = fl_pseudo(p->src) + fl_pseudo(p->dst) + bpf_htonl(IPPROTO_TCP + length);

	for (__u32 i = 0; i < count; i++)
		sum += words[i];
	return sum;
}

/* Whose checksum is to be finished, or was looked at, by others. */
static __always_inline __u32 fl_summed(struct __sk_buff *skb)
{
	struct sk_buff *kernel = bpf_cast_to_kern_ctx(skb);

	return BPF_CORE_READ_BITFIELD(kernel, ip_summed);
}

/* The window of a first answer, as the stack finds it (tcp_select_initial_window):
 * half of the buffer, in whole segments. */
static __always_inline __u32 fl_syn_window(const struct sock *sk, __u32 mss)
{
	__u32 space = sk->sk_rcvbuf / 2;

	if (mss && space > mss)
		space -= space % mss;
	return space > 0xffff ? 0xffff : space;
}

/* A SYN goes to the stack. */
static __always_inline int fl_syn_stack(struct fl_offload_count *n, __u32 reason, __u32 bytes)
{
	fl_host_reason(reason, bytes);
	if (n && reason == FL_HOST_STACK_MPTCP)
		n->mptcp++;
	else if (n)
		n->stack++;
	return TC_ACT_UNSPEC;
}

/* The kernel's way to the client. 0: there is one. */
static __always_inline int fl_syn_route(struct __sk_buff *skb, const struct fl_host_packet *p,
					struct bpf_fib_lookup *fib)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = FL_LOOPBACK;
	fib->l4_protocol = IPPROTO_TCP;
	fib->sport = p->dport;
	fib->dport = p->sport;
	fib->tot_len = 60; /* asks for the MTU, too */
	if (fl_is_mapped(p->dst)) {
		fib->family = 2; /* AF_INET */
		fib->ipv4_src = p->dst[1] >> 32;
		fib->ipv4_dst = p->src[1] >> 32;
	} else {
		fib->family = 10; /* AF_INET6 */
		__builtin_memcpy(fib->ipv6_src, p->dst, 16);
		__builtin_memcpy(fib->ipv6_dst, p->src, 16);
	}
	return bpf_fib_lookup(skb, fib, sizeof(*fib), FL_FIB_SKIP_NEIGH);
}

/* The IP header of the answer, before length bytes of TCP. */
static __always_inline int fl_syn_ip(struct __sk_buff *skb, const struct fl_host_packet *p,
				     const struct fl_offload *o, __u32 length)
{
	if (fl_is_mapped(p->dst)) {
		__u32 words[5] = { bpf_htonl(0x45000000 | (sizeof(words) + length)),
				   bpf_htonl(0x4000), /* may not be fragmented */
				   bpf_htonl((__u32)o->ttl << 24 | IPPROTO_TCP << 16),
				   p->dst[1] >> 32, p->src[1] >> 32 };
		__u64 sum = 0;

		for (int i = 0; i < 5; i++)
			sum += words[i];
		((__u16 *)words)[5] = fl_csum_finish(sum);
		return bpf_skb_store_bytes(skb, ETH_HLEN, words, sizeof(words), 0);
	}
	__u64 long_words[5] = {
		bpf_htonl(0x60000000) |
			(__u64)bpf_htonl(length << 16 | IPPROTO_TCP << 8 | o->hop_limit) << 32,
		p->dst[0], p->dst[1], p->src[0], p->src[1]
	};

	return bpf_skb_store_bytes(skb, ETH_HLEN, long_words, sizeof(long_words), 0);
}

static __always_inline int fl_handshake_syn(struct __sk_buff *skb, const struct fl_host_control *c,
					    const struct fl_offload *o, const struct fl_host_vip *v,
					    const struct fl_host_packet *p)
{
	struct fl_offload_count *n = fl_offload_counted(v);
	__u32 l4, l3_header, length, said, options, mss, window, isn, at, summed;
	_Bool ipv6 = !fl_is_mapped(p->dst);
	struct fl_handshake h;
	struct fl_stamp stamp;
	struct fl_macs m;
	struct bpf_fib_lookup fib;
	struct bpf_redir_neigh hop = {};
	struct bpf_sock *sk;
	struct tcp_sock *t;
	__u64 now = fl_monotonic_ms();
	struct fl_syn_header header = {};
	__u32 *words = header.words;

	if (!n || !(o->flags & FL_OFFLOAD_ON)) /* !n: only what was begun is ended */
		return fl_syn_stack(n, FL_HOST_STACK_SETTINGS, p->l3_len);
	l3_header = ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	length = ((struct tcphdr *)p->l4)->doff * 4;
	if (skb->vlan_present || p->l3_len - p->l4_len != l3_header || length != p->l4_len ||
	    length < sizeof(struct tcphdr) || length > 60)
		return fl_syn_stack(n, FL_HOST_STACK_FORM, p->l3_len);
	l4 = ETH_HLEN + l3_header;
	if (bpf_skb_load_bytes(skb, l4, &header, length))
		return fl_syn_stack(n, FL_HOST_STACK_FORM, p->l3_len);
	summed = fl_summed(skb);
	if (summed != FL_CHECKSUM_PARTIAL && summed != FL_CHECKSUM_UNNECESSARY &&
	    fl_csum_fold(fl_tcp_sum(p, length, words, 15)) != 0xffff)
		return fl_syn_stack(n, FL_HOST_STACK_FORM, p->l3_len); /* which counts it */
	said = fl_syn_read(&header, length, ipv6);
	if (said & FL_SAID_STRANGE)
		return fl_syn_stack(n, FL_HOST_STACK_FORM, p->l3_len);
	at = said >> 9 & 63;
	if (!at || !(o->flags & FL_OFFLOAD_SACK))
		said &= ~FL_SAID_SACK;
	if (!at || !(o->flags & FL_OFFLOAD_WSCALE))
		said |= FL_SAID_WSCALE;
	options = said & (FL_SAID_MSS | FL_SAID_WSCALE | FL_SAID_SACK);
	/* ECE and CWR (RFC 3168, §6.1.1). */
	if (at && o->flags & FL_OFFLOAD_ECN &&
	    (words[3] & bpf_htonl(0xc00000)) == bpf_htonl(0xc00000))
		options |= FL_SYN_ECN;

	t = fl_listener(skb, p, &sk);
	if (!t) {
		if (sk)
			bpf_sk_release(sk);
		return fl_syn_stack(n, FL_HOST_STACK_TAKEN, p->l3_len);
	}
	if (bpf_core_field_exists(t->is_mptcp) && BPF_CORE_READ_BITFIELD(t, is_mptcp)) {
		bpf_sk_release(sk);
		return fl_syn_stack(n, FL_HOST_STACK_MPTCP, p->l3_len);
	}
	if (((struct sock *)t)->sk_ack_backlog > ((struct sock *)t)->sk_max_ack_backlog) {
		bpf_sk_release(sk);
		fl_host_reason(FL_HOST_DROP_BACKLOG, p->l3_len);
		return TC_ACT_SHOT;
	}
	window = fl_syn_window((struct sock *)t, fl_mss_of(options, ipv6));
	bpf_sk_release(sk);

	if (fl_syn_route(skb, p, &fib) || !fl_stamp_at(v, now, &stamp))
		return fl_syn_stack(n, FL_HOST_STACK_ROUTE, p->l3_len);
	mss = fib.mtu_result > l3_header + 20 ? fib.mtu_result - l3_header - 20 : 536;
	if (v->mss && v->mss < mss)
		mss = v->mss;

	isn = bpf_ntohl(words[1]);
	h.form = fl_handshake_form(o, at);
	/* A ms ago: the kernel may take the connection's offset to be one less. */
	h.time = (__u32)now - 1 + c->clock_base;
	if (at) {
		h.connection = fl_host_hash(v, stamp.epoch, p->src, p->sport, p->dport);
		h.time += fl_cookie_encode(h.connection, stamp.slot, stamp.epoch, v->shift)
			  << v->shift;
	} else {
		h.connection = fl_handshake_bare(o->key, p->src, p->sport, p->dport, v->id);
		h.time = fl_handshake_time(h.time);
	}
	fl_handshake_mac(o->key, &h, isn, &m);

	length = at ? FL_SYN_HEADER : FL_SYN_HEADER_BARE;
	words[0] = (__u32)p->dport | (__u32)p->sport << 16;
	words[1] = bpf_htonl(fl_syn_number(&m, options));
	words[2] = bpf_htonl(isn + 1);
	words[3] = bpf_htonl(length << 26 | 0x120000 | (options & FL_SYN_ECN) << 14 | window);
	words[4] = 0;
	words[5] = bpf_htonl(0x02040000 | mss);
	words[6] = words[7] = words[8] = words[9] = 0;
	if (at) {
		words[6] = bpf_htonl(options & FL_SAID_SACK ? 0x0402080a : 0x0101080a);
		words[7] = bpf_htonl(h.time);
		if (bpf_skb_load_bytes(skb, l4 + at, &words[8], 4)) /* what TSval was */
			return TC_ACT_SHOT; /* cannot be: it was read */
		words[9] = bpf_htonl((options & FL_SAID_WSCALE) == FL_SAID_WSCALE
					     ? 0x01010101
					     : 0x01030300 | o->wscale);
	}
	if (summed == FL_CHECKSUM_PARTIAL) /* whoever finishes it has the header's rest */
		((__u16 *)words)[8] = fl_csum_fold(fl_tcp_sum(p, length, words, 0));
	else
		((__u16 *)words)[8] = fl_csum_finish(fl_tcp_sum(p, length, words, 10));

	if (skb->len != l4 + length && bpf_skb_change_tail(skb, l4 + length, 0))
		return fl_syn_stack(n, FL_HOST_STACK_FORM, p->l3_len);
	if (fl_syn_ip(skb, p, o, length) ||
	    (at ? bpf_skb_store_bytes(skb, l4, &header, FL_SYN_HEADER, 0)
		: bpf_skb_store_bytes(skb, l4, &header, FL_SYN_HEADER_BARE, 0)))
		return TC_ACT_SHOT; /* cannot be: all of it was read */
	skb->tc_index = FL_TC_ANSWER;
	fl_host_reason(FL_HOST_HANDSHAKE_ANSWERED, p->l3_len);
	fl_host_counted(v->id, 1, l3_header + length);
	if (n)
		n->answered++;
	hop.nh_family = fib.family;
	__builtin_memcpy(hop.ipv6_nh, fib.ipv6_dst, 16);
	return bpf_redirect_neigh(fib.ifindex, &hop, sizeof(hop), 0);
}

#endif
