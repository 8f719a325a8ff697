/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Keepalive probes: has the kernel send them, and out: makes them renew the cookie.
 *
 * A probe of Linux is an empty segment with the sequence number before the
 * next expected one. The peer answers it, but takes its timestamp only from
 * segments that are acceptable (RFC 7323 §4.3), which an empty one left of
 * the window is not: its answers go on echoing the old TSval, and a quiet
 * connection's cookie would run out behind a keepalive that works (measured
 * with Linux 6.18 on both ends). With one byte, which RFC 1122 §4.2.3.6 asks
 * of senders for the sake of old peers, the probe reaches up to the window
 * and is acceptable; the byte is one that the peer has had, so it is dropped,
 * whatever its value. Zero-window probes look the same and gain the same. */
#ifndef FAIRLEAD_HOST_KEEPALIVE_H
#define FAIRLEAD_HOST_KEEPALIVE_H

#include "edit.h"

#define FL_SOL_SOCKET 1
#define FL_SO_KEEPALIVE 9
#define FL_TCP_KEEPIDLE 4
#define FL_TCP_KEEPINTVL 5
#define FL_TCP_KEEPCNT 6
#define FL_KEEPCNT_MAX 127 /* MAX_TCP_KEEPCNT */

/* Whether the empty segment with sequence number seq (host order) of sk is a
 * probe. */
static __always_inline _Bool fl_is_probe(struct bpf_sock *sk, __u32 seq)
{
	struct tcp_sock *t = (void *)bpf_skc_to_tcp_sock(sk);

	return t && seq + 1 == t->snd_una;
}

/* Appends the byte to the packet, whose TCP header starts at l4 and is the
 * packet's end (l4_len bytes). */
static __always_inline void fl_fill_probe(struct __sk_buff *skb, __u32 l4, __u32 l4_len)
{
	__u32 csum = l4 + __builtin_offsetof(struct tcphdr, check);
	__u16 was, is;
	__u8 zero = 0;

	/* New bytes are zero, so only the pseudo-header's length changes the
	 * checksum. */
	if (bpf_skb_change_tail(skb, skb->len + 1, 0))
		return;
	bpf_skb_store_bytes(skb, skb->len - 1, &zero, 1, 0);
	bpf_l4_csum_replace(skb, csum, bpf_htons(l4_len), bpf_htons(l4_len + 1),
			    BPF_F_PSEUDO_HDR | 2);
	if (skb->protocol == FL_BE16(ETH_P_IP)) {
		const __u32 at = ETH_HLEN + __builtin_offsetof(struct iphdr, tot_len);

		if (bpf_skb_load_bytes(skb, at, &was, 2))
			return;
		is = bpf_htons(bpf_ntohs(was) + 1);
		bpf_l3_csum_replace(skb, ETH_HLEN + __builtin_offsetof(struct iphdr, check), was,
				    is, 2);
		bpf_skb_store_bytes(skb, at, &is, 2, 0);
	} else {
		is = bpf_htons(l4_len + 1);
		bpf_skb_store_bytes(skb, ETH_HLEN + __builtin_offsetof(struct ipv6hdr, payload_len),
				    &is, 2, 0);
	}
	fl_host_reason(FL_HOST_OUT_KEEPALIVE, skb->len - ETH_HLEN);
}

static __always_inline int fl_keepalive_option(struct bpf_sock_ops *ops, int level, int name)
{
	int value = 0;

	bpf_getsockopt(ops, level, name, &value, sizeof(value));
	return value;
}

/* Probes start after idle_ms of silence, at most a quarter of the cookie's
 * idle limit, and go on half of that apart. They are there to renew the
 * cookie, not to find dead peers: the connection is given up no sooner than
 * the cookie runs out, or than the application wanted. An application that
 * probes sooner by itself (set on its listener, or after this) is left alone. */
static __always_inline void fl_set_keepalive(struct bpf_sock_ops *ops, __u32 idle_ms,
					     __u32 limit_ms)
{
	int on = fl_keepalive_option(ops, FL_SOL_SOCKET, FL_SO_KEEPALIVE);
	__u32 idle = idle_ms / 1000, interval, count, last = limit_ms / 1000, own;

	if (!idle)
		idle = 1;
	if (on) {
		own = fl_keepalive_option(ops, IPPROTO_TCP, FL_TCP_KEEPIDLE);
		if (own <= idle)
			return;
		own += (__u32)fl_keepalive_option(ops, IPPROTO_TCP, FL_TCP_KEEPINTVL) *
		       (__u32)fl_keepalive_option(ops, IPPROTO_TCP, FL_TCP_KEEPCNT);
		if (own > last)
			last = own;
	}
	/* At most FL_KEEPCNT_MAX probes: further apart where it takes more. */
	last = last > idle ? last - idle : 0;
	interval = idle / 2;
	if (interval <= last / FL_KEEPCNT_MAX)
		interval = last / FL_KEEPCNT_MAX + 1;
	count = last / interval + 1;
	on = 1;
	bpf_setsockopt(ops, FL_SOL_SOCKET, FL_SO_KEEPALIVE, &on, sizeof(on));
	bpf_setsockopt(ops, IPPROTO_TCP, FL_TCP_KEEPIDLE, &idle, sizeof(idle));
	bpf_setsockopt(ops, IPPROTO_TCP, FL_TCP_KEEPINTVL, &interval, sizeof(interval));
	bpf_setsockopt(ops, IPPROTO_TCP, FL_TCP_KEEPCNT, &count, sizeof(count));
}

#endif
