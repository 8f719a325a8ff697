// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* What `fairlead bench` runs of the router: its own inlined entry in a loop, as
 * bench.bpf.c has the balancer's. One run of a program is BENCH_PACKETS packets:
 *
 *   write the next flow's packet ─▶ entry
 *
 * The cases differ in the permutation, a constant of the program: each loads it
 * anew. bench_none does all of it but the entry. */
#include "../router/verdict.h"

#define BENCH_PACKETS 16

struct bench_flow {
	__u32 saddr; /* its low 32 bits in IPv6 */
	__u32 ports; /* BE */
	__u32 ttl;   /* the word with the time to live and, in IPv4, the checksum */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct bench_flow);
} bench_flows SEC(".maps");

/* The case that runs now, and what the entry overwrites. */
struct bench_run {
	__u64 head;     /* the frame's first bytes: MAC addresses and type */
	__u64 head_rest;
	__u32 at_ttl;   /* offset of the word with the time to live, */
	__u32 at_saddr; /* low 32 bits of the source, */
	__u32 at_ports; /* ports */
	__u32 mask;     /* flows - 1 */
	__u32 verdicts[8]; /* what the entry returned, by action */
};

struct bench_run bench_case SEC(".data.case");
__u32 bench_next SEC(".data.case");

static __always_inline void bench_write(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 index = bench_next++ & bench_case.mask;
	struct bench_flow *f = bpf_map_lookup_elem(&bench_flows, &index);
	__u32 ttl = bench_case.at_ttl & 0x7f, saddr = bench_case.at_saddr & 0x7f;
	__u32 ports = bench_case.at_ports & 0x7f;

	if (!f || data + 14 > end)
		return;
	*(__u64 *)data = bench_case.head;
	*(__u32 *)(data + 8) = bench_case.head_rest;
	*(__u16 *)(data + 12) = bench_case.head_rest >> 32;
	if (data + ttl + 4 <= end)
		*(__u32 *)(data + ttl) = f->ttl;
	if (data + saddr + 4 <= end)
		*(__u32 *)(data + saddr) = f->saddr;
	if (data + ports + 4 <= end)
		*(__u32 *)(data + ports) = f->ports;
}

struct bench_loop {
	struct xdp_md *ctx;
};

#define BENCH_PROGRAM(name, call)                              \
	static long name##_step(__u64 i, struct bench_loop *l) \
	{                                                      \
		struct xdp_md *ctx = l->ctx;                   \
                                                               \
		bench_write(ctx);                              \
		bench_case.verdicts[(call) & 7]++;             \
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
BENCH_PROGRAM(bench_router, fl_router(ctx))

char _license[] SEC("license") = "Dual BSD/GPL";
