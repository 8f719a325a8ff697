/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What crosses between the server's programs and Go: the VIP as a server sees it,
 * the servers it asks, why a packet went where it did, and what sockets are
 * stamped with. */
#ifndef FAIRLEAD_HOST_H
#define FAIRLEAD_HOST_H

#include "fairlead.h"

/* ---- numbers ------------------------------------------------------------ */

enum fl_host_constants {
	FL_NO_SLOT = 0xffff,
	FL_HOST_VIP_IDS = 65536, /* ids of VIPs are below this (checked by Apply) */
	FL_HOST_SOURCES = 64,    /* entries of `host_sources` */
	/* A generation further ahead of the agent's than this is not learned.
	 * Agents hear of a table before balancers do: so many have been missed by
	 * one that is dead or cut off, and no forged number makes more tables look
	 * stale than these. */
	FL_GENERATION_AHEAD = 64,
	/* A handshake that the programs answered must be over within so many ms. A
	 * power of two: without timestamps time is counted in halves of it. */
	FL_OFFLOAD_MS = 32768,
	/* In fl_host_vip.stamp_epoch: handshakes whose SYN-ACK was sent at stamp_since
	 * or later are not stamped, as the VIP migrates to a scheme without cookies.
	 * Earlier ones, and their connections, are as ever. */
	FL_HOST_UNSTAMPS = 2,
	/* Buckets of `host_opened`. */
	FL_OPENED_BUCKETS = 65536,
};

/* ---- the VIP ------------------------------------------------------------ */

/* A VIP as a server sees it; same table form as the balancer's. Times are
 * CLOCK_MONOTONIC in milliseconds.
 *
 * What a handshake is stamped with is a function of the time at which its
 * SYN-ACK was sent, and of nothing else: from slot_since on under slot,
 * before it under old_slot (or not at all where there is none); from
 * stamp_since on under stamp_epoch, before it under the other epoch (or, with
 * FL_HOST_UNSTAMPS, from then on not at all, before it under stamp_epoch). The
 * client echoes that time, so whoever sees the third packet of the handshake
 * knows how the second was stamped. */
struct fl_host_vip {
	__u64 addr[2];
	__u16 port;
	__u8 proto;
	__u8 used;
	__u32 id;           /* index into host_vip_count */
	__u64 key[2][2];    /* as in fl_vip */
	__u16 slot;         /* this server's slot */
	__u16 old_slot;     /* one that it had before, still forwarded; or FL_NO_SLOT */
	__u8 epochs;        /* as in fl_vip */
	__u8 stamp_epoch;   /* 0 or 1: new connections are stamped under this one; and
	                     * FL_HOST_UNSTAMPS */
	__u8 shift;
	__u8 scheme;        /* FL_SCHEME_CHEETAH and _STATEFUL stamp, BEAMER and FAILD
	                     * ask who owns a connection (bpf/host/own.h) */
	__u16 mss;          /* SYN-ACK's MSS is lowered to this; 0: never */
	__u16 flags;        /* enum fl_host_vip_flags */
	__u32 keepalive_ms; /* silence after which the kernel probes; 0: unset */
	__u64 slot_since;
	__u64 stamp_since;
	__u64 tunnel[2];    /* outer destination of its tunnels, as addr */
	__u64 old_tunnel[2]; /* the address before, still forwarded to; or 0 */
	__u32 generation;   /* beamer: of the bucket table that the agent knows, a
	                     * serial number (RFC 1982, 32 bits); with cookies: how
	                     * their values are split, FL_HOST_SEAT_BITS */
	__u32 chain_ms;     /* beamer: how long after a move packets are passed on;
	                     * beamer, faild: and a silent flow of UDP is known */
};
_Static_assert(sizeof(struct fl_host_vip) == 128, "a VIP is two cache lines");

