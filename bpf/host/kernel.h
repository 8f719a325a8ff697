/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The few fields of the kernel's own structs that the programs read. The
 * loader finds where they lie in the running kernel (CO-RE), so only names
 * and types matter here. Needs CONFIG_DEBUG_INFO_BTF. */
#ifndef FAIRLEAD_HOST_KERNEL_H
#define FAIRLEAD_HOST_KERNEL_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct tcp_options_received {
	__u16 tstamp_ok : 1; /* both sides have timestamps */
};

struct sock {
	int sk_rcvbuf;
	__u32 sk_ack_backlog;     /* connections that wait for accept(), */
	__u32 sk_max_ack_backlog; /* and how many may */
};

struct tcp_sock {
	struct tcp_options_received rx_opt;
	__u32 tsoffset; /* what tcp_timestamps=1 adds to every TSval */
	__u32 snd_una;
	__u8 tcp_usec_ts : 1; /* since 6.7: TSval counts microseconds */
	__u8 is_mptcp : 1;    /* with CONFIG_MPTCP */
};

struct tcp_request_sock {
	__u64 snt_synack; /* first SYN-ACK, microseconds of CLOCK_MONOTONIC */
	__u32 snt_isn;    /* its sequence number */
	__u32 ts_off;
	_Bool req_usec_ts; /* since 6.7 */
};

struct sock_common {
	__u32 skc_tw_rcv_nxt; /* TIME_WAIT: the byte behind the client's last */
};

struct inet_timewait_sock {
	struct sock_common __tw_common;
	volatile unsigned char tw_substate; /* TIME_WAIT, or FIN_WAIT2 */
	unsigned int tw_usec_ts : 1; /* since 6.7 */
};

struct tcp_timewait_sock {
	struct inet_timewait_sock tw_sk;
	__u32 tw_rcv_wnd;
	__u32 tw_ts_offset;
};

struct sk_buff {
	__u8 ip_summed : 2;
};

#pragma clang attribute pop

#define FL_CHECKSUM_UNNECESSARY 1
#define FL_CHECKSUM_PARTIAL 3

/* Kernel functions for all programs, since 6.2. Weak: without them there is
 * a slower way. */
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;
extern void *bpf_rdonly_cast(void *object, __u32 btf_id) __ksym __weak;

#ifndef bpf_ksym_exists /* not yet in Debian 12's libbpf */
#define bpf_ksym_exists(sym) (!!(sym))
#endif

/* States of a socket (include/net/tcp_states.h, fixed by /proc/net/tcp). */
enum {
	FL_TCP_ESTABLISHED = 1,
	FL_TCP_SYN_RECV = 3,
	FL_TCP_FIN_WAIT2 = 5,
	FL_TCP_TIME_WAIT = 6,
	FL_TCP_CLOSE = 7,
	FL_TCP_LISTEN = 10,
	FL_TCP_NEW_SYN_RECV = 12,
};

#endif
