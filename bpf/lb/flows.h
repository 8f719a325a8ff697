/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The flow table: what must be remembered of connections, in sets of one
 * cache line. Go's twin is scheme/jet.
 *
 *   h      = hash of the client's address and ports, keyed by hash_key
 *   x      = h + id of the VIP * golden ratio   (one table for all VIPs)
 *              + a TCP connection's ports * another odd number
 *   set = low 32 bits of x, scaled;  tag = the lowest 7
 *   fingerprint = high 32 bits of x
 *
 * A VIP with affinity by address, or that takes fragments by addresses,
 * leaves the ports out of h, so that whole packets and fragments of a client
 * meet on one server. A TCP connection has an entry of its own even then: the
 * next connection of its client may belong on another server.
 *
 *                 data               FIN, RST
 *   TCP ─▶ NEW ─────▶ CONFIRMED ──────────▶ FADING
 *                         ▲                   │
 *                         └───────────────────┘
 *                  data, behind a SYN or 4 units later
 *                 data
 *   UDP ─▶ NEW ─────▶ DATAGRAM
 *
 * An entry that is idle for longer than its state allows has expired, and is
 * the first to give way. */
#ifndef FAIRLEAD_LB_FLOWS_H
#define FAIRLEAD_LB_FLOWS_H

#include "share.h"
#include "way.h"

/* What a packet means to its flow's entry. */
enum fl_event {
	FL_EVENT_OPEN,  /* opens a connection: SYN alone, QUIC Initial */
	FL_EVENT_DATA,  /* any other */
	FL_EVENT_CLOSE, /* FIN, RST */
	FL_EVENT_PEEK,  /* an ICMP error about it: changes nothing */
};

/* Not slots: the flow has no entry, or one that is not to be followed. */
#define FL_FLOW_MISS (-1)
#define FL_FLOW_STALE (-2)

/* In units of 1.024 s. */
enum fl_flow_times {
	/* How long an entry is worth something after its last packet: TCP's two
	 * hours and four minutes (RFC 5382 §5), even for one packet, as a
	 * connection may speak that rarely; two minutes behind a FIN or RST, and
	 * for UDP (RFC 4787 §4.3). A FIN or RST may be forged, and a closed half
	 * may be silent for long: while nobody needs its place, TCP's FADING entry
	 * is known as long as a live one. */
	FL_FLOW_LONG = 7266,
	FL_FLOW_SHORT = 118,
	/* NEW does not say whose it is: UDP's begins at this age, so that it ends
	 * two minutes after its packet, and gives way before TCP's. So does what a
	 * SYN made that is not where a connection of before is held: a SYN-ACK's
	 * last repetition is over by then (94 s behind the first SYN, as Linux
	 * repeats them). */
	FL_FLOW_AGED = FL_FLOW_LONG - FL_FLOW_SHORT,
	/* The clock may be set back by as many; what was used "later" is not old.
	 * Ages below have it added. */
	FL_FLOW_SLACK = 64,
	/* Data so long after a FIN or RST says that it ended nothing (it was
	 * forged, or of an earlier connection): what was still on its way has
	 * arrived. */
	FL_FLOW_REVIVE = 4,
};
/* By state, 16 bits each. */
#define FL_FLOW_IDLES                                                                 \
	(FL_FLOW_LONG * (1ULL << 16 * FL_FLOW_NEW | 1ULL << 16 * FL_FLOW_CONFIRMED) | \
	 FL_FLOW_SHORT * (1ULL << 16 * FL_FLOW_FADING | 1ULL << 16 * FL_FLOW_DATAGRAM))
/* Renewals within a window of 2^n units are not told again. */
#define FL_FLOW_WINDOW_TCP 10
#define FL_FLOW_WINDOW_UDP 5

#define FL_TAGS_ONES 0x0101010101010101ULL
#define FL_TAGS_LOW 0x7f7f7f7f7f7f7f7fULL  /* all bits of each byte but the highest */
#define FL_TAGS_USED 0x0080808080808080ULL /* highest bits of the seven tags */

