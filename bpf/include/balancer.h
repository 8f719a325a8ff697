/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What crosses between the balancer's programs and Go: the VIP, what its hash is
 * made of, server lines, flows, and why a packet went where it did. */
#ifndef FAIRLEAD_BALANCER_H
#define FAIRLEAD_BALANCER_H

#include "fairlead.h"

/* ---- numbers ------------------------------------------------------------ */

enum fl_lb_constants {
	FL_ROW_NONE = 0x7fff,     /* FL_ROW_SLOT, FL_ROW_HELD: no server */
	FL_BUCKET_MOVED = 0xfffe, /* a row of a bucket table, see there */
	FL_INPUT_BITS = 10,       /* of a line of `input_cache` */
	FL_FLOW_WAYS = 7,         /* entries of a set of the flow table */
	FL_FLOW_WRITES = 64,      /* records of one flow_write, at most */
	FL_STEER_ENTRIES = 64,    /* of a row of `steers` */
	FL_JOIN_TRIES = 16,       /* slots that are looked at for the first server */
	FL_OUTER_TTL = 64,
	FL_TIER_ONE = 0xff,       /* fl_vip.tier of a balancer of tier one */
	FL_TIER_SOURCES = 64,     /* entries of `tier_sources` */
	/* fl_vip.scheme of one with cookies that migrates: so others need not look at a
	 * flag. With FL_VIP_MIGRATES entries count more than cookies; without, what the
	 * hash opens gets one. */
	FL_MIGRATES = 0x80,
	FL_SEAT_ANY = 0xfff,      /* a seat's slot while its connection has shown none */
	/* The first of the 2^14 source ports, the ephemeral ones, that the hash
	 * chooses among. */
	FL_TUNNEL_PORTS = 49152,
};

/* ---- the VIP ------------------------------------------------------------ */

struct fl_vip {
	__u64 addr[2];      /* BE bytes as loaded; IPv4 as ::ffff:a.b.c.d */
	__u16 port;         /* BE; 0: all ports */
	__u8 proto;         /* IPPROTO_*, or with FL_PROTO_FRAG */
	__u8 used;          /* 0: this line is empty */
	__u32 id;           /* 1..: index into vip_cpu, stable for the VIP's life */
	__u32 first_line;   /* its slot s is server line first_line + s */
	__u32 slots;        /* slots 0..slots-1 exist (<= 2^(cookie bits - 1)) */
	__u64 key[2][2];    /* SipHash keys of the even and the odd epoch */

	__u64 hash_key[2];  /* key of everything that is not a cookie; the same in
	                     * every VIP, never rotates */
	__u32 new_table;    /* first entry of the policy's table in `tables` */
	__u32 new_size;     /* its entries; 0: no server takes new connections,
	                     * whatever the scheme */
	__u32 hash_table;   /* first entry of the consistent hash */
	__u32 hash_size;    /* its rows, anchor's capacity or buckets; 0: no server */
	__u8 scheme;        /* enum fl_scheme, or FL_MIGRATES */
	__u8 policy;        /* enum fl_policy */
	__u8 flags;         /* enum fl_vip_flags */
	__u8 epochs;        /* bit e&1: cookies of that epoch are decoded */
	__u8 shift;         /* s = 32 - cookie bits: 17..22 */
	__u8 hash_form;     /* enum fl_hash_form */
	__u8 carrier;       /* enum fl_carrier */
	__u8 seat_bits;     /* of a cookie's value: its seat; 0: it has none; and << 4
	                     * of its tier (FL_VIP_SEAT_BITS, FL_VIP_TIER_BITS) */
	__u32 anchor_held;  /* a bucket whose A is in 1..anchor_held-1 drains, */
	__u32 anchor_track; /* in 1..anchor_track-1: drains or is in the horizon */
	__u32 generation;   /* scheme beamer: of the bucket table, a serial number */
	__u8 open_epoch;    /* parity under which a new connection's entry is found */
	__u8 rates;         /* enum fl_vip_rates */
	__u8 pad;
	__u8 tier;          /* this balancer's number in tier two, or FL_TIER_ONE */
	__u64 join_hash;    /* FL_VIP_JOIN: fl_hash6 under hash_key of the VIP's address
	                     * words and its port (sport 0, dport BE) */
};
_Static_assert(sizeof(struct fl_vip) == 128, "a VIP is two cache lines");
#define FL_VIP_SEAT_BITS(v) ((v)->seat_bits & 15)
/* In tier two. In tier one there are none: what a cookie's value has below its tier
 * is a seat to it, and balancers of tier two are its servers. */
