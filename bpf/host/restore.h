/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* In: undoes the cookie in TSecr before the stack sees it.
 *
 *   TSecr for the stack = TSecr - (field << shift) - D + the socket's offset
 *
 * With tcp_timestamps=2 every offset is 0 and no socket is asked. With 1 the
 * socket is looked up. Where there is none but a listener, the packet may end
 * the handshake of a SYN cookie; it is restored as if the offset were 0,
 * which keeps the low six bits right, and only those are read (stamp.h). */
#ifndef FAIRLEAD_HOST_RESTORE_H
#define FAIRLEAD_HOST_RESTORE_H

#include "csum.h"
#include "socket.h"

/* The shared clock, cheaply: good to a tick. */
static __always_inline __u32 fl_shared_now(const struct fl_host_control *c)
{
	return (__u32)(bpf_jiffies64() * jiffy_mult >> jiffy_shift) + c->jiffies_base;
}

/* A TIME_WAIT socket cannot say under which epoch its connection was stamped,
 * but its peer's packet does: noted for the answer that may come of it. */
static __always_inline void fl_remember_epoch(const struct fl_host_vip *v,
					      const struct fl_host_packet *p, __u32 epoch)
{
	struct fl_tuple t = {
		.addr = { p->src[0], p->src[1] },
		.sport = p->sport,
		.dport = p->dport,
		.vip_id = v->id,
	};
	__u8 parity = epoch;

	if (!bpf_map_update_elem(&old_epochs, &t, &parity, BPF_ANY))
		fl_host_reason(FL_HOST_IN_OLD_EPOCH, p->l3_len);
}

/* What TSecr, `was` in the packet, is for the stack: in *is, also as in the
 * packet. 0: it is to be left alone. */
static __always_inline _Bool fl_restored(struct xdp_md *ctx, const struct fl_host_control *c,
					 const struct fl_host_vip *v,
					 const struct fl_host_packet *p, __u32 was, __u32 *is)
{
	__u32 echo = bpf_ntohl(was), field, epoch, slot;
	struct fl_offset o = {};

	field = fl_timestamp_field(echo, fl_shared_now(c), v->shift);
	epoch = fl_cookie_epoch(field, v->shift);
	slot = fl_cookie_slot(fl_host_hash(v, epoch, p->src, p->sport, p->dport), field, v->shift);
	if (!(v->epochs >> epoch & 1) || (slot != v->slot && slot != v->old_slot)) {
		fl_host_reason(FL_HOST_IN_FOREIGN_COOKIE, p->l3_len);
		return 0;
	}
	if (c->lookup || epoch != (v->stamp_epoch & 1)) {
		struct bpf_sock *sk = fl_lookup(ctx, p->src, p->sport, p->dst, p->dport);

		if (sk) {
			fl_offset_of(sk, &o);
			bpf_sk_release(sk);
		}
		if (o.microseconds)
			return 0;
		if (o.owner == FL_OWNER_NONE)
			fl_host_reason(FL_HOST_IN_NO_SOCKET, p->l3_len);
		if (o.owner == FL_OWNER_TIME_WAIT && epoch != (v->stamp_epoch & 1))
			fl_remember_epoch(v, p, epoch);
	}
	*is = bpf_htonl(echo - (field << v->shift) - c->clock_base + o.ts);
	return 1;
}

/* Returns 1 where TSecr was restored, 0 where the packet needs nothing, -1
 * where it is malformed. */
static __always_inline int fl_restore(struct xdp_md *ctx, const struct fl_host_control *c,
				      const struct fl_host_vip *v, const struct fl_host_packet *p,
				      const void *end)
{
	struct tcphdr *tcp = p->l4;
	__u32 was, is;
	__u8 *ts;
	int at;

	at = fl_timestamp_offset(ctx, tcp, (void *)(long)ctx->data, p->l4_len, end,
				 fl_timestamp_xdp);
	if (at == FL_TCPOPT_MALFORMED || (void *)(tcp + 1) > end)
		return -1;
	/* A first SYN echoes nothing. */
	if (tcp->syn && !tcp->ack)
		return 0;
	if (at < 0) {
		fl_host_reason(FL_HOST_IN_NO_TIMESTAMP, p->l3_len);
		return 0;
	}
	ts = (__u8 *)tcp + fl_option_offset(at);
	if ((void *)(ts + 8) > end)
		return -1;
	was = *(__u32 *)(ts + 4);
	if (!fl_restored(ctx, c, v, p, was, &is))
		return 0;
	*(__u32 *)(ts + 4) = is;
	if (at & 1)
		tcp->check = fl_csum_replace32(tcp->check, fl_csum_odd(was), fl_csum_odd(is));
	else
		tcp->check = fl_csum_replace32(tcp->check, was, is);
	return 1;
}

#endif
