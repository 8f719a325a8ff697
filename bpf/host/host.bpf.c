// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* The server's side.
 *
 *   NIC ─▶ host_in (XDP): ours? ─▶ undo the cookie ─▶ decapsulate ─▶ stack
 *   stack ─▶ host_out (tc egress): stamp the cookie ─▶ client (direct return)
 *   host_sockops (cgroup): established ─▶ the socket's constant, keepalives
 *
 * In:
 *   in.h        the way itself; nearly all packets take a short one, plain.h of
 *               scheme cheetah and hops_in.h of beamer
 *   decap.h     which tunnel? a header a forwarding, forward_*.h; and off with it
 *   vip.h       which VIP? and packet.h, which reads its packet
 *   tunnel.h    of a form, and from somebody, whose tunnels are taken?
 *   scheme.h    what does its scheme have done?
 *     carrier.h   cheetah: undo the cookie; a header a carrier, carrier_*.h, and
 *                 scheme_cheetah.h, which says what the cookie is
 *     own.h       beamer, faild: whose connection is it? about.h reads what ICMP
 *                 quotes, owner.h, flow.h and stranger.h know what is ours,
 *                 previous.h who is next, scheme_beamer.h and scheme_faild.h how
 *                 the chain comes and the packet goes on
 * Out:
 *   out.h       the way itself: carrier.h stamps, mss.h lowers, join.h refuses
 * Handshakes (tc ingress, for VIPs that have them answered here):
 *   handshake.h its halves handshake_syn.h and handshake_ack.h, syncookie.h, opened.h
 * Sockets:
 *   sockops.h   established, closed; socket.h and kernel.h read what the kernel has
 *
 * A new scheme is a line in scheme.h and, where what it has done is new, a header;
 * a carrier is a header and a line in carrier.h, a forwarding one in decap.h. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "handshake.h"
#include "in.h"
#include "out.h"
#include "sockops.h"

SEC("xdp.frags") /* large MTUs too: everything read is in the first buffer */
int host_in(struct xdp_md *ctx)
{
	return fl_host_in(ctx);
}

SEC("tc")
int host_out(struct __sk_buff *skb)
{
	return fl_host_out(skb);
}

SEC("tc")
int host_accept(struct __sk_buff *skb)
{
	fl_accept(skb);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int host_handshake(struct __sk_buff *skb)
{
	return fl_handshake_in(skb);
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