#define FL_VIP_TIER_BITS(v) ((v)->seat_bits >> 4)

/* ---- limits of rates ---------------------------------------------------- */

/* Which a VIP has. */
enum fl_vip_rates {
	FL_RATE_CONNECTION = 1, /* packets of a connection (scheme cheetah-stateful) */
	FL_RATE_PACKETS = 2,    /* packets of a source prefix */
	FL_RATE_OPENS = 4,      /* new connections of a source prefix */
};

/* Of a VIP. Steps are (1000 << 32) / limit: ms with 32 bits behind the point. */
struct fl_rates {
	__u64 connection;   /* step of a packet of a connection, */
	__u64 packets;      /* of a packet of a source, */
	__u64 opens;        /* and of a new connection */
	__u64 mask4;        /* of the second word of an IPv4 source as in fl_vip.addr */
	__u64 mask6[2];     /* of an IPv6 source */
	__u64 pad[2];
};

/* A bucket of a source: which, 0: none, and when it is full, shared ms << 32. */
struct fl_rate_entry {
	__u64 key;
	__u64 due;
};
#define FL_RATE_WAYS 4
struct fl_rate_set {
	struct fl_rate_entry entry[FL_RATE_WAYS];
};
_Static_assert(sizeof(struct fl_rate_set) == 64, "a set is one cache line");

/* Outer sources of tunnels from tier one: addr & mask equals addr. The first entry
 * whose mask is 0 ends the list; IPv4 prefixes are longer by 96 bits. */
struct fl_tier_source {
	__u64 addr[2];
	__u64 mask[2];
};

/* An entry of `tables`: a slot and its weight (for p2c and least-conn). */
#define FL_ENTRY_SLOT(e) ((e) & 0xffff)
#define FL_ENTRY_WEIGHT(e) ((e) >> 16)

/* A row of a consistent-hash table: where new connections go, which server
 * holds earlier ones that were never tracked, and whether a connection must
 * be tracked because a change that may come would move it (chash.Compile). */
#define FL_ROW_SLOT(r) ((r) & 0x7fff)
#define FL_ROW_HELD(r) ((r) >> 15 & 0x7fff)
#define FL_ROW_TRACK(r) ((r) >> 31)

/* A bucket of AnchorHash, whose number is its server's slot: A is how many
 * buckets worked when it was removed, 0: it works; K the bucket that took its
 * place in the list of those (chash.NewAnchorTable). */
#define FL_ANCHOR_A(e) ((e) & 0xffff)
#define FL_ANCHOR_K(e) ((e) >> 16)
/* Entries that one walk looks at, at most. */
#define FL_ANCHOR_STEPS 128

/* The bucket table of a VIP (scheme beamer) in `tables`: rows of 16 bits, four to
 * an entry, the first in its lowest bits, and behind them two entries a bucket.
 * A row is the slot that has the bucket, FL_BUCKET_NONE, or FL_BUCKET_MOVED: then
 * earlier servers may own connections of it, and the bucket's own entries say
 *   0  current | previous[0] << 16 | previous[1] << 32 | previous[2] << 48: slots,
 *      newest first, FL_BUCKET_NONE where there is none
 *   1  time of the last move, or until when the chain was last known to be
 *      needed: shared ms
 * hash_table is even, so that both are on one cache line; the rows of 6.4
 * million buckets are 12.8 MB.
 *
 * Entry of bucket b's row, from hash_table on, and where in it; the first of its
 * own entries, where there are n buckets. */