enum fl_host_vip_flags {
	/* Balancers may disagree whether this server is up: always ask who owns a
	 * connection, and drop segments that nobody here owns instead of having
	 * them reset. */
	FL_HOST_VIP_UNSETTLED = 1 << 0,
	/* Bits 1, 2 and 5 to 11: FL_HOST_VIP_REFUSES. */
	/* Its tunnels come from host_sources alone. Not set: some balancer's source
	 * is not known. Beamer's always do. */
	FL_HOST_VIP_SOURCES = 1 << 3,
	/* A port of MPTCP joins to this server: it answers nothing else. */
	FL_HOST_VIP_JOIN = 1 << 4,
	/* From here on, an enum fl_carrier, in three bits. */
	FL_HOST_VIP_CARRIER = 1 << 12,
	/* The programs answer its SYNs themselves: bpf/host/handshake.h. */
	FL_HOST_VIP_OFFLOAD = 1 << 15,
};
/* Its balancers send no tunnels of an enum fl_forwarding (1 to 9), nor did they a
 * version ago. (Flags that refuse: a table by an older agent, which has none, loses
 * nothing.) Go's twin is tables.Refuses. */
#define FL_HOST_VIP_REFUSES(f) (1 << ((f) < 3 ? (f) : (f) + 2))

/* Of the split: bits of the seat, beside which a value has the slot. */
#define FL_HOST_SEAT_BITS(split) ((split) & 15)
#define FL_HOST_TIER_BITS(split) ((split) >> 8 & 15)

/* A server of a VIP that this one may pass packets on to, by its slot. The
 * agent writes all of it at once, and leaves itself out. */
struct fl_host_peer_key {
	__u32 vip_id;
	__u16 slot;
	__u16 pad;          /* 0 */
};

struct fl_host_peer {
	__u64 addr[2];      /* as in fl_host_vip */
	__u64 mac_dst;      /* bytes 0-5 next hop's MAC; 6-7: 0 */
	__u64 mac_src;      /* bytes 0-5 our MAC; bytes 6-7 VLAN tag, host
	                     * order, 0: untagged */
	__u32 ifindex;      /* where it leaves */
	__u32 flags;        /* enum fl_peer_flags */
};
enum fl_peer_flags {
	FL_PEER_IPV6 = 1,       /* addr is no IPv4 address */
	FL_PEER_UNRESOLVED = 2, /* next hop's MAC not known (yet) */
	/* On the link, and answers no more: datagrams, which have to come back, are
	 * not passed on to it. */
	FL_PEER_SILENT = 4,
};

/* Outer sources that are balancers: addr & mask equals addr. The first entry
 * whose mask is 0 ends the list; IPv4 prefixes are longer by 96 bits. */
struct fl_host_source {
	__u64 addr[2];
	__u64 mask[2];
};

/* What packets taught of a VIP, beside what the agent knows. The agent clears
 * it whenever it writes another generation into the VIP. */
struct fl_host_own {
	__u32 newest;       /* generation seen in a balancer's packet, if it is later
	                     * than the agent's; 0: none */
	__u32 stale_ms;     /* shared ms of the last packet from a balancer whose
	                     * generation was older; 0: none */
};

/* First octet of the MAC addresses that scheme faild sends to; 10 bits each of
 * slot + 1 (0: none) follow: current server, then the previous ones. */
#define FL_FAILD_MAC 0x9a      /* by the switch, or passed on by a server */
#define FL_FAILD_MAC_COPY 0x9e /* copy of an ICMP error: deliver or ignore */
/* A datagram whose chain ends at the server that had it first, and passed it on. */
#define FL_FAILD_MAC_BACK 0x96

/* Record of the ring buffer `host_asks`: an ICMP error of scheme faild that
 * quotes no connection of this server. The agent sends a copy to every other
 * server of the VIP, once (FL_FAILD_MAC_COPY). */
#define FL_HOST_ASK_BYTES 256
struct fl_host_ask {
	__u32 vip_id;
	__u32 ifindex;      /* by which it came */
	__u16 length;       /* bytes of packet, from layer 3 on */
	__u16 family;       /* 4 or 6 */
	__u8 packet[FL_HOST_ASK_BYTES];
};

