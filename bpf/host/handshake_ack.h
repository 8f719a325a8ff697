/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What ends a handshake that was answered here: the kernel makes a request of what the
 * SYN cookie says, and the listener's socket of that, as of a SYN cookie of its own.
 * Most of what comes by here is of connections that live: the MAC tells them from it,
 * and only then a socket is looked for. */
#ifndef FAIRLEAD_HOST_HANDSHAKE_ACK_H
#define FAIRLEAD_HOST_HANDSHAKE_ACK_H

#include "handshake_common.h"
#include "opened.h"

/* In uapi/linux/bpf.h since 6.8. */
struct bpf_tcp_req_attrs {
	__u32 rcv_tsval;
	__u32 rcv_tsecr;
	__u16 mss;
	__u8 rcv_wscale;
	__u8 snd_wscale;
	__u8 ecn_ok;
	__u8 wscale_ok;
	__u8 sack_ok;
	__u8 tstamp_ok;
	__u8 usec_ts_ok;
	__u8 reserved[3];
};

extern int bpf_sk_assign_tcp_reqsk(struct __sk_buff *skb, struct sock *sk,
				   struct bpf_tcp_req_attrs *attrs, int attrs__sz) __ksym __weak;

/* What an ACK says of its handshake. */
struct fl_ended {
	struct fl_handshake h;
	struct fl_macs m;
	__u32 number;       /* ours */
	__u32 isn;          /* the client's, if it is the first segment */
	__u32 tsval;
	__u32 cookie;       /* what is added to the clock: Cheetah's cookie and D */
	__u32 age;          /* of the answer, ms; without timestamps 0 */
};

/* Reads the ACK. 0: it ends no handshake of ours. */
static __always_inline _Bool fl_ended_read(struct __sk_buff *skb, const struct fl_host_control *c,
					   const struct fl_offload *o, const struct fl_host_vip *v,
					   struct fl_cursor *cur, const struct fl_host_packet *p,
					   struct fl_ended *e)
{
	struct tcphdr *tcp = p->l4;
	__u32 now = fl_shared_now(c), field, epoch, told;
	__u8 *ts;
	int at;

	e->number = bpf_ntohl(tcp->ack_seq) - 1;
	e->isn = bpf_ntohl(tcp->seq) - 1;
	at = fl_timestamp_offset(skb, tcp, (void *)(long)skb->data, p->l4_len, cur->end,
				 fl_timestamp_skb);
	if (at == FL_TCPOPT_MALFORMED)
		return 0;
	e->h.form = fl_handshake_form(o, at >= 0);
	if (at < 0) {
		e->tsval = e->cookie = e->age = 0;
		e->h.connection = fl_handshake_bare(o->key, p->src, p->sport, p->dport, v->id);
		e->h.time = fl_handshake_time(now);
		fl_handshake_mac(o->key, &e->h, e->isn, &e->m);
		if (!fl_syn_early(&e->m, e->number) ||
		    !fl_syn_bare(fl_syn_options(&e->m, e->number))) {
			e->h.time--;
			fl_handshake_mac(o->key, &e->h, e->isn, &e->m);
		}
		return fl_syn_early(&e->m, e->number) &&
		       fl_syn_bare(fl_syn_options(&e->m, e->number));
	}
	ts = (__u8 *)tcp + fl_option_offset(at);
	if ((void *)(ts + 8) > cur->end)
		return 0;
	e->tsval = bpf_ntohl(*(__u32 *)ts);
	e->h.time = bpf_ntohl(*(__u32 *)(ts + 4));
	field = fl_timestamp_field(e->h.time, now, v->shift);
	if (!fl_cheetah_ours(v, p, field, &epoch, &e->h.connection, &told))
		return 0;
	e->cookie = (field << v->shift) + c->clock_base;
	/* The clock here is good to a tick; what is ahead of it is as good as now. */
	e->age = now - (e->h.time - (field << v->shift));
	if ((__s32)e->age < 0)
		e->age = 0;
	fl_handshake_mac(o->key, &e->h, e->isn, &e->m);
	return fl_syn_early(&e->m, e->number);
}

static __always_inline int fl_ended_assign(struct __sk_buff *skb, const struct fl_offload *o,
					   struct tcp_sock *listener, const struct fl_ended *e,
					   _Bool ipv6)
{
	__u32 options = fl_syn_options(&e->m, e->number), wscale = options >> 3 & 15;
	struct bpf_tcp_req_attrs a = {
		.rcv_tsval = e->tsval,
		/* The kernel takes its clock from this, so it has to be now, and not
		 * when the answer was sent. */
		.rcv_tsecr = (__u32)fl_monotonic_ms() + e->cookie,
		.mss = fl_mss_of(options, ipv6),
		.sack_ok = options >> 7 & 1,
		.ecn_ok = options >> 8 & 1,
		.tstamp_ok = e->h.form & 1,
	};

	if (wscale != FL_SYN_NO_WSCALE) {
		a.wscale_ok = 1;
		a.snd_wscale = wscale;
		a.rcv_wscale = o->wscale;
	}
	if (!bpf_ksym_exists(bpf_sk_assign_tcp_reqsk))
		return -1;
	return bpf_sk_assign_tcp_reqsk(skb, (struct sock *)listener, &a, sizeof(a));
}

static __always_inline int fl_handshake_ack(struct __sk_buff *skb, const struct fl_host_control *c,
					    const struct fl_offload *o, const struct fl_host_vip *v,
					    struct fl_cursor *cur, const struct fl_host_packet *p)
{
	struct fl_offload_count *n;
	struct tcp_sock *listener;
	struct fl_ended e;
	struct bpf_sock *sk;
	__u32 reason;
	__u64 mark;

	if (!fl_ended_read(skb, c, o, v, cur, p, &e))
		return TC_ACT_UNSPEC;
	listener = fl_listener(skb, p, &sk);
	if (!listener) {
		if (sk)
			bpf_sk_release(sk);
		return TC_ACT_UNSPEC;
	}
	mark = fl_opened_mark(o->key, p->src, p->sport, p->dport, e.number);
	if (!fl_syn_whole(&e.m, e.number))
		reason = FL_HOST_DROP_EARLY;
	else if (e.age > FL_OFFLOAD_MS)
		reason = FL_HOST_HANDSHAKE_LATE;
	else if (fl_opened_before(mark, fl_shared_now(c)))
		reason = FL_HOST_DROP_REPLAY;
	else if (fl_ended_assign(skb, o, listener, &e, !fl_is_mapped(p->dst)))
		reason = FL_HOST_HANDSHAKE_REFUSED;
	else
		reason = FL_HOST_HANDSHAKE_OPENED;
	bpf_sk_release(sk);
	fl_host_reason(reason, p->l3_len);
	if (reason == FL_HOST_DROP_EARLY || reason == FL_HOST_DROP_REPLAY)
		return TC_ACT_SHOT;
	n = fl_offload_counted(v);
	if (n && reason == FL_HOST_HANDSHAKE_OPENED)
		n->opened++;
	return TC_ACT_UNSPEC;
}

#endif
