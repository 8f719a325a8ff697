// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* The server's side.
 *
 *   NIC ─▶ host_in (XDP): ours? ─▶ restore TSecr ─▶ decapsulate ─▶ stack
 *   stack ─▶ host_out (tc egress): stamp TSval ─▶ client (direct return)
 *   host_sockops (cgroup): established ─▶ the socket's constant, keepalives
 *
 * Read decap.h, restore.h, stamp.h and sockops.h in this order. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "vip.h"
#include "packet.h"
#include "socket.h"
#include "decap.h"
#include "restore.h"
#include "stamp.h"
#include "sockops.h"

/* Passed until it is known to be ours; dropped with a reason after. */
static __always_inline int fl_host_in(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct fl_host_control *c = fl_host_settings();
	__u32 bytes = end - data, room;
	struct fl_host_count *count;
	struct fl_host_vip *v;
	struct fl_outer outer;
	struct fl_cursor cur;
	struct fl_packet p;
	int malformed, restored = 0;

	if (!c || !fl_outer_parse(&outer, data, end)) {
		fl_host_reason(FL_HOST_PASS_NOT_OURS, bytes);
		return XDP_PASS;
	}
	cur.pos = outer.inner;
	cur.end = end;
	room = end - outer.inner;
	malformed = outer.inner_proto == FL_BE16(ETH_P_IP) ? fl_parse_ip4(&cur, &p, room)
							   : fl_parse_ip6(&cur, &p, room);
	v = malformed ? 0 : fl_host_vip_find(c, p.dst, p.dport, p.proto);
	if (!v || (outer.cut && (v->tunnel[0] != outer.dst[0] || v->tunnel[1] != outer.dst[1]))) {
		fl_host_reason(FL_HOST_PASS_NOT_OURS, bytes);
		return XDP_PASS;
	}

	count = fl_host_counted(v->id, 0, p.l3_len);
	if (p.proto == IPPROTO_TCP && v->scheme == FL_SCHEME_CHEETAH) {
		restored = fl_restore(ctx, c, v, &p, end);
		if (restored < 0) {
			fl_host_reason(FL_HOST_DROP_MALFORMED, bytes);
			return XDP_DROP;
		}
		if (restored && count)
			count->restored++;
	}
	if (!outer.cut) {
		fl_host_reason(FL_HOST_IN_DIRECT, p.l3_len);
		return XDP_PASS;
	}
	if (outer.congested)
		fl_pass_congestion(&outer, end);
	if (fl_decapsulate(ctx, &outer)) {
		fl_host_reason(FL_HOST_DROP_MALFORMED, bytes);
		return XDP_DROP;
	}
	return XDP_PASS;
}

SEC("xdp")
int host_in(struct xdp_md *ctx)
{
	return fl_host_in(ctx);
}

SEC("tc")
int host_out(struct __sk_buff *skb)
{
	fl_stamp(skb);
	return TC_ACT_UNSPEC; /* on to the next program: we only change packets */
}

SEC("sockops")
int host_sockops(struct bpf_sock_ops *ops)
{
	/* One cgroup holds the sockets of all namespaces. */
	if (netns_cookie && bpf_get_netns_cookie(ops) != netns_cookie)
		return 1;
	switch (ops->op) {
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		fl_established(ops);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ops->args[1] == BPF_TCP_CLOSE)
			fl_closed(ops);
		break;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		fl_reused(ops);
		break;
	}
	return 1;
}

/* Both clocks at one moment, for the agent (jiffies cannot be read from user
 * space). */
struct fl_host_clock {
	__u64 jiffies;
	__u64 monotonic_ns;
};

SEC("syscall")
int host_clock(struct fl_host_clock *clock)
{
	clock->jiffies = bpf_jiffies64();
	clock->monotonic_ns = bpf_ktime_get_ns();
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