/* Reasons that packets of the fast path would count are taken from
 * host_vip_count instead (Go's Counters does the sums). */
/* clang-format off */
#define FL_HOST_REASONS(X)                                                      \
	X(PASS_NOT_OURS)       /* no tunnel of ours, no VIP */                     \
	X(IN_DIRECT)           /* to a VIP, without a tunnel */                    \
	X(IN_NO_TIMESTAMP)     /* TCP without the option: nothing to restore */    \
	X(IN_FOREIGN_COOKIE)   /* TSecr holds no cookie of this slot: left alone */ \
	X(IN_NO_SOCKET)        /* tcp_timestamps=1, no socket to ask: offset 0 */  \
	X(IN_OLD_EPOCH)        /* TIME_WAIT under the other epoch, remembered */   \
	X(OUT_STAMPED_LOOKUP)  /* stamped for a request or TIME_WAIT socket */     \
	X(OUT_STAMPED_SYNCOOKIE) /* SYN-ACK of a SYN cookie */                     \
	X(OUT_NO_TIMESTAMP)    /* the connection has none */                       \
	X(OUT_MICROSECONDS)    /* tcp_usec_ts: left alone */                       \
	X(OUT_UNKNOWN)         /* from a VIP, but no constant could be found */    \
	X(OUT_MSS_CLAMPED)                                                         \
	X(OUT_KEEPALIVE)       /* probe given a byte, so that it renews TSecr */   \
	X(DROP_MALFORMED)      /* outer or inner header */                         \
	X(IN_OPENING)          /* beamer, faild: SYN or QUIC Initial, taken */     \
	X(IN_OWNED)            /* asked: a socket or the table of flows has it */  \
	X(IN_SYNCOOKIE)        /* asked: ends the handshake of a SYN cookie */     \
	X(IN_UNOWNED)          /* asked: nobody's; the stack answers it */         \
	X(IN_RETURNED)         /* datagram that went round: nobody's, taken */     \
	X(FORWARD_PREVIOUS)    /* to the bucket's previous server */               \
	X(UNKNOWN_PREVIOUS)    /* left out of a chain: no such server */           \
	X(UNRESOLVED_PREVIOUS) /* left out of a chain: no MAC known, or silent */  \
	X(CLOCK_AHEAD)         /* chain's time over 2 s in the future */           \
	X(GENERATION_JUMP)     /* too far ahead: not learned */                    \
	X(ASK_ICMP)            /* ICMP error, nobody's here: others are asked */   \
	X(DROP_FOREIGN_SOURCE) /* tunnel from no balancer and no server */         \
	X(DROP_STALE)          /* TCP, nobody's, by an older table than others' */ \
	X(DROP_LOOP)           /* would be passed on to where it was */            \
	X(DROP_NOT_MINE)       /* faild: flooded, or a copy, for another server */ \
	X(DROP_ASK_LIMIT)      /* the bound on asking others is used up */         \
	X(DROP_FOREIGN_TUNNEL) /* of a form that the VIP's balancers do not send */ \
	X(DROP_FOREIGN_ICMP)   /* in a tunnel, and no balancer forwards it */      \
	X(DROP_NO_JOIN)        /* answer to what joins nothing at an MPTCP port */ \
	X(HANDSHAKE_ANSWERED)  /* offload: SYN answered by a stamped SYN cookie */ \
	X(HANDSHAKE_OPENED)    /* what ends such a handshake: the listener has it */ \
	X(HANDSHAKE_BAD_MAC)   /* a cookie of ours, no socket, and no such handshake */ \
	X(HANDSHAKE_LATE)      /* ends one older than half a minute: the stack's */ \
	X(HANDSHAKE_REFUSED)   /* the kernel did not take it: the stack's */       \
	X(STACK_MPTCP)         /* SYN left to the stack: its listener is MPTCP's */ \
	X(STACK_SETTINGS)      /* by the kernel's settings there is no offload */  \
	X(STACK_TAKEN)         /* the client's port has a socket, as in TIME_WAIT */ \
	X(STACK_FORM)          /* IP or TCP options, data or a tag: not for us */  \
	X(STACK_ROUTE)         /* no route to the client that could be asked for */ \
	X(DROP_BACKLOG)        /* SYN, and the listener's accept queue is full */  \
	X(DROP_EARLY)          /* later segment of a handshake that is not ended */ \
	X(DROP_REPLAY)         /* ends a handshake that was ended, and is over */