#define FL_BUCKET_ROW(b) ((b) >> 2)
#define FL_BUCKET_SHIFT(b) (((b) & 3) << 4)
#define FL_BUCKET_WORDS(b, n) ((((n) + 7) >> 3) * 2 + 2 * (b))

/* ---- server lines ----------------------------------------------------- */

/* One cache line per server slot and CPU: the outer header's template and
 * the counters, so that a known connection touches nothing else. Written
 * word by word by the syscall program line_write (never through a map
 * update, which would lose counts); `mac_dst` and `mac_src` are each one
 * word, so a packet sees an old or a new address, never half of each. */
struct fl_line {
	__u64 packets;
	__u64 bytes;        /* of the packet as it came in, from layer 3 on */
	__u64 mac_dst;      /* bytes 0-5 next hop's MAC; byte 6 forwarding
	                     * (enum fl_forwarding), byte 7 enum fl_line_flags */
	__u64 mac_src;      /* bytes 0-5 our MAC; bytes 6-7 VLAN tag, host
	                     * order, 0: untagged */
	__u64 addr[2];      /* server's address, BE; IPv4 as ::ffff:a.b.c.d */
	__u32 ifindex;      /* where it leaves */
	__u16 mtu;          /* largest inner packet (layer 3) that fits */
	__u16 pad;
	__u64 opened;       /* new connections on this CPU */
};
_Static_assert(sizeof(struct fl_line) == 64, "a server line is one cache line");
enum fl_line_flags {
	FL_LINE_IPV6 = 1,       /* the outer header is IPv6 */
	FL_LINE_UNRESOLVED = 2, /* next hop's MAC not known (yet) */
	FL_LINE_CLOSED = 4,     /* takes no new ones: draining, resting, joining, standby, down */
	FL_LINE_DOWN = 8,       /* down by its health checks */
	FL_LINE_STEERED = 16,   /* gue: the line's row in `steers` may choose the path */
};

/* How the tunnels of a steered line go through the fabric: a row of `steers`, by
 * the line's index. A packet takes the entry that its connection's hash names: the
 * outer header's source port and flow label, of which routers that read path
 * selectors take the way (docs/steering.md). Entry 0: spread by the hash, as
 * the tunnels of other lines. An entry is one word, so that a packet sees an old
 * or a new one. */
#define FL_STEER_PORT(e) ((__u16)(e))            /* host order */
#define FL_STEER_LABEL(e) ((__u32)((e) >> 32))   /* 20 bits */
/* Not of the hash's topmost bits: those have chosen the server in some schemes, so
 * that one server's connections would meet in few entries. */
#define FL_STEER_INDEX(hash) ((hash) >> 44 & (FL_STEER_ENTRIES - 1))
struct fl_steer {
	__u64 entry[FL_STEER_ENTRIES];
};

/* Context of the syscall program line_write. `line` is written on every CPU;
 * its counters are left alone unless reset is set. */
struct fl_line_write {
	__u32 index;
	__u32 reset;
	struct fl_line line;
};

/* ---- per VIP, per CPU ------------------------------------------------- */

struct fl_vip_cpu {
	__u32 next;         /* rr, wrr: next table entry on this CPU */
	__u32 candidate;    /* least-conn: best table entry seen so far */
	__u64 random;       /* p2c, least-conn: generator's next number */
	__u64 new_conns;
	__u64 fallback;     /* scheme cheetah: packets without a valid cookie */
	__u64 flow_hits;    /* packets that went by the flow table */
	__u64 bad_cookies;  /* cookies that named no slot */
	__u64 dropped;
	__u64 tracked;      /* entries made in the flow table */
	__u64 flow_full;    /* not made: all of the set's are live and confirmed,
	                     * or other CPUs were faster thrice */
	__u64 flow_replaced; /* made in place of a live one of another flow */
	__u64 share_lost;   /* not told to other balancers: ring full */
	__u64 seated;       /* connections that were given a seat */
	__u64 seat_full;    /* that were given none: the partition was full */
	__u64 seat_wrong;   /* packets whose seat is not their connection's */
	__u64 rated;        /* dropped for a limit of rates */
	__u64 rate_lost;    /* buckets of sources that gave way before they were full */
};
_Static_assert(sizeof(struct fl_vip_cpu) == 128, "a VIP's counters are two cache lines");