static __always_inline __u64 fl_flow_hash(const struct fl_vip *v, const struct fl_lb_packet *p)
{
	bool ports = likely(!(v->flags & (FL_VIP_AFFINITY | FL_VIP_FRAG_ADDRESSES))) &&
		     p->kind != FL_KIND_FRAGMENT;

	return fl_hash_key(v->hash_key, p, ports ? p->sport : 0, ports ? p->dport : 0);
}

static __always_inline __u64 fl_flow_key(const struct fl_vip *v, const struct fl_lb_packet *p,
					 __u64 hash)
{
	__u64 x = hash + v->id * 0x9e3779b97f4a7c15ULL;

	if (p->proto == IPPROTO_TCP && p->kind != FL_KIND_FRAGMENT)
		x += ((__u64)p->sport << 16 | p->dport) * 0xd6e8feb86659fd93ULL;
	return x;
}

static __always_inline struct fl_flow_set *fl_flow_set_of(__u64 x)
{
	__u32 index = fl_scale((__u32)x, flow_sets);

	return bpf_map_lookup_elem(&flows, &index);
}

static __always_inline __u64 fl_flow_tag(__u64 x)
{
	return 0x80 | (x & 0x7f);
}

static __always_inline __u64 fl_flow_tags(struct fl_flow_set *b)
{
	return *(volatile __u64 *)b->tag;
}

/* The highest bit of each byte of tags that is x's tag. */
static __always_inline __u64 fl_flow_match(__u64 tags, __u64 x)
{
	__u64 other = tags ^ fl_flow_tag(x) * FL_TAGS_ONES;

	return ~(((other & FL_TAGS_LOW) + FL_TAGS_LOW) | other | FL_TAGS_LOW);
}

/* Number of the byte whose highest bit is the lowest bit of m. There is no
 * instruction that counts zeros: the product moves the number to the top. */
static __always_inline __u32 fl_flow_at(__u64 m)
{
	return ((m & -m) >> 7) * 0x0001020304050607ULL >> 56;
}

/* Entry at of a set, which is behind its tags. The mask is for the
 * verifier; an at of 7, which there is not, would be the tags. */
static __always_inline __u64 *fl_flow_entry(struct fl_flow_set *b, __u32 at)
{
	return (__u64 *)b + ((at + 1) & 7);
}

static __always_inline __u16 fl_flow_age(__u64 entry, __u16 unit)
{
	return unit - FL_FLOW_TIME(entry) + FL_FLOW_SLACK;
}

/* Worth nothing any more: not counted as live. */
static __always_inline bool fl_flow_expired(__u64 entry, __u16 unit)
{
	return fl_flow_age(entry, unit) >
	       (__u16)(FL_FLOW_IDLES >> 16 * FL_FLOW_STATE(entry)) + FL_FLOW_SLACK;
}

/* Not known to its flow's packets any more. An entry does not say whether it
 * is TCP's: who looks at one without a packet takes it for that. */
static __always_inline bool fl_flow_gone(__u64 entry, __u16 unit, bool tcp)
{
	return fl_flow_expired(entry, unit) &&
	       !(tcp && FL_FLOW_STATE(entry) == FL_FLOW_FADING &&
		 fl_flow_age(entry, unit) <= FL_FLOW_LONG + FL_FLOW_SLACK);
}

/* The flow's own entry in a set with these tags, or a negative number. */
static __always_inline int fl_flow_own(struct fl_flow_set *b, __u64 tags, __u64 x)
{
	__u64 m = fl_flow_match(tags, x);

	for (int i = 0; i < FL_FLOW_WAYS && m; i++, m &= m - 1) {
		__u32 at = fl_flow_at(m);

		if (*(volatile __u64 *)fl_flow_entry(b, at) >> 32 == x >> 32)
			return at;
	}
	return -1;
}

/* Flags of the line that a slot of a VIP names, or -1: no server. */
static __always_inline int fl_flow_line(const struct fl_vip *v, __u32 slot)
{
	struct fl_line *line;
	__u64 word;

	if (slot >= v->slots)
		return -1;
	line = fl_line_at(v->first_line + slot);
	if (!line)
		return -1;
	word = *(volatile __u64 *)&line->mac_dst;
	return FL_WORD_FORWARDING(word) == FL_FWD_NONE ? -1 : FL_WORD_FLAGS(word);
}