enum fl_host_reason {
#define X(name) FL_HOST_##name,
	FL_HOST_REASONS(X)
#undef X
	FL_HOST_REASON_COUNT,
};
/* clang-format on */

/* One cache line a VIP and CPU. */
struct fl_host_count {
	__u64 packets[2];  /* in, out */
	__u64 bytes[2];    /* from layer 3 on, without the tunnel */
	__u64 restored;    /* packets whose TSecr was restored */
	__s64 live[3];     /* established connections by parity of their epoch;
	                    * [2]: those that carry no cookie */
};
_Static_assert(sizeof(struct fl_host_count) == 64, "a count is one cache line");
#define FL_LIVE_NO_COOKIE 2

struct fl_host_control {
	__u32 active;       /* half of the VIP table in use */
	__u32 lookup;       /* 1: tcp_timestamps=1, ask the socket for its offset.
	                     * The programs raise it, nothing lowers it */
	__u64 vip_seed[2];
	__u32 clock_base;   /* D: shared ms = CLOCK_MONOTONIC ms + D. Fixed per
	                     * boot; a multiple of 64, so that a SYN cookie's
	                     * options, the low six bits of TSval, survive it */
	__u32 jiffies_base; /* shared ms = jiffies scaled to ms + jiffies_base */
	__u32 layout;       /* FL_HOST_LAYOUT; 0: control was never set up */
	__u32 clock_set;    /* clock_base holds D */
};

/* What handshakes are answered with: all that there is to it, but for the VIPs. */
struct fl_offload {
	__u64 key[2];       /* of the SYN cookies; never changes while there are any */
	__u32 flags;        /* enum fl_offload_flags; 0: the stack answers */
	__u8 wscale;        /* by which the stack's windows are shifted */
	__u8 ttl;           /* of what the stack sends, IPv4 and IPv6 */
	__u8 hop_limit;
	__u8 pad;
};
enum fl_offload_flags {
	FL_OFFLOAD_ON = 1,
	FL_OFFLOAD_SACK = 2,
	FL_OFFLOAD_WSCALE = 4,
	FL_OFFLOAD_ECN = 8,
};

/* Connections that were opened: mark (32) | shared ms (32) each. */
struct fl_opened {
	__u64 marks[4];
};

/* Of a VIP whose handshakes are answered: what became of its SYNs. */
struct fl_offload_count {
	__u64 answered;
	__u64 opened;
	__u64 stack;        /* left to the stack, STACK_MPTCP apart */
	__u64 mptcp;
};

/* What a socket is stamped with: TSval on the wire = the stack's + constant. */
struct fl_socket {
	__u32 constant;
	__u8 live;          /* index into fl_host_count.live */
	__u8 stamped;       /* 0: leave this socket alone; else 1 + enum fl_carrier */
	__u8 closed;        /* no longer counted as live */
	__u8 own;           /* 1: the stack's own timestamps carry the cookie: leave
	                     * them alone (bpf/host/handshake.h) */
	__u32 vip_id;
};

/* Key of old_epochs: a connection as the host sees it arrive. */
struct fl_tuple {
	__u64 addr[2];      /* client, as in fl_host_vip */
	__u16 sport;        /* BE */
	__u16 dport;        /* BE */
	__u32 vip_id;
};

#endif