/* ---- the flow table ----------------------------------------------------- */

/* An entry that is NEW was made by one packet, which anybody may have forged.
 * CONFIRMED and DATAGRAM went on. FADING was CONFIRMED: a connection behind a
 * FIN or an RST, which is over unless somebody forged that (in full tracking
 * also a flow of one datagram: nothing goes by it there). NEW and FADING give
 * way, and in this order, so that a forged RST makes no living connection worth
 * less than a flood (bpf/lb/flows.h, FL_RANK_NEW); after two minutes FADING does
 * not count any more and goes first. While nobody needs its place it is known
 * for as long as a live one: a closed half may be silent for hours.
 *
 * Behind a FIN or RST
 *   - data makes an entry CONFIRMED again once what was on its way at the FIN
 *     has arrived, or at once if a SYN came in between: a port used again;
 *   - that SYN leaves it at the same server, if that takes new connections: a
 *     forged FIN or RST and a forged SYN together move nothing.
 *
 * "Unconfirmed", in metrics and elsewhere, is NEW or FADING: what gives way. */
enum fl_flow_state {
	FL_FLOW_NEW = 0,       /* one packet was seen, which may be forged */
	FL_FLOW_CONFIRMED = 1, /* TCP: it went on */
	FL_FLOW_FADING = 2,    /* TCP: it went on, and a FIN or an RST was seen */
	FL_FLOW_DATAGRAM = 3,  /* UDP: it went on */
};

/* A set is one cache line: a tag for each entry, 0 where it is empty, so
 * that a flow that is not there costs one load; tag[7] is always 0.
 * tag   = 0x80 | lowest 7 bits of the flow's key
 * entry = fingerprint << 32 | time << 16 | state << 14 | slot
 * where the fingerprint is the key's high half, time counts 1.024 s and wraps. */
struct fl_flow_set {
	__u8 tag[8];
	__u64 entry[FL_FLOW_WAYS];
};
_Static_assert(sizeof(struct fl_flow_set) == 64, "a set is one cache line");
#define FL_FLOW_SLOT(e) ((e) & 0x3fff)
#define FL_FLOW_STATE(e) ((e) >> 14 & 3)
#define FL_FLOW_TIME(e) ((__u16)((e) >> 16))

/* A flow as balancers tell it each other; the record of the ring `shared`. */
struct fl_shared {
	__u64 x;            /* its key in the table: the same in all balancers */
	__u16 slot;
	__u8 state;         /* enum fl_flow_state */
	__u8 tcp;
	__u32 vip_id;       /* of this balancer; 0: not known */
};

/* Context of the syscall program flow_write: flows that other balancers told.
 * Each enters the table under the rules of a packet's, by this clock, and is
 * told nobody; a live CONFIRMED or DATAGRAM entry that names another server
 * stays, as this balancer's packets may go by it. */
struct fl_flow_write {
	__u32 count;        /* of record, at most FL_FLOW_WRITES */
	__u32 taken;        /* out: of these, entered */
	struct fl_shared record[FL_FLOW_WRITES];
};

/* Context of the syscall program flow_sweep: clears forgotten entries of count
 * sets from first on, as far as the table goes, and counts. */
struct fl_flow_sweep {
	__u32 first;
	__u32 count;
	__u32 used;         /* out: live entries (FADING: for two minutes), */
	__u32 confirmed;    /* of these, confirmed connections and datagrams' flows */
	__u32 expired;      /* out: cleared */
	__u32 pad;
};

/* ---- seats (scheme cheetah-stateful) -------------------------------------- */

