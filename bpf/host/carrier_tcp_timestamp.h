/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Carrier tcp-timestamp at the server (bpf/include/timestamp.h).
 *
 *   in   TSecr for the stack = TSecr - (field << shift) - D + the socket's offset
 *   out  wire TSval = TSval + constant,  constant = (field << shift) + D - offset
 *
 * In: with tcp_timestamps=2 every offset is 0 and no socket is asked. With 1 the
 * socket is looked up. Where there is none but a listener, the packet may end
 * the handshake of a SYN cookie; it is restored as if the offset were 0,
 * which keeps the low six bits right, and only those are read (fl_syncookie_ms).
 *
 * Out: an established connection's constant is kept with its socket (sockops.h)
 * and never changes. What has no full socket (SYN-ACK, TIME_WAIT's answers)
 * is looked up and encoded anew, to the same constant. An RST without a
 * timestamp is left alone. */
#ifndef FAIRLEAD_HOST_CARRIER_TCP_TIMESTAMP_H
#define FAIRLEAD_HOST_CARRIER_TCP_TIMESTAMP_H

#include "csum.h"
#include "echo.h"
#include "edit.h"
#include "keepalive.h"
#include "mss.h"
#include "question.h"
#include "scheme_cheetah.h"
#include "socket.h"
#include "timestamp.h"

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

/* Whether the offset that the stack adds to a connection's timestamps is its cookie,
 * as after a handshake that host_handshake answered: then they go as they are. p is
 * its client's side. (The kernel reads the clock once more: 1 may lack.) */
static __always_inline _Bool fl_offset_is_cookie(const struct fl_host_control *c,
						 const struct fl_host_vip *v,
						 const struct fl_host_packet *p, __u32 offset,
						 __u32 *epoch)
{
	__u32 cookie = offset - c->clock_base + 1;
	__u64 hash;
	__u32 told;

	if ((cookie & ((1u << v->shift) - 1)) > 1)
		return 0;
	return fl_cheetah_ours(v, p, cookie >> v->shift, epoch, &hash, &told);
}

/* ---- in ----------------------------------------------------------------- */

/* A SYN-ACK can be echoed for as long as it is retried; five minutes is above
 * what any sane tcp_synack_retries gives. */
#define FL_HANDSHAKE_MS 300000

static __always_inline __u64 fl_monotonic_ms(void)
{
	return bpf_ktime_get_ns() / 1000000;
}

/* The offset of the connection's socket, in the low 32 bits, its owner (enum fl_owner)
 * in the next 8, then whether it counts microseconds, and whether it is of a handshake
 * that began when nothing was stamped. ports: the client's | the VIP's << 16.
 * Global, for the stack's sake. */
__noinline __u64 fl_offset_at(struct xdp_md *ctx, const struct fl_host_vip *v, __u64 client0,
			      __u64 client1, __u32 ports)
{
	__u64 client[2] = { client0, client1 };
	struct fl_question *q = fl_question(); /* nothing is asked yet: room for a tuple */
	struct fl_offset o = {};
	struct bpf_sock *sk;

	if (!v || !q)
		return 0;
	sk = fl_lookup_by((struct bpf_sock_tuple *)q, ctx, client, ports, v->addr, ports >> 16);
	if (sk) {
		fl_offset_of(sk, &o);
		bpf_sk_release(sk);
	}
	return o.ts | (__u64)o.owner << 32 | (__u64) !!o.microseconds << 40 |
	       (__u64)(o.owner == FL_OWNER_REQUEST && v->old_slot == FL_NO_SLOT &&
		       o.synack_us / 1000 < v->slot_since)
		       << 41;
}

/* Whether handshakes may be under way that began when nothing was stamped, as the VIP or
 * its cookies are new. now: CLOCK_MONOTONIC ms. */
static __always_inline _Bool fl_stamps_lately(const struct fl_host_vip *v, __u32 now)
{
	/* The moment lies ahead for up to a second. */
	return v->old_slot == FL_NO_SLOT &&
	       now - (__u32)v->slot_since + 1024 <= FL_HANDSHAKE_MS + 1024;
}

/* Whether an echo, less its socket's offset, is of a SYN-ACK that was sent unstamped. */
static __always_inline _Bool fl_own_echo(const struct fl_host_vip *v, __u32 ms)
{
	__u64 now = fl_monotonic_ms();
	__u32 age = (__u32)now - ms;
	struct fl_stamp s;

	return age <= FL_HANDSHAKE_MS && !fl_stamp_at(v, now - age, &s);
}

/* What TSecr, `was` in the packet, is for the stack: in *is, also as in the
 * packet. 0: it is to be left alone. */
static __always_inline _Bool fl_restored(struct xdp_md *ctx, const struct fl_host_control *c,
					 const struct fl_host_vip *v,
					 const struct fl_host_packet *p, const struct tcphdr *tcp,
					 __u32 was, __u32 *is)
{
	__u32 echo = bpf_ntohl(was), now = fl_shared_now(c), field, epoch, told, cookie, offset = 0;
	__u64 hash;

	field = fl_timestamp_field(echo, now, v->shift);
	if (!fl_cheetah_ours(v, p, field, &epoch, &hash, &told)) {
		fl_host_reason(FL_HOST_IN_FOREIGN_COOKIE, p->l3_len);
		return 0;
	}
	cookie = (field << v->shift) + c->clock_base;
	if (c->lookup || epoch != (v->stamp_epoch & 1) || v->flags & FL_HOST_VIP_OFFLOAD ||
	    fl_host_told_vip(v) || fl_host_unstamps(v) ||
	    fl_stamps_lately(v, now - c->clock_base)) {
		__u64 found = fl_offset_at(ctx, v, p->src[0], p->src[1],
					   p->sport | (__u32)p->dport << 16);
		__u32 owner = found >> 32 & 0xff;

		if (found >> 40 & 1)
			return 0;
		offset = found;
		/* By chance its echo looks like one of ours. The stack takes the end of
		 * its handshake with what it has sent alone. */
		if (owner == FL_OWNER_REQUEST && (fl_host_unstamps(v) || found >> 41) &&
		    fl_own_echo(v, echo - offset))
			return 0;
		if (owner == FL_OWNER_NONE) {
			if (v->flags & FL_HOST_VIP_OFFLOAD) {
				if (fl_echo_opens(hash, echo | (__u64)bpf_ntohl(tcp->ack_seq)
									<< 32))
					return 0;
				fl_host_reason(FL_HOST_HANDSHAKE_BAD_MAC, p->l3_len);
			}
			fl_host_reason(FL_HOST_IN_NO_SOCKET, p->l3_len);
		}
		if (owner == FL_OWNER_TIME_WAIT &&
		    (epoch != (v->stamp_epoch & 1) || fl_host_unstamps(v)))
			fl_remember_epoch(v, p, epoch);
		/* What the client has seen, so that all that follows goes on by it:
		 * a handshake's constant, TIME_WAIT's answers. */
		if (fl_host_told_vip(v) && owner != FL_OWNER_FULL)
			fl_host_note(v, p, FL_TOLD | told);
	}
	/* The stack's own offset: fl_offset_is_cookie. */
	if (offset - cookie + 1 <= 1)
		return 0;
	*is = bpf_htonl(echo - cookie + offset);
	return 1;
}

/* Returns 1 where TSecr was restored, 0 where the packet needs nothing, -1
 * where it is malformed. */
static __always_inline int fl_restore(struct xdp_md *ctx, const struct fl_host_control *c,
				      const struct fl_host_vip *v, const struct fl_host_packet *p,
				      const void *end)
{
	struct tcphdr *tcp = p->l4;
	_Bool opening;
	__u32 was, is;
	__u8 *ts;
	int at;

	if (p->proto != IPPROTO_TCP)
		return 0;
	at = fl_timestamp_offset(ctx, tcp, (void *)(long)ctx->data, p->l4_len, end,
				 fl_timestamp_xdp);
	if (at == FL_TCPOPT_MALFORMED || (void *)(tcp + 1) > end)
		return -1;
	/* A first SYN echoes nothing, and what a balancer has told in it goes. */
	opening = tcp->syn && !tcp->ack;
	if (opening && (at < 0 || !fl_host_told_vip(v)))
		return 0;
	if (at < 0) {
		fl_host_reason(FL_HOST_IN_NO_TIMESTAMP, p->l3_len);
		return 0;
	}
	ts = (__u8 *)tcp + fl_option_offset(at);
	if ((void *)(ts + 8) > end)
		return -1;
	was = *(__u32 *)(ts + 4);
	if (opening) {
		fl_host_note(v, p, bpf_ntohl(was));
		is = 0;
	} else if (!fl_restored(ctx, c, v, p, tcp, was, &is)) {
		return 0;
	}
	*(__u32 *)(ts + 4) = is;
	if (at & 1)
		tcp->check = fl_csum_replace32(tcp->check, fl_csum_odd(was), fl_csum_odd(is));
	else
		tcp->check = fl_csum_replace32(tcp->check, was, is);
	return 1;
}

/* ---- out ---------------------------------------------------------------- */

/* The full time of a 32-bit millisecond reading that is not in the future. */
static __always_inline __u64 fl_full_ms(__u64 now, __u32 ms)
{
	__u32 age = (__u32)now - ms;

	return (__s32)age < 0 ? now : now - age;
}

/* When the SYN-ACK that ended this handshake was sent: the last packet's
 * TSecr less the offset, or TSecr itself after a SYN cookie (fl_restored
 * did it without an offset). Without an echo (TCP Fast Open): now. */
static __always_inline __u64 fl_synack_ms(struct bpf_sock_ops *ops, __u64 now, __u32 offset)
{
	__u8 ts[10] = { 8, 10 };
	__u32 echo, age;

	if (bpf_load_hdr_opt(ops, ts, sizeof(ts), 0) != sizeof(ts))
		return now;
	/* Two halves: the buffer is aligned to nothing. */
	echo = (__u32)ts[6] << 24 | (__u32)ts[7] << 16 | (__u32)ts[8] << 8 | ts[9];
	if (!echo)
		return now;
	age = (__u32)now - (echo - offset);
	if (age <= FL_HANDSHAKE_MS)
		return now - age;
	age = (__u32)now - echo;
	return age <= FL_HANDSHAKE_MS ? now - age : now;
}

static __always_inline void fl_stamp_keepalive(struct bpf_sock_ops *ops,
					       const struct fl_host_vip *v)
{
	if (v->keepalive_ms)
		fl_set_keepalive(ops, v->keepalive_ms, (1u << v->shift) - 2 * FL_SKEW_MS);
}

/* An established socket's constant is fixed. */
static __always_inline void fl_stamp_established(struct bpf_sock_ops *ops, struct tcp_sock *t,
						 struct fl_host_control *c,
						 const struct fl_host_vip *v,
						 const struct fl_host_packet *p,
						 struct fl_socket *made)
{
	struct fl_stamp s;

	if (!BPF_CORE_READ_BITFIELD(t, rx_opt.tstamp_ok))
		return;
	if (bpf_core_field_exists(t->tcp_usec_ts) && BPF_CORE_READ_BITFIELD(t, tcp_usec_ts)) {
		fl_host_reason(FL_HOST_OUT_MICROSECONDS, 0);
		return;
	}
	if (t->tsoffset && !c->lookup)
		c->lookup = 1;
	if (fl_offset_is_cookie(c, v, p, t->tsoffset, &s.epoch)) {
		made->live = s.epoch;
		made->own = 1;
		fl_stamp_keepalive(ops, v);
		return;
	}
	/* A handshake from before we had a slot: its client knows unstamped
	 * timestamps, and must go on seeing them. */
	if (!fl_stamp_at(v, fl_synack_ms(ops, fl_monotonic_ms(), t->tsoffset), &s))
		return;
	s.told = fl_host_noted(v, p->src, p->sport, p->dport);
	made->constant = (fl_cheetah_field(v, &s, p->src, p->sport, p->dport) << v->shift) +
			 c->clock_base - t->tsoffset;
	made->live = s.epoch;
	made->stamped = 1 + FL_CARRIER_TCP_TIMESTAMP;
	fl_stamp_keepalive(ops, v);
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
	if (!s->stamped && !s->own)
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
	if (s->stamped &&
	    fl_edit_word(skb, data, tcp, at, was, bpf_htonl(bpf_ntohl(was) + s->constant), end))
		return;
	if (probe)
		fl_fill_probe(skb, l4, l4_len);
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

/* fl_offset_is_cookie on the way out, where the client is the destination. */
static __always_inline _Bool fl_out_is_cookie(const struct fl_host_control *c,
					      const struct fl_host_vip *v,
					      const struct fl_host_packet *p, __u32 offset)
{
	struct fl_host_packet in = { .src = { p->dst[0], p->dst[1] },
				     .sport = p->dport,
				     .dport = p->sport };
	__u32 epoch;

	return fl_offset_is_cookie(c, v, &in, offset, &epoch);
}

/* An answer that no full socket sends. Pointers into the packet are void afterwards. */
static __always_inline void fl_stamp_answer(struct __sk_buff *skb, struct fl_host_control *c,
					    const struct fl_host_vip *v, struct fl_cursor *cur,
					    struct fl_host_packet *p)
{
	void *data = (void *)(long)skb->data;
	struct tcphdr *tcp = p->l4;
	struct bpf_sock *sk;
	struct fl_offset o = {};
	struct fl_stamp s;
	__u32 was, is, tsval, reason = FL_HOST_OUT_STAMPED_LOOKUP;
	__u64 now, ms;
	_Bool syn;
	void *word;
	int at;

	fl_host_counted(v->id, 1, p->l3_len);
	/* The rest is for what we answer with: not a client's SYN that happens
	 * to leave from here. */
	if (tcp->syn && !tcp->ack)
		return;
	syn = tcp->syn;
	at = fl_timestamp_offset(skb, tcp, data, p->l4_len, cur->end, fl_timestamp_skb);
	if (syn && v->mss) {
		fl_clamp_mss(skb, data, tcp, v->mss, cur->end);
		if (fl_out_parse(skb, cur, p))
			return;
		data = (void *)(long)skb->data;
		tcp = p->l4;
	}
	if (at < 0) {
		fl_host_reason(FL_HOST_OUT_NO_TIMESTAMP, p->l3_len);
		return;
	}
	word = (void *)tcp + fl_option_offset(at);
	if (word + 4 > cur->end)
		return;
	was = *(__u32 *)word;
	tsval = bpf_ntohl(was);
	now = fl_monotonic_ms();

	/* Asked by addresses even where skb->sk is the request itself: one way
	 * for all of them, and the control sockets of resets need it anyway. */
	sk = fl_lookup(skb, p->dst, p->dport, p->src, p->sport);
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
					     cur->end);
			return;
		}
		bpf_sk_release(sk);
	}
	if (o.microseconds) {
		fl_host_reason(FL_HOST_OUT_MICROSECONDS, p->l3_len);
		return;
	}
	/* The first offset that is not 0 ends the days without look-ups: faster
	 * than any watch on the sysctl, and before its echo can come back. */
	if (o.ts && !c->lookup)
		c->lookup = 1;

	s.told = fl_host_noted(v, p->dst, p->dport, p->sport);
	switch (o.owner) {
	case FL_OWNER_REQUEST:
		ms = syn ? fl_full_ms(now, tsval - o.ts) : o.synack_us / 1000;
		if (!fl_stamp_at(v, ms, &s))
			return;
		is = tsval - o.ts + c->clock_base;
		break;
	case FL_OWNER_TIME_WAIT:
		if (fl_out_is_cookie(c, v, p, o.ts))
			return;
		if (!fl_time_wait_stamp(v, p, &s))
			return;
		is = tsval - o.ts + c->clock_base;
		break;
	default:
		if (o.owner == FL_OWNER_FULL || !syn) {
			fl_host_reason(FL_HOST_OUT_UNKNOWN, p->l3_len);
			return;
		}
		ms = fl_syncookie_ms(now, tsval);
		if (!fl_stamp_at(v, ms, &s))
			return;
		is = (__u32)ms + c->clock_base;
		reason = FL_HOST_OUT_STAMPED_SYNCOOKIE;
	}
	is += fl_cheetah_field(v, &s, p->dst, p->dport, p->sport) << v->shift;
	if (!fl_edit_word(skb, data, tcp, at, was, bpf_htonl(is), cur->end))
		fl_host_reason(reason, p->l3_len);
}

#endif
