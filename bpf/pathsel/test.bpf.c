// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* What holds pathsel.h to package fabric/pathsel: reads test packets (struct
 * test_packet, as XDP data) and answers in their place. */
#include <linux/bpf.h>
#include "pathsel.h"

struct test_packet {
	__u32 src[4];
	__u32 dst[4];
	__u32 ports;
	__u32 label;
	__u8 proto;
	__u8 ttl;
	__u8 six;
	__u8 pad;
	/* The answer. */
	__u32 digit;
	__u64 own;
	__u32 selector;
	__u32 drawn;
	__u32 hop;
	__u32 how;
};

/* For bpf2go, which knows types of symbols only. */
const struct test_packet *test_packet_type __attribute__((unused));

const volatile struct fl_pathsel pathsel = {};
const volatile struct fl_pathsel_seed seed = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fl_pathsel_group);
} groups SEC(".maps");

static __always_inline int test(struct test_packet *p, bool six)
{
	__u32 zero = 0;
	struct fl_pathsel_group *g = bpf_map_lookup_elem(&groups, &zero);
	struct fl_pathsel_choice c;

	if (!g)
		return XDP_ABORTED;
	c = fl_pathsel_read(&pathsel, &seed, six, p->src, p->dst, p->proto, p->ports, p->label,
			    p->ttl);
	p->selector = fl_pathsel_back(&pathsel, six, p->ports);
	p->digit = c.digit;
	p->own = c.own;
	p->drawn = c.how;
	p->hop = fl_pathsel_take(g, &c, &p->how);
	return XDP_PASS;
}

SEC("xdp")
int pathsel_test(struct xdp_md *ctx)
{
	struct test_packet *p = (void *)(long)ctx->data;

	if ((void *)(p + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	return p->six ? test(p, true) : test(p, false);
}

char _license[] SEC("license") = "Dual BSD/GPL";