/* The state in which a flow enters the table. In full tracking, where nothing
 * gives way by its state, a datagram's is FADING, and not aged. */
static __always_inline __u32 fl_flow_first(bool tcp, bool full)
{
	return tcp || !full ? FL_FLOW_NEW : FL_FLOW_FADING;
}

static __always_inline bool fl_flow_confirmed(__u32 state)
{
	return state == FL_FLOW_CONFIRMED || state == FL_FLOW_DATAGRAM;
}

/* Whether an entry's flow may be alive, whatever opens it anew: it was
 * confirmed, and if a FIN or RST followed, which may be forged, that was not
 * long ago. A datagram's FADING is of one packet (fl_flow_first). */
static __always_inline bool fl_flow_alive(__u64 entry, __u16 unit, bool tcp)
{
	__u32 state = FL_FLOW_STATE(entry);

	return fl_flow_confirmed(state) ||
	       (tcp && state == FL_FLOW_FADING && !fl_flow_expired(entry, unit));
}

/* State of an entry after a packet's event, which changes it. */
static __always_inline __u32 fl_flow_next(__u32 state, __u32 event, __u32 tcp)
{
	if (event == FL_EVENT_CLOSE)
		return FL_FLOW_FADING;
	if (event == FL_EVENT_OPEN || fl_flow_confirmed(state))
		return state;
	return tcp ? FL_FLOW_CONFIRMED : FL_FLOW_DATAGRAM;
}

/* The flow's slot, or FL_FLOW_MISS or _STALE; the entry's state and time go
 * on by what the packet means. unit is the time now. Of those that race for
 * an entry one wins, and the others' packets meant nearly the same. */
__noinline int fl_flow_follow(const struct fl_vip *v, __u64 x, __u32 unit, __u32 event, __u32 tcp)
{
	struct fl_flow_set *b = fl_flow_set_of(x);
	struct fl_vip_cpu *cpu;
	__u32 state, next, window, id, used = unit;
	__u64 e, now, *entry;
	int at, flags;

	if (!v || !b)
		return FL_FLOW_MISS;
	at = fl_flow_own(b, fl_flow_tags(b), x);
	if (at < 0)
		return FL_FLOW_MISS;
	entry = fl_flow_entry(b, at);
	e = *(volatile __u64 *)entry;
	if (e >> 32 != x >> 32 || fl_flow_gone(e, unit, tcp))
		return FL_FLOW_MISS;
	flags = fl_flow_line(v, FL_FLOW_SLOT(e));
	if (flags < 0 || (!tcp && flags & FL_LINE_DOWN))
		return FL_FLOW_STALE;
	state = FL_FLOW_STATE(e);
	/* A used port opens anew: not on a server that takes no new connections.
	 * But what opens may be forged, and takes no flow that may be alive from a
	 * server that is up. */
	if (event == FL_EVENT_OPEN &&
	    flags & (fl_flow_alive(e, unit, tcp) ? FL_LINE_DOWN : FL_LINE_DOWN | FL_LINE_CLOSED))
		return FL_FLOW_STALE;
	/* What nothing has confirmed changes by data alone: it is never FADING,
	 * which gives way behind it, nor younger than its first packet. */
	if (event == FL_EVENT_PEEK || (event != FL_EVENT_DATA && state == FL_FLOW_NEW))
		goto hit;
	/* The age of one that closes counts from the FIN: no renewal. */
	if (tcp && event == FL_EVENT_DATA && state == FL_FLOW_FADING &&
	    fl_flow_age(e, unit) < FL_FLOW_REVIVE + FL_FLOW_SLACK)
		goto hit;
	next = fl_flow_next(state, event, tcp);
	/* Data behind a SYN is none that was still on its way at the FIN. */
	if (tcp && event == FL_EVENT_OPEN && next == FL_FLOW_FADING)
		used -= FL_FLOW_REVIVE;
	now = (e & 0xffffffff00003fffULL) | (__u64)(__u16)used << 16 | next << 14;
	if (now == e || __sync_val_compare_and_swap(entry, e, now) != e)
		goto hit;
	if (!(v->flags & FL_VIP_SHARE))
		goto hit;
	window = next == FL_FLOW_DATAGRAM ? FL_FLOW_WINDOW_UDP : FL_FLOW_WINDOW_TCP;
	/* NEW, which one packet made, is never told, and nothing becomes it. */
	if (next != state || (fl_flow_confirmed(next) && (__u16)(FL_FLOW_TIME(e) ^ unit) >> window))
		fl_share(x, v->id, FL_FLOW_SLOT(e), next, tcp);
hit:
	id = v->id;
	cpu = bpf_map_lookup_elem(&vip_cpu, &id);
	if (cpu)
		cpu->flow_hits++;
	return FL_FLOW_SLOT(e);
}

