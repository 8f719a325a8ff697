// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* What `fairlead bench fig5` runs: the balancer's own inlined entry, the floor, and what
 * stands for the other ways that Cheetah's figure 5 compares, each in the same loop over
 * the same packets of connections that open, go on and close. One run of a program is
 * BENCH_PACKETS packets, as in bench.bpf.c:
 *
 *   write the script's next packet ─▶ entry ─▶ undo what it did to the length
 *
 * bench_none does all of it but the entry: what it costs is subtracted. */
#include "verdict.h"
#include "linear.h"
#include "tracked.h"

#define BENCH_PACKETS 16

/* A packet to come. Its IPv4 and TCP headers are 60 octets, whatever it is. */
struct script_packet {
	__u32 saddr;
	__u32 ports;  /* BE */
	__u32 ecr[2]; /* TSecr, BE, for schemes cheetah and cheetah-stateful */
	__u32 rss;    /* what a NIC's descriptor says */
	__u32 kind;   /* 0 SYN, 1 segment, 2 FIN */
	__u32 server; /* where it went (fig5_case.note) */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct script_packet);
} fig5_script SEC(".maps");

struct script_run {
	__u64 tcp[4][4];   /* by kind: from TCP's acknowledgement on, 32 octets */
	__u32 at_ecr[4];   /* by kind: TSecr's offset in the frame */
	__u32 daddr;       /* the VIP's, BE */
	__u32 saddr;       /* of the header whose checksum is */
	__u32 check;
	__u32 cookie;      /* which of a packet's two TSecr */
	__u32 note;        /* notes where packets go */
	__u32 length;      /* of the frame */
	__u32 verdicts[8]; /* what the entry returned, by action */
};

struct script_run fig5_case SEC(".data.case");
__u32 fig5_next SEC(".data.case");
__u32 fig5_rss SEC(".data.case"); /* of the packet that is written */

#define FIG5_L4 34
#define FIG5_END 74

static __always_inline struct script_packet *fig5_write(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 index = fig5_next++, kind, ecr;
	struct script_packet *f = bpf_map_lookup_elem(&fig5_script, &index);

	if (!f || data + FIG5_END > end)
		return NULL;
	kind = f->kind & 3;
	/* The outer header overwrote the MAC addresses and the type. */
	*(__u64 *)data = 0x0201000000000002;
	*(__u32 *)(data + 8) = 0x01000000;
	*(__u16 *)(data + 12) = bpf_htons(ETH_P_IP);
	*(__u16 *)(data + 24) = fl_csum_replace32(fig5_case.check, fig5_case.saddr, f->saddr);
	*(__u32 *)(data + 26) = f->saddr;
	*(__u32 *)(data + 30) = fig5_case.daddr;
	*(__u32 *)(data + FIG5_L4) = f->ports;
	__builtin_memcpy(data + FIG5_L4 + 8, fig5_case.tcp[kind], 32);
	ecr = fig5_case.at_ecr[kind] & 0x7f;
	if (data + ecr + 4 <= end)
		*(__u32 *)(data + ecr) = f->ecr[fig5_case.cookie & 1];
	fig5_rss = f->rss;
	return f;
}

static __always_inline void fig5_undo(struct xdp_md *ctx, struct script_packet *f)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	long length;

	if (fig5_case.note && f && data + FIG5_L4 <= end)
		f->server = *(__u32 *)(data + 30);
	length = (long)ctx->data_end - (long)ctx->data;
	/* The compiler would otherwise subtract from data_end first, which the
	 * verifier does not allow. */
	asm volatile("" : "+r"(length));
	bpf_xdp_adjust_head(ctx, (int)(length - fig5_case.length));
}

static __always_inline int fig5_by(struct xdp_md *ctx, const struct linear_hash *h)
{
	struct floor_packet p;
	__u32 index;

	if (!floor_parse(ctx, &p))
		return XDP_PASS;
	if (!floor_place(h ? linear_of(h, &p) : fig5_rss, &index))
		return XDP_DROP;
	return floor_forward(ctx, &p, index);
}

struct fig5_loop {
	struct xdp_md *ctx;
};

#define FIG5_PROGRAM(name, call)                              \
	static long name##_step(__u64 i, struct fig5_loop *l) \
	{                                                     \
		struct xdp_md *ctx = l->ctx;                  \
		struct script_packet *f = fig5_write(ctx);    \
		int action = call;                            \
                                                              \
		fig5_case.verdicts[action & 7]++;             \
		fig5_undo(ctx, f);                            \
		return 0;                                     \
	}                                                     \
	SEC("xdp") int name(struct xdp_md *ctx)               \
	{                                                     \
		struct fig5_loop l = { .ctx = ctx };          \
                                                              \
		bpf_loop(BENCH_PACKETS, name##_step, &l, 0);  \
		return XDP_PASS;                              \
	}

FIG5_PROGRAM(bench_none, XDP_PASS)
FIG5_PROGRAM(bench_lb, fl_balance(ctx))
FIG5_PROGRAM(bench_floor, floor_balance(ctx))
FIG5_PROGRAM(fig5_by_rss, fig5_by(ctx, NULL))
FIG5_PROGRAM(fig5_by_toeplitz, fig5_by(ctx, &linear_toeplitz))
FIG5_PROGRAM(fig5_by_crc, fig5_by(ctx, &linear_crc))
FIG5_PROGRAM(fig5_cuckoo, tracked_by_cuckoo(ctx))
FIG5_PROGRAM(fig5_hash, tracked_by_hash(ctx))
FIG5_PROGRAM(fig5_lru, tracked_by_lru(ctx))

#include "syscalls.h"

char _license[] SEC("license") = "Dual BSD/GPL";
