// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* What `fairlead bench` runs: the balancer's own inlined entry and the floor,
 * each in the same loop. One run of a program is BENCH_PACKETS packets:
 *
 *   write the next flow's packet ─▶ entry ─▶ undo what it did to the length
 *
 * bench_none does all of it but the entry: what it costs is subtracted. */
#include "verdict.h"
#include "floor.h"

/* A run's time comes back in whole nanoseconds, so that packets in a run are
 * digits behind the point. */
#define BENCH_PACKETS 16

struct bench_flow {
	__u32 saddr;
	__u16 sport;
	__u16 dport;
	__u32 ecr;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct bench_flow);
} bench_flows SEC(".maps");

/* The case that runs now. */
struct bench_run {
	__u32 first;    /* flow */
	__u32 mask;     /* flows - 1 */
	__u32 length;   /* of the frame */
	__u32 family;
	__u32 at_saddr; /* offsets in the frame: low 32 bits of the source, */
	__u32 at_ports; /* ports, */
	__u32 at_ecr;   /* TSecr */
	__u32 saddr;    /* of the frame as it was made, in IPv4, */
	__u32 check;    /* and its header's checksum */
	__u32 salt;     /* makes what bench_lru inserts new */
	__u32 verdicts[8]; /* what the entry returned, by action */
};

struct bench_run bench_case SEC(".data.case");
__u32 bench_next SEC(".data.case");

enum bench_entry { BENCH_NONE, BENCH_LB, BENCH_FLOOR };

static __always_inline void bench_write(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 index = bench_case.first + (bench_next++ & bench_case.mask);
	struct bench_flow *f = bpf_map_lookup_elem(&bench_flows, &index);
	__u32 saddr = bench_case.at_saddr & 0x7f, ports = bench_case.at_ports & 0x7f;
	__u32 ecr = bench_case.at_ecr & 0x7f;

	if (!f || data + 14 > end)
		return;
	/* The outer header overwrote the MAC addresses and the type. */
	*(__u64 *)data = 0x0201000000000002;
	*(__u32 *)(data + 8) = 0x01000000;
	*(__u16 *)(data + 12) =
		bench_case.family == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	if (data + saddr + 4 <= end)
		*(__u32 *)(data + saddr) = f->saddr;
	if (bench_case.family == 4 && data + 26 <= end)
		*(__u16 *)(data + 24) =
			fl_csum_replace32(bench_case.check, bench_case.saddr, f->saddr);
	if (data + ports + 4 <= end)
		*(__u32 *)(data + ports) = f->sport | (__u32)f->dport << 16;
	if (data + ecr + 4 <= end)
		*(__u32 *)(data + ecr) = f->ecr;
}

static __always_inline void bench_undo(struct xdp_md *ctx)
{
	long length = (long)ctx->data_end - (long)ctx->data;

	/* The compiler would otherwise subtract from data_end first, which the
	 * verifier does not allow. */
	asm volatile("" : "+r"(length));
	bpf_xdp_adjust_head(ctx, (int)(length - bench_case.length));
}

struct bench_loop {
	struct xdp_md *ctx;
};

/* What to compare a new seat with: the floor, and an entry of a BPF LRU hash, as of a
 * connection that is to be remembered. */
struct bench_lru_key {
	__u32 saddr;
	__u32 daddr;
	__u32 ports;
	__u32 salt;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 20);
	__type(key, struct bench_lru_key);
	__type(value, __u64);
} bench_lru_flows SEC(".maps");

static __always_inline int bench_lru_balance(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	struct tcphdr *tcp = (void *)(ip + 1);
	struct bench_lru_key key = { .salt = bench_case.salt };
	__u64 value = 1;

	if ((void *)(tcp + 1) > end)
		return XDP_PASS;
	key.saddr = ip->saddr;
	key.daddr = ip->daddr;
	key.ports = (__u32)tcp->source << 16 | tcp->dest;
	if (bpf_map_update_elem(&bench_lru_flows, &key, &value, BPF_ANY))
		return XDP_DROP;
	return floor_balance(ctx);
}

#define BENCH_PROGRAM(name, call)                              \
	static long name##_step(__u64 i, struct bench_loop *l) \
	{                                                      \
		struct xdp_md *ctx = l->ctx;                   \
		int action;                                    \
                                                               \
		bench_write(ctx);                              \
		action = call;                                 \
		bench_case.verdicts[action & 7]++;             \
		bench_undo(ctx);                               \
		return 0;                                      \
	}                                                      \
	SEC("xdp") int name(struct xdp_md *ctx)                \
	{                                                      \
		struct bench_loop l = { .ctx = ctx };          \
                                                               \
		bpf_loop(BENCH_PACKETS, name##_step, &l, 0);   \
		return XDP_PASS;                               \
	}

BENCH_PROGRAM(bench_none, XDP_PASS)
BENCH_PROGRAM(bench_lb, fl_balance(ctx))
BENCH_PROGRAM(bench_floor, floor_balance(ctx))
BENCH_PROGRAM(bench_lru, bench_lru_balance(ctx))

#include "syscalls.h"

char _license[] SEC("license") = "Dual BSD/GPL";
