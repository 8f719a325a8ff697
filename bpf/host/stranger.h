/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Connections that are not this server's, as it found a moment ago. Looking for
 * a socket that is not there costs the most of all (the kernel looks for a
 * listener, too), and most of what is passed on is of connections that send
 * many packets. So the answer "not mine" is kept for a second:
 *
 *   fingerprint (32) | acknowledged, upper half (16) | time in 64 ms (16)
 *
 * It never says no to a connection that has come since: a SYN clears the entry,
 * and a connection of the same client's port acknowledges other numbers. Nor is
 * it kept where there is a socket, but of another connection (a request, or
 * TIME_WAIT). An entry that is overwritten is asked for again. */
#ifndef FAIRLEAD_HOST_STRANGER_H
#define FAIRLEAD_HOST_STRANGER_H

#include "question.h"

#define FL_STRANGERS 65536
#define FL_STRANGER_TIME(ms) ((__u16)((ms) >> 6))
#define FL_STRANGER_UNITS 16

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FL_STRANGERS);
	__type(key, __u32);
	__type(value, __u64);
} host_strangers SEC(".maps");

/* Nobody can choose connections whose entries are the same. */
static __u64 stranger_key[2];

struct fl_stranger {
	volatile __u64 *entry;
	__u64 is; /* what it is where the connection is one, without the time */
};

static __always_inline void fl_stranger_find(const struct fl_question *q, struct fl_stranger *s)
{
	__u64 multiplier = stranger_key[1], hash;
	__u32 index;

	if (!multiplier) {
		stranger_key[0] = (__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();
		multiplier = (__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32() | 1;
		stranger_key[1] = multiplier;
	}
	hash = (q->client[1] ^ stranger_key[0]) * multiplier;
	hash = (hash ^ hash >> 32 ^ q->client[0]) * multiplier;
	hash = (hash ^ hash >> 32 ^ ((__u64)q->vip_id << 32 | (__u32)q->sport << 16 | q->dport)) *
	       multiplier;
	hash ^= hash >> 29;
	index = hash & (FL_STRANGERS - 1);
	s->entry = bpf_map_lookup_elem(&host_strangers, &index);
	s->is = hash >> 32 << 32 | q->ack >> 16 << 16;
}

/* Whether it was found not to be this server's. */
static __always_inline _Bool fl_stranger_known(const struct fl_stranger *s, __u32 now)
{
	__u64 entry;

	if (!s->entry)
		return 0;
	entry = *s->entry;
	return (entry ^ s->is) >> 16 == 0 &&
	       (__u16)(FL_STRANGER_TIME(now) - (__u16)entry) < FL_STRANGER_UNITS;
}

#endif
