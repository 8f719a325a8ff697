// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* What holds pathsel.h to package fabric/pathsel: reads test packets (struct
 * test_packet, as XDP data) and answers in their place. */
#include <linux/bpf.h>
#include "pathsel.h"

struct test_packet {
	struct fl_flow flow;
	__u32 ttl;
	__u32 six;
	/* The answer. */
	__u32 selector; /* of the ports, by the permutation */
	__u32 digit;
	__u32 read;     /* enum fl_how, before the group is known */
	__u32 hop;
	__u32 how;
};

/* For bpf2go, which knows types of symbols only. */
const struct test_packet *test_packet_type __attribute__((unused));

const volatile struct fl_pathsel pathsel = {};
const volatile __u64 seed[2] = {};

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
	struct fl_choice c;
	enum fl_how how;

	if (!g)
		return XDP_ABORTED;
	fl_pathsel_read(&pathsel, seed, &p->flow, six, p->ttl, &c);
	p->selector = fl_pathsel_back(&pathsel, six, p->flow.ports);
	p->digit = c.digit;
	p->read = c.how;
	p->hop = fl_pathsel_choose(&pathsel, g, &c, &how);
	p->how = how;
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
