// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* What `fairlead bench` runs of the host's programs: their own inlined
 * entries, BENCH_PACKETS packets a run, each written anew before and made as
 * long as it was after. The *_none programs do all of it but the entry. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "../host/in.h"
#include "../host/out.h"

#define BENCH_PACKETS 16
#define BENCH_HEAD 34 /* Ethernet and outer IPv4 */
#define BENCH_HOPS 50 /* the same with hops in its option */

/* What the entry overwrites, to be written back. */
struct bench_host_run {
	__u64 head[4];     /* the first bytes of the frame, */
	__u16 head_rest;   /* BENCH_HEAD of them */
	__u16 check;       /* of TCP */
	__u32 word;        /* TSecr (in) or TSval (out) */
	__u32 at_word;     /* their offsets in the frame */
	__u32 at_check;
	__u32 length;      /* of the frame */
	__u32 changed;     /* frames whose word the entry changed, or that had the
	                    * verdict and length below: all but _none's */
	__u64 hops[2];     /* bytes BENCH_HEAD to BENCH_HOPS */
	__u32 verdict;
	__u32 after;       /* length of the frame then */
};

struct bench_host_run host_bench SEC(".data.bench");
struct fl_socket bench_socket SEC(".data.bench");

static __always_inline void bench_write(void *data, void *end, _Bool head)
{
	__u32 word = host_bench.at_word & 0x7f, check = host_bench.at_check & 0x7f;

	if (head && data + BENCH_HEAD <= end) {
		for (int i = 0; i < 4; i++)
			*(__u64 *)(data + 8 * i) = host_bench.head[i];
		*(__u16 *)(data + 32) = host_bench.head_rest;
	}
	if (data + word + 4 <= end)
		*(__u32 *)(data + word) = host_bench.word;
	if (data + check + 2 <= end)
		*(__u16 *)(data + check) = host_bench.check;
}

static __always_inline void bench_look(void *data, void *end, __u32 at)
{
	at &= 0x7f;
	if (data + at + 4 <= end && *(__u32 *)(data + at) != host_bench.word)
		host_bench.changed++;
}

struct bench_xdp {
	struct xdp_md *ctx;
};

#define BENCH_XDP(name, call, cut)                                                    \
	static long name##_step(__u64 i, struct bench_xdp *l)                         \
	{                                                                             \
		struct xdp_md *ctx = l->ctx;                                          \
		long length;                                                          \
                                                                                      \
		bench_write((void *)(long)ctx->data, (void *)(long)ctx->data_end, 1); \
		call;                                                                 \
		bench_look((void *)(long)ctx->data, (void *)(long)ctx->data_end,      \
			   host_bench.at_word - (cut));                               \
		length = (long)ctx->data_end - (long)ctx->data;                       \
		asm volatile("" : "+r"(length)); /* not data_end less something */    \
		bpf_xdp_adjust_head(ctx, (int)(length - host_bench.length));          \
		return 0;                                                             \
	}                                                                             \
	SEC("xdp") int name(struct xdp_md *ctx)                                       \
	{                                                                             \
		struct bench_xdp l = { .ctx = ctx };                                  \
                                                                                      \
		bpf_loop(BENCH_PACKETS, name##_step, &l, 0);                          \
		return XDP_PASS;                                                      \
	}

BENCH_XDP(bench_in_none, , 0)
BENCH_XDP(bench_in, fl_host_in(ctx), sizeof(struct iphdr))

/* Tunnels with hops: taken or passed on. Nothing in the packet itself changes. */
static __always_inline void bench_write_hops(void *data, void *end)
{
	bench_write(data, end, 1);
	if (data + BENCH_HOPS > end)
		return;
	*(__u64 *)(data + BENCH_HEAD) = host_bench.hops[0];
	*(__u64 *)(data + BENCH_HEAD + 8) = host_bench.hops[1];
}

#define BENCH_OWN(name, call)                                                           \
	static long name##_step(__u64 i, struct bench_xdp *l)                           \
	{                                                                               \
		struct xdp_md *ctx = l->ctx;                                            \
		__u32 verdict;                                                          \
		long length;                                                            \
                                                                                        \
		bench_write_hops((void *)(long)ctx->data, (void *)(long)ctx->data_end); \
		verdict = call;                                                         \
		length = (long)ctx->data_end - (long)ctx->data;                         \
		asm volatile("" : "+r"(length));                                        \
		if (verdict == host_bench.verdict && (__u32)length == host_bench.after) \
			host_bench.changed++;                                           \
		bpf_xdp_adjust_head(ctx, (int)(length - host_bench.length));            \
		return 0;                                                               \
	}                                                                               \
	SEC("xdp") int name(struct xdp_md *ctx)                                         \
	{                                                                               \
		struct bench_xdp l = { .ctx = ctx };                                    \
                                                                                        \
		bpf_loop(BENCH_PACKETS, name##_step, &l, 0);                            \
		return XDP_PASS;                                                        \
	}

BENCH_OWN(bench_own_none, 0)
BENCH_OWN(bench_own, fl_host_in(ctx))

struct bench_skb {
	struct __sk_buff *skb;
};

/* A test run's packet belongs to a socket of its own; it gets a constant, as
 * an established connection's has. */
#define BENCH_TC(name, call)                                                          \
	static long name##_step(__u64 i, struct bench_skb *l)                         \
	{                                                                             \
		struct __sk_buff *skb = l->skb;                                       \
                                                                                      \
		bench_write((void *)(long)skb->data, (void *)(long)skb->data_end, 0); \
		call;                                                                 \
		bench_look((void *)(long)skb->data, (void *)(long)skb->data_end,      \
			   host_bench.at_word);                                       \
		return 0;                                                             \
	}                                                                             \
	SEC("tc") int name(struct __sk_buff *skb)                                     \
	{                                                                             \
		struct bench_skb l = { .skb = skb };                                  \
		struct bpf_sock *sk = skb->sk;                                        \
                                                                                      \
		if (sk)                                                               \
			bpf_sk_storage_get(&host_sockets, sk, &bench_socket,          \
					   BPF_SK_STORAGE_GET_F_CREATE);              \
		bpf_loop(BENCH_PACKETS, name##_step, &l, 0);                          \
		return TC_ACT_OK;                                                     \
	}

BENCH_TC(bench_out_none, )
BENCH_TC(bench_out, fl_host_out(skb))

struct bench_jiffies {
	__u64 jiffies;
};

SEC("syscall")
int bench_clock(struct bench_jiffies *c)
{
	c->jiffies = bpf_jiffies64();
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