/* Three arrays of as many seats; a connection's is named by its hash, which
 * chooses one of the VIP's partitions of 2^seat_bits seats, and by its cookie:
 *
 *   seats        what each of its packets reads and counts
 *   seats_taken  a bit a seat. Who sets one has the seat, and who ends its word (by
 *                compare-and-swap) clears the bit: no lock
 *   seats_about  whose it is
 *
 * VIPs may have partitions of different sizes: they lie one over the other, and
 * the bits keep them apart. bpf/lb/seats.h says when a seat is taken and freed; the
 * daemon frees what has been idle too long. Go's twin is scheme/seats.
 *
 * word  = check << 32 | unit << 16 | moved << 14 | state << 12 | slot
 * count = packets << 40 | bytes, of what the daemon has not yet moved to about
 *
 * The check is the high half of the connection's hash, whose low half chooses the
 * partition; the unit when a packet was seen last counts 1.024 s and wraps. */
struct fl_seat {
	__u64 word;
	__u64 count;
};
enum fl_seat_state {
	FL_SEAT_NONE = 0,
	FL_SEAT_NEW = 1,     /* its SYN was seen, which may be forged */
	FL_SEAT_LIVE = 2,    /* its cookie came back */
	FL_SEAT_CLOSING = 3, /* behind a FIN or RST, whose unit stays. The seat is free, but
	                      * the word stands until somebody takes it */
};
#define FL_SEAT_SLOT(word) ((word) & 0xfff)
/* Its packets go to that slot, whatever their cookie says: the daemon writes it. */
#define FL_SEAT_MOVED(word) ((word) >> 14 & 1)
#define FL_SEAT_STATE(word) ((word) >> 12 & 3)
#define FL_SEAT_UNIT(word) ((__u16)((word) >> 16))
/* All but the unit. */
#define FL_SEAT_SAME(word) ((word) & ~0xffff0000ULL)
#define FL_SEAT_ONE (1ULL << 40) /* a packet, in a count */

struct fl_seat_about {
	__u64 addr[2];      /* the client, as in fl_vip.addr */
	__u32 vip_id;
	__u16 sport;        /* BE, the client's */
	__u16 dport;        /* BE, the VIP's */
	__u32 opened_ms;    /* shared ms */
	__u32 home;         /* of one that was moved: the slot that its cookie says */
	__u64 packets;      /* the daemon's sums, beside fl_seat.count */
	__u64 bytes;
	__u64 due;          /* the bucket of its packets (bpf/lb/rates.h) */
	__u64 pad;
};
_Static_assert(sizeof(struct fl_seat_about) == 64, "about is a cache line");

/* In units. */
enum fl_seat_times {
	/* How long a seat is kept for a handshake, as Linux repeats a SYN-ACK five
	 * times; and where a partition is full. */
	FL_SEAT_HANDSHAKE = 62,
	FL_SEAT_HURRY = 3,
	/* Data so long after a FIN or RST says that it ended nothing, as in the flow
	 * table. */
	FL_SEAT_REVIVE = 4,
};

/* ---- settings that change while packets flow --------------------------- */

struct fl_control {
	__u32 active;       /* half of `vips` and `tables` in use: 0 or 1 */
	__u32 clock_base;   /* shared ms = jiffies scaled to ms + clock_base */
	__u64 vip_seed[2];  /* odd multiplier of each half's VIP table */
	__u32 ask_rate;     /* copies of one kind asked a second and CPU, see fl_ask */
	__u32 inputs;       /* entries of `inputs`; 0: every frame is ours */
};

/* ---- which frames are ours ---------------------------------------------- */

/* Key of `inputs`: a MAC address that the kernel takes frames to, in a VLAN of
 * an interface. The array `input_cache` repeats most of them, each on the line
 * that FL_INPUT_LINE names, or they are not in it. */
struct fl_input {
	__u64 word;         /* FL_INPUT_WORD of a frame to it */
	__u32 ifindex;      /* by which frames come, never a VLAN device's; 0: empty */
	__u32 pad;          /* 0 */
};
/* Of a frame's first 8 bytes as loaded, and its VLAN (0: untagged). */
#define FL_INPUT_WORD(start, vlan) ((start) << 16 | (vlan))
#define FL_INPUT_LINE(word, ifindex) \
	(((word) + ((__u64)(ifindex) << 16)) * 0x9e3779b97f4a7c15ULL >> (64 - FL_INPUT_BITS))

