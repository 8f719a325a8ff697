/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Connections that were opened by a SYN cookie of ours, for as long as that is good.
 * A duplicate of the segment that opened one would open it again once it is over,
 * and have its request done twice. Only what an established connection was seen to
 * begin with is noted: no flood fills it. Of the four marks of a bucket the oldest
 * gives way, so where more connections are opened than there is room for, some are
 * forgotten sooner. */
#ifndef FAIRLEAD_HOST_OPENED_H
#define FAIRLEAD_HOST_OPENED_H

#include "maps.h"
#include "siphash.h"

/* Names a connection by our first number, which no other of its ports will have. */
static __always_inline __u64 fl_opened_mark(const __u64 *key, const __u64 *client, __u16 sport,
					    __u16 dport, __u32 isn)
{
	struct fl_sip s;

	fl_sip_init(&s, key);
	fl_sip_word(&s, client[0]);
	fl_sip_word(&s, client[1]);
	fl_sip_word(&s, (__u64)sport | (__u64)dport << 16 | (__u64)isn << 32);
	return fl_sip_end(&s);
}

static __always_inline struct fl_opened *fl_opened_bucket(__u64 mark)
{
	__u32 index = mark & (FL_OPENED_BUCKETS - 1);

	return bpf_map_lookup_elem(&host_opened, &index);
}

/* Two CPUs may write one place: one of two marks is lost then. */
static __always_inline void fl_opened_note(__u64 mark, __u32 now)
{
	struct fl_opened *o = fl_opened_bucket(mark);
	__u32 oldest = 0, place = 0;

	if (!o)
		return;
	for (int i = 0; i < 4; i++) {
		__u32 age = now - (__u32)o->marks[i];

		if (!o->marks[i])
			age = 1u << 31;
		if (age >= oldest) {
			oldest = age;
			place = i;
		}
	}
	o->marks[place & 3] = mark >> 32 << 32 | now;
}

static __always_inline _Bool fl_opened_before(__u64 mark, __u32 now)
{
	struct fl_opened *o = fl_opened_bucket(mark);

	if (!o)
		return 0;
	for (int i = 0; i < 4; i++) {
		__u64 is = *(volatile __u64 *)&o->marks[i];

		if (is && is >> 32 == mark >> 32 &&
		    now - (__u32)is <= FL_OFFLOAD_MS + FL_OFFLOAD_MS / 8)
			return 1;
	}
	return 0;
}

#endif
