/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Out: stamps the cookie into TSval.
 *
 *   wire TSval = TSval + constant,  constant = (field << shift) + D - offset
 *
 * An established connection's constant is kept with its socket (sockops.h)
 * and never changes. What has no full socket (SYN-ACK, TIME_WAIT's answers)
 * is looked up and encoded anew, to the same constant. An RST without a
 * timestamp is left alone. */
#ifndef FAIRLEAD_HOST_STAMP_H
#define FAIRLEAD_HOST_STAMP_H

#include "edit.h"
#include "join.h"
#include "keepalive.h"
#include "mss.h"
#include "socket.h"

/* Parses from layer 3 on. On egress to an Ethernet device the packet starts
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

/* A packet of a socket whose constant is known. Here every nanosecond counts:
 * no addresses are read. */
static __always_inline void fl_stamp_socket(struct __sk_buff *skb, struct bpf_sock *sk,
					    const struct fl_socket *s)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp;
	__u32 l4, l4_len, was, seq;
	_Bool probe = 0;
	void *word;
	int at;

	if (skb->protocol == FL_BE16(ETH_P_IP)) {
		struct iphdr *ip = data + ETH_HLEN;

		if ((void *)(ip + 1) > end || ip->protocol != IPPROTO_TCP ||
		    ip->frag_off & FL_BE16(0x1fff))
			return;
		l4 = ETH_HLEN + ip->ihl * 4;
	} else if (skb->protocol == FL_BE16(ETH_P_IPV6)) {
		struct ipv6hdr *ip = data + ETH_HLEN;
		__u8 *hop = (void *)(ip + 1);

		if ((void *)hop > end)
			return;
		l4 = ETH_HLEN + sizeof(*ip);
		if (ip->nexthdr != IPPROTO_TCP) {
			/* BIG TCP's hop-by-hop header, only while here. */
			if (ip->nexthdr || (void *)(hop + 8) > end || hop[0] != IPPROTO_TCP ||
			    hop[1])
				return;
			l4 += 8;
		}
	} else {
		return;
	}
	tcp = data + l4;
	if ((void *)(tcp + 1) > end || skb->len < l4)
		return;
	fl_host_counted(s->vip_id, 1, skb->len - ETH_HLEN);
	if (!s->stamped)
		return;
	l4_len = skb->len - l4;
	at = fl_timestamp_offset(skb, tcp, data, l4_len, end, fl_timestamp_skb);
	if (at < 0) {
		fl_host_reason(FL_HOST_OUT_NO_TIMESTAMP, skb->len - ETH_HLEN);
		return;
	}
	word = (void *)tcp + fl_option_offset(at);
	if (word + 4 > end)
		return;
	was = *(__u32 *)word;
	if (l4_len == tcp->doff * 4 && !tcp->syn && !tcp->fin && !tcp->rst) {
		seq = bpf_ntohl(tcp->seq);
		probe = fl_is_probe(sk, seq);
	}
	if (fl_edit_word(skb, data, tcp, at, was, bpf_htonl(bpf_ntohl(was) + s->constant), end))
		return;
	if (probe)
		fl_fill_probe(skb, l4, l4_len);
}

/* The field that names this server's slot to the connection's client. The
 * packet is outgoing: the client is its destination. */
static __always_inline __u32 fl_out_field(const struct fl_host_vip *v,
					  const struct fl_host_packet *p, const struct fl_stamp *s)
{
	__u64 hash = fl_host_hash(v, s->epoch, p->dst, p->dport, p->sport);

	return fl_cookie_encode(hash, s->slot, s->epoch, v->shift);
}

/* The parity that a TIME_WAIT connection was stamped under: what its client
 * showed last (restore.h), else today's. */
static __always_inline void fl_time_wait_stamp(const struct fl_host_vip *v,
					       const struct fl_host_packet *p, struct fl_stamp *s)
{
	struct fl_tuple t = {
		.addr = { p->dst[0], p->dst[1] },
		.sport = p->dport,
		.dport = p->sport,
		.vip_id = v->id,
	};
	__u8 *parity;

	s->slot = v->slot;
	s->epoch = v->stamp_epoch & 1;
	if (v->epochs == 3) {
		parity = bpf_map_lookup_elem(&old_epochs, &t);
		if (parity)
			s->epoch = *parity & 1;
	}
}

/* The SYN-ACK of a SYN cookie belongs to no socket, so with tcp_timestamps=1
 * nobody can say which offset is in its TSval. Its low six bits hold the
 * connection's options (cookie_init_timestamp), offset included, and are all
 * that the kernel reads from the echo. So it is sent the shared clock with
 * those six bits, never ahead of the clock: later TSvals are not lower, the
 * balancers decode it, and the echo, restored as if the offset were 0, has
 * the right six bits (D is a multiple of 64). With tcp_timestamps=2 this is
 * TSval + D exactly. Returns the time that it carries, CLOCK_MONOTONIC ms. */
static __always_inline __u64 fl_syncookie_ms(__u64 now, __u32 tsval)
{
	__u64 ms = (now & ~63ULL) | (tsval & 63);

	return ms > now ? ms - 64 : ms;
}

/* What becomes of a packet: it goes on to the next program, changed or not, or
 * ends here. */
#define FL_OUT_GOES TC_ACT_UNSPEC
#define FL_OUT_ENDS TC_ACT_SHOT