/* ---- what the daemon is asked to send to every server ------------------ */

/* Record of the ring buffer `asks`: an RST or ICMP error that names no
 * server; the daemon sends a copy to each server of the VIP. */
#define FL_ASK_BYTES 256
struct fl_ask {
	__u32 vip_id;
	__u16 length;       /* bytes of packet, from layer 3 on */
	__u16 family;       /* 4 or 6 */
	__u8 packet[FL_ASK_BYTES];
};

/* ---- why: a closed set -------------------------------------------------- */

/* Each packet counts under exactly one reason, except known connections that
 * were forwarded, which count in their server line only. The prefix is the
 * verdict: PASS to the kernel, FORWARD to a server, REPLY by us, DROP. */
/* clang-format off */
#define FL_REASONS(X)                                                          \
	X(PASS_NOT_IP)          /* neither IPv4 nor IPv6, or more than one tag */ \
	X(PASS_NO_VIP)          /* addressed to no VIP */                         \
	X(PASS_VIP_OTHER)       /* to a VIP's address, but nothing we serve */    \
	X(PASS_NOT_MINE)        /* frame to another MAC, to many, or of a VLAN    \
	                         * that this machine has not */                   \
	X(FORWARD_NEW)          /* first packet, by the policy or the hash */     \
	X(FORWARD_NO_TIMESTAMP) /* TCP without timestamps: fallback */            \
	X(FORWARD_UDP)          /* UDP: fallback */                               \
	X(FORWARD_BAD_COOKIE)   /* cookie names no slot: fallback */              \
	X(FORWARD_STATELESS)    /* scheme stateless */                            \
	X(FORWARD_ICMP)         /* ICMP error, to the server that it concerns */  \
	X(FORWARD_FRAGMENT)     /* fragment, by addresses */                      \
	X(REPLY_ECHO)           /* ICMP echo answered */                          \
	X(REPLY_TOO_BIG)        /* does not fit our tunnel: sender told */        \
	X(ASK_RST)              /* RST without timestamp: all servers asked */    \
	X(ASK_ICMP)             /* ICMP error without cookie: all servers asked */ \
	X(DROP_MALFORMED_IP)    /* lengths, header checksum, or TTL 0 */          \
	X(DROP_MALFORMED_L4)    /* TCP, UDP or ICMP header */                     \
	X(DROP_MALFORMED_OPTION) /* TCP options */                                \
	X(DROP_FRAGMENT)        /* the VIP's policy */                            \
	X(DROP_NO_SERVER)       /* no server takes it */                          \
	X(DROP_UNRESOLVED)      /* next hop's MAC unknown */                      \
	X(DROP_TOO_BIG)         /* does not fit, and the sender cannot be told */ \
	X(DROP_ASK_LIMIT)       /* the bound on asking is used up */              \
	X(DROP_ECHO)            /* ICMP echo, not answered by the VIP's setting */ \
	X(DROP_HEADROOM)        /* no room to encapsulate */                      \
	X(FORWARD_TIER_DOWN)    /* tier one: cookie names a balancer that is down */ \
	X(FORWARD_OTHER_TIER)   /* tier two: cookie names another balancer of it */ \
	X(DROP_TIER_SOURCE)     /* tier two: tunnel from no balancer of tier one */ \
	X(DROP_TIER_STRAY)      /* tier two: tunnel with what is for no VIP */     \
	X(DROP_RATE_CONNECTION) /* over the limit of its connection's packets, */ \
	X(DROP_RATE_SOURCE)     /* of its source's packets, */                    \
	X(DROP_RATE_NEW)        /* or of its source's new connections */

enum fl_reason {
#define X(name) FL_##name,
	FL_REASONS(X)
#undef X
	FL_REASON_COUNT,
	FL_KNOWN = FL_REASON_COUNT, /* a known connection: counts in its line only */
};
/* clang-format on */

#endif