/* fl_flow_follow where the flow may have an entry. Most have none, which one
 * load of the tags tells; the rest is a function, which the verifier walks
 * once. */
static __always_inline int fl_flow_touch(const struct fl_vip *v, __u64 x, __u32 unit, __u32 event,
					 __u32 tcp)
{
	struct fl_flow_set *b = fl_flow_set_of(x);

	if (unlikely(!b) || likely(!fl_flow_match(fl_flow_tags(b), x)))
		return FL_FLOW_MISS;
	return fl_flow_follow(v, x, unit, event, tcp);
}

/* How to insert, any of these. */
#define FL_INSERT_LRU 1  /* the one used longest ago gives way */
#define FL_INSERT_AGED 2 /* it begins at age FL_FLOW_AGED */

/* What an entry has to go for, the higher the sooner; 0: it stays. What one
 * packet made goes before what was once confirmed: a flood of such, after
 * forged RSTs that made living connections fade, takes places from itself. But
 * where one alone is NEW it stays before what fades: it may be a connection
 * whose next packet is on its way, and what fades is most often over. */
#define FL_RANK_LONE 0x10000
#define FL_RANK_FADING 0x20000
#define FL_RANK_NEW 0x30000
#define FL_RANK_EXPIRED 0x40000

/* A function for the verifier's sake: it would try all ranks of all entries
 * in all orders. fresh: how many of its set are NEW. */
__noinline __u32 fl_flow_rank(__u64 entry, __u32 unit, __u32 how, __u32 fresh)
{
	__u32 age = fl_flow_age(entry, unit), state = FL_FLOW_STATE(entry);

	if (how & FL_INSERT_LRU)
		return age + 1;
	if (fl_flow_expired(entry, unit))
		return FL_RANK_EXPIRED | age;
	if (state == FL_FLOW_FADING)
		return FL_RANK_FADING | age;
	if (state != FL_FLOW_NEW)
		return 0;
	return (guards && fresh > 1 ? FL_RANK_NEW : FL_RANK_LONE) | age;
}

/* What became of one attempt to remember a flow. */
#define FL_INSERT_MADE 0
#define FL_INSERT_REPLACED 1 /* in place of a live one of another flow */
#define FL_INSERT_FULL 2
#define FL_INSERT_LOST 3 /* another CPU changed the set's tags meanwhile */
/* Attempts: what other CPUs change in a set, they change in nanoseconds. */
#define FL_INSERT_TRIES 3

/* Gives entry at of the set this tag, if it has none. */
static __always_inline void fl_flow_retag(struct fl_flow_set *b, __u32 at, __u64 tag)
{
	for (int i = 0; i < FL_INSERT_TRIES; i++) {
		__u64 tags = fl_flow_tags(b);

		if (tags >> 8 * at & 0xff ||
		    __sync_val_compare_and_swap((__u64 *)b->tag, tags, tags | tag << 8 * at) ==
			    tags)
			return;
	}
}

/* One attempt of fl_flow_insert. The tag is claimed first, by a
 * compare-and-swap of all tags: of two that race for one place one loses. The
 * sweep may take the tag away while the expired entry still stands: once the
 * new one is there, the tag is looked at again. Of two CPUs that enter one
 * flow at the same moment both may get a place: the first of these is the
 * flow's, the other is found by nobody and expires. */