/* Answers that no full socket sends. sk is skb->sk or NULL. */
static __always_inline int fl_stamp_lookup(struct __sk_buff *skb, struct fl_host_control *c)
{
	void *data = (void *)(long)skb->data;
	struct bpf_sock *sk;
	struct fl_host_vip *v;
	struct fl_cursor cur;
	struct fl_host_packet p;
	struct fl_offset o = {};
	struct fl_stamp s;
	struct tcphdr *tcp;
	__u32 was, is, tsval, reason = FL_HOST_OUT_STAMPED_LOOKUP;
	__u64 now, ms;
	_Bool syn;
	void *word;
	int at;

	if (fl_out_parse(skb, &cur, &p) || p.proto != IPPROTO_TCP)
		return FL_OUT_GOES;
	v = fl_host_vip_find(c, p.src, p.sport, IPPROTO_TCP);
	if (!v)
		return FL_OUT_GOES;
	tcp = p.l4;
	if ((void *)(tcp + 1) > cur.end)
		return FL_OUT_GOES;
	if (v->flags & FL_HOST_VIP_JOIN && fl_join_refuses(skb, tcp, cur.end)) {
		fl_host_reason(FL_HOST_DROP_NO_JOIN, p.l3_len);
		return FL_OUT_ENDS;
	}
	if (v->scheme != FL_SCHEME_CHEETAH) {
		/* Beamer's tunnels are the longest, and carry no cookie. */
		if (v->scheme == FL_SCHEME_BEAMER && tcp->syn && tcp->ack && v->mss)
			fl_clamp_mss(skb, data, tcp, v->mss, cur.end);
		return FL_OUT_GOES;
	}
	fl_host_counted(v->id, 1, p.l3_len);
	/* The rest is for what we answer with: not a client's SYN that happens
	 * to leave from here. */
	if (tcp->syn && !tcp->ack)
		return FL_OUT_GOES;
	syn = tcp->syn;
	at = fl_timestamp_offset(skb, tcp, data, p.l4_len, cur.end, fl_timestamp_skb);
	if (syn && v->mss) {
		fl_clamp_mss(skb, data, tcp, v->mss, cur.end);
		if (fl_out_parse(skb, &cur, &p))
			return FL_OUT_GOES;
		data = (void *)(long)skb->data;
		tcp = p.l4;
	}
	if (at < 0) {
		fl_host_reason(FL_HOST_OUT_NO_TIMESTAMP, p.l3_len);
		return FL_OUT_GOES;
	}
	word = (void *)tcp + fl_option_offset(at);
	if (word + 4 > cur.end)
		return FL_OUT_GOES;
	was = *(__u32 *)word;
	tsval = bpf_ntohl(was);
	now = fl_monotonic_ms();

	/* Asked by addresses even where skb->sk is the request itself: one way
	 * for all of them, and the control sockets of resets need it anyway. */
	sk = fl_lookup(skb, p.dst, p.dport, p.src, p.sport);
	if (sk) {
		struct fl_socket *kept;

		fl_offset_of(sk, &o);
		kept = o.owner == FL_OWNER_FULL ? bpf_sk_storage_get(&host_sockets, sk, 0, 0) : 0;
		if (kept) {
			is = kept->constant;
			ms = kept->stamped;
			bpf_sk_release(sk);
			if (ms)
				fl_edit_word(skb, data, tcp, at, was, bpf_htonl(tsval + is),
					     cur.end);
			return FL_OUT_GOES;
		}
		bpf_sk_release(sk);
	}
	if (o.microseconds) {
		fl_host_reason(FL_HOST_OUT_MICROSECONDS, p.l3_len);
		return FL_OUT_GOES;
	}
	/* The first offset that is not 0 ends the days without look-ups: faster
	 * than any watch on the sysctl, and before its echo can come back. */
	if (o.ts && !c->lookup)
		c->lookup = 1;

	switch (o.owner) {
	case FL_OWNER_REQUEST:
		ms = syn ? fl_full_ms(now, tsval - o.ts) : o.synack_us / 1000;
		if (!fl_stamp_at(v, ms, &s))
			return FL_OUT_GOES;
		is = tsval - o.ts + c->clock_base;
		break;
	case FL_OWNER_TIME_WAIT:
		fl_time_wait_stamp(v, &p, &s);
		is = tsval - o.ts + c->clock_base;
		break;
	default:
		if (o.owner == FL_OWNER_FULL || !syn) {
			fl_host_reason(FL_HOST_OUT_UNKNOWN, p.l3_len);
			return FL_OUT_GOES;
		}
		ms = fl_syncookie_ms(now, tsval);
		if (!fl_stamp_at(v, ms, &s))
			return FL_OUT_GOES;
		is = (__u32)ms + c->clock_base;
		reason = FL_HOST_OUT_STAMPED_SYNCOOKIE;
	}
	is += fl_out_field(v, &p, &s) << v->shift;
	if (!fl_edit_word(skb, data, tcp, at, was, bpf_htonl(is), cur.end))
		fl_host_reason(reason, p.l3_len);
	return FL_OUT_GOES;
}

/* Sockets without a constant that answer nothing of ours: established ones
 * predate us, or belong to no VIP. */
static __always_inline _Bool fl_answers(__u32 state)
{
	return state == FL_TCP_NEW_SYN_RECV || state == FL_TCP_TIME_WAIT ||
	       state == FL_TCP_LISTEN || state == FL_TCP_CLOSE;
}

static __always_inline int fl_stamp(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct fl_host_control *c;

	if (sk) {
		struct fl_socket *s = bpf_sk_storage_get(&host_sockets, sk, 0, 0);

		if (s) {
			fl_stamp_socket(skb, sk, s);
			return FL_OUT_GOES;
		}
		if (!fl_answers(sk->state))
			return FL_OUT_GOES;
	}
	c = fl_host_settings();
	return c ? fl_stamp_lookup(skb, c) : FL_OUT_GOES;
}

#endif
