/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The floor, remembering every connection: in a cuckoo table of each core, in BPF's hash
 * map, in its LRU hash map.
 *
 *   has an entry? ─yes─▶ its server; FIN: the entry goes (not of the LRU, which is there
 *        │no             to spare that)
 *        └─▶ the hash's; an entry is made
 *
 * Entries have the whole key, so that none is taken for another's. */
#ifndef FAIRLEAD_BENCH_TRACKED_H
#define FAIRLEAD_BENCH_TRACKED_H

#include "cuckoo.h"

struct tracked_key {
	__u32 saddr;
	__u32 daddr;
	__u32 ports;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct tracked_key);
	__type(value, __u32);
} tracked_hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct tracked_key);
	__type(value, __u32);
} tracked_lru SEC(".maps");

/* What became of packets that found no entry, and of entries. */
struct tracked_counts {
	__u64 missed; /* of connections that were open */
	__u64 made;
	__u64 full;   /* no entry could be made, or another connection lost its */
	__u64 moved;  /* entries, to make room (cuckoo) */
};

struct tracked_counts tracked_count SEC(".data.tracked");

#define TRACKED_FIN 0x01
#define TRACKED_SYN 0x02

static __always_inline void tracked_made(const struct floor_packet *p, bool failed)
{
	tracked_count.made++;
	tracked_count.missed += !(p->flags & TRACKED_SYN);
	tracked_count.full += failed;
}

#define TRACKED_BY_MAP(name, map, closes)                                                    \
	static __always_inline int name(struct xdp_md *ctx)                                  \
	{                                                                                    \
		struct floor_packet p;                                                       \
		struct tracked_key key;                                                      \
		__u32 *found, server;                                                        \
                                                                                             \
		if (!floor_parse(ctx, &p))                                                   \
			return XDP_PASS;                                                     \
		key.saddr = p.saddr;                                                         \
		key.daddr = p.daddr;                                                         \
		key.ports = p.sport | (__u32)p.dport << 16;                                  \
		found = bpf_map_lookup_elem(&map, &key);                                     \
		if (found) {                                                                 \
			server = *found;                                                     \
			if (closes && p.flags & TRACKED_FIN)                                 \
				bpf_map_delete_elem(&map, &key);                             \
			return floor_forward(ctx, &p, server);                               \
		}                                                                            \
		if (!floor_place(floor_hash(&p), &server))                                   \
			return XDP_DROP;                                                     \
		if (!(p.flags & TRACKED_FIN))                                                \
			tracked_made(&p, bpf_map_update_elem(&map, &key, &server, BPF_ANY)); \
		return floor_forward(ctx, &p, server);                                       \
	}

TRACKED_BY_MAP(tracked_by_hash, tracked_hash, true)
TRACKED_BY_MAP(tracked_by_lru, tracked_lru, false)

static __always_inline int tracked_by_cuckoo(struct xdp_md *ctx)
{
	struct cuckoo_entry *found, e = {};
	struct cuckoo_places at;
	struct floor_packet p;
	__u32 server, moved;

	if (!floor_parse(ctx, &p))
		return XDP_PASS;
	e.saddr = p.saddr;
	e.daddr = p.daddr;
	e.ports = p.sport | (__u32)p.dport << 16;
	at = cuckoo_places_of(&e);
	found = cuckoo_find(&e, &at);
	if (found) {
		server = found->server - 1;
		if (p.flags & TRACKED_FIN)
			found->server = 0;
		return floor_forward(ctx, &p, server);
	}
	if (!floor_place(floor_hash(&p), &server))
		return XDP_DROP;
	if (!(p.flags & TRACKED_FIN)) {
		e.server = server + 1;
		moved = cuckoo_make(&e);
		tracked_count.moved += moved;
		tracked_made(&p, moved == CUCKOO_MOVES);
	}
	return floor_forward(ctx, &p, server);
}

#endif