__noinline __u32 fl_flow_try(__u64 x, __u32 low, __u32 how)
{
	struct fl_flow_set *b = fl_flow_set_of(x);
	__u32 outcome = FL_INSERT_MADE;
	__u16 unit = low >> 16;
	__u64 tags, claimed;
	int at;

	if (!b)
		return FL_INSERT_FULL;
	tags = fl_flow_tags(b);
	at = fl_flow_own(b, tags, x);
	if (at < 0 && (~tags & FL_TAGS_USED))
		at = fl_flow_at(~tags & FL_TAGS_USED);
	if (at < 0) {
		__u32 best = 0, fresh = 0;

		for (int i = 0; i < FL_FLOW_WAYS; i++)
			fresh += FL_FLOW_STATE(*(volatile __u64 *)&b->entry[i]) == FL_FLOW_NEW;
		for (int i = 0; i < FL_FLOW_WAYS; i++) {
			__u32 rank =
				fl_flow_rank(*(volatile __u64 *)&b->entry[i], unit, how, fresh);

			if (rank > best) {
				best = rank;
				at = i;
			}
		}
		if (at < 0)
			return FL_INSERT_FULL;
		if (!fl_flow_expired(*(volatile __u64 *)fl_flow_entry(b, at), unit))
			outcome = FL_INSERT_REPLACED;
	}
	at &= 7;
	claimed = (tags & ~(0xffULL << 8 * at)) | fl_flow_tag(x) << 8 * at;
	if (claimed != tags && __sync_val_compare_and_swap((__u64 *)b->tag, tags, claimed) != tags)
		return FL_INSERT_LOST;
	if (how & FL_INSERT_AGED)
		low -= FL_FLOW_AGED << 16;
	__sync_lock_test_and_set(fl_flow_entry(b, at), x >> 32 << 32 | low);
	if (unlikely(!(fl_flow_tags(b) >> 8 * at & 0xff)))
		fl_flow_retag(b, at, fl_flow_tag(x));
	return outcome;
}

/* Remembers a flow. low is the low half of its entry: time, state, slot. It
 * takes its own entry; else an empty one; else the oldest that has expired;
 * else the oldest that nothing has confirmed, if there are several; else the
 * oldest that fades; else the one that nothing has confirmed: what somebody
 * makes up cannot push out what is real. With FL_INSERT_LRU, which is how others
 * track connections, the one used longest ago gives way. Counts for the VIP of
 * this id, if not 0. Returns 0, or 1 where the flow is not remembered. */
__noinline int fl_flow_insert(__u64 x, __u32 low, __u32 vip_id, __u32 how)
{
	__u32 outcome = FL_INSERT_LOST;
	struct fl_vip_cpu *cpu;

	for (int i = 0; i < FL_INSERT_TRIES && outcome == FL_INSERT_LOST; i++)
		outcome = fl_flow_try(x, low, how);
	cpu = vip_id ? bpf_map_lookup_elem(&vip_cpu, &vip_id) : NULL;
	if (outcome >= FL_INSERT_FULL) {
		if (cpu)
			cpu->flow_full++;
		return 1;
	}
	if (cpu) {
		cpu->tracked++;
		cpu->flow_replaced += outcome == FL_INSERT_REPLACED;
	}
	return 0;
}

/* Remembers a flow that another balancer told. A live entry that is confirmed
 * for another server stays: it may be newer than what was on its way, and
 * packets here go by it. */
__noinline int fl_flow_told(__u64 x, __u32 low)
{
	struct fl_flow_set *b = fl_flow_set_of(x);
	int at;

	if (!b)
		return 1;
	at = fl_flow_own(b, fl_flow_tags(b), x);
	if (at >= 0) {
		__u64 e = *(volatile __u64 *)fl_flow_entry(b, at);
		__u32 state = FL_FLOW_STATE(e);

		if (FL_FLOW_SLOT(e) != FL_FLOW_SLOT(low) && !fl_flow_expired(e, low >> 16) &&
		    fl_flow_confirmed(state))
			return 1;
	}
	return fl_flow_insert(x, low, 0, 0);
}

#endif
