// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* The server's side.
 *
 *   NIC ─▶ host_in (XDP): ours? ─▶ restore TSecr ─▶ decapsulate ─▶ stack
 *   stack ─▶ host_out (tc egress): stamp TSval ─▶ client (direct return)
 *   host_sockops (cgroup): established ─▶ the socket's constant, keepalives
 *
 * Read in.h, decap.h, restore.h, stamp.h and sockops.h in this order. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "in.h"
#include "stamp.h"
#include "sockops.h"
#include "faild.h"

SEC("xdp.frags") /* large MTUs too: everything read is in the first buffer */
int host_in(struct xdp_md *ctx)
{
	return fl_host_in(ctx);
}

SEC("tc")
int host_out(struct __sk_buff *skb)
{
	return fl_stamp(skb);
}

SEC("tc")
int host_accept(struct __sk_buff *skb)
{
	fl_accept(skb);
	return TC_ACT_UNSPEC;
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
