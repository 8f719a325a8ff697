/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Structs and enums of `fairlead router` that cross between BPF C and Go, as
 * balancer.h has the balancer's. A change of one that lives in a pinned map is
 * a change of layout: raise FL_ROUTER_LAYOUT. */
#ifndef FAIRLEAD_ROUTER_H
#define FAIRLEAD_ROUTER_H

#include <linux/types.h>

#include "pathsel.h"

enum fl_router_constants { FL_ROUTER_LAYOUT = 1 };

/* ---- where packets come in ---------------------------------------------- */

/* Key of `inputs`: a device, or a VLAN of one, that the kernel routes from. */
struct fl_input_key {
	__u32 ifindex;      /* by which frames come, never a VLAN device's */
	__u16 vlan;         /* 0: untagged */
	__u16 pad;
};

/* Value of `inputs`: bytes 0-5 the device's MAC, byte 6 FL_INPUT_* flags. */
enum fl_input_flags {
	FL_INPUT_IPV4 = 1, /* the kernel forwards IPv4 from here, */
	FL_INPUT_IPV6 = 2, /* IPv6 */
};

/* ---- routes --------------------------------------------------------------- */

struct fl_route4 {
	__u32 bits;         /* of the prefix */
	__u32 addr;         /* BE */
};

struct fl_route6 {
	__u32 bits;
	__u32 addr[4];      /* BE */
};

/* Value of `routes4` and `routes6`: what the number is, and the number. */
#define FL_ROUTE_KIND(v) ((v) >> 30)
#define FL_ROUTE_INDEX(v) ((v) & 0x3fffffff)
enum fl_route_kind {
	FL_ROUTE_GROUP = 0, /* of `groups` */
	FL_ROUTE_HOP = 1,   /* of `hops`: there is nothing to choose */
	FL_ROUTE_PASS = 2,  /* enum fl_router_reason */
};

/* ---- groups and hops ------------------------------------------------------- */

/* A set of equal next hops. Never changed while a route names it: another set
 * is another group. */
struct fl_router_group {
	struct fl_pathsel_group choice; /* says which of hop[] */
	__u16 hop[FL_PATHSEL_MAX_HOPS]; /* index into `hops` */
};

/* A next hop, one cache line. `mac_dst`, `mac_src` and the pair of ifindex and
 * mtu are each written as one word, so that a packet sees an old or a new
 * one. The rest is for the daemon that adopts the map. */
struct fl_hop {
	__u64 mac_dst;      /* bytes 0-5 the neighbour's MAC, byte 6 FL_HOP_* flags */
	__u64 mac_src;      /* bytes 0-5 our MAC; bytes 6-7 VLAN tag, host order,
	                     * 0: untagged */
	__u32 ifindex;      /* where it leaves */
	__u32 mtu;          /* largest packet, from layer 3 on */
	__u32 device;       /* the device of the route: of a VLAN, its own; 0: no
	                     * hop stands here */
	__u32 pad;
	__u64 gateway[2];   /* BE; IPv4 as ::ffff:a.b.c.d */
	__u64 pad2[2];
};
_Static_assert(sizeof(struct fl_hop) == 64, "a hop is one cache line");
enum fl_hop_flags {
	FL_HOP_UNRESOLVED = 1, /* the neighbour's MAC is not known (yet) */
	FL_HOP_NO_XMIT = 2,    /* the device takes no frames from XDP programs */
};

/* What went out by a hop, one cache line a CPU. All that is counted about a
 * packet that is forwarded. */
struct fl_hop_count {
	__u64 packets[FL_HOW_COUNT];
	__u64 bytes;        /* from layer 3 on */
	__u64 pad[3];
};
_Static_assert(sizeof(struct fl_hop_count) == 64, "a hop's counters are one cache line");

/* ---- why a packet was left to the kernel: a closed set ---------------------- */

/* Nothing is dropped here: what the program does not forward is the kernel's,
 * which answers, asks, fragments or drops as it always did. */
/* clang-format off */
#define FL_ROUTER_REASONS(X)                                                        \
	X(NOT_IP)         /* neither IPv4 nor IPv6, or more than one tag */         \
	X(MALFORMED)      /* lengths, or the version */                             \
	X(INPUT)          /* came by a device or VLAN that nothing is routed from */ \
	X(OTHER_MAC)      /* not to the device's own address: broadcast, flooded */ \
	X(NOT_FORWARDING) /* the kernel does not forward this family from there */  \
	X(OPTIONS)        /* IPv4 options, IPv6 hop-by-hop options */               \
	X(ADDRESS)        /* of or to an address that no router forwards:           \
	                   * multicast, loopback, unspecified, IPv6 link-local */   \
	X(TTL)            /* time to live, hop limit ends here */                   \
	X(NO_ROUTE)       /* no route that is followed */                           \
	X(LOCAL)          /* the machine itself, broadcast */                       \
	X(UNREACHABLE)    /* blackhole, unreachable, prohibit */                    \
	X(CONNECTED)      /* a neighbour that was not heard of */                   \
	X(BEYOND)         /* a route of a kind that the program does not do */      \
	X(NO_HOP)         /* none of the route's next hops works */                 \
	X(UNRESOLVED)     /* the next hop's MAC is not known */                     \
	X(NO_XMIT)        /* the next hop's device takes no frames from XDP */      \
	X(TOO_BIG)        /* more than the next hop's MTU */                        \
	X(SAME_DEVICE)    /* out where it came in: the kernel tells the sender */   \
	X(HEADROOM)       /* no room for a VLAN tag */

enum fl_router_reason {
#define X(name) FL_PASS_##name,
	FL_ROUTER_REASONS(X)
#undef X
	FL_ROUTER_REASON_COUNT,
};
/* clang-format on */

struct fl_router_count {
	__u64 packets;
	__u64 bytes;        /* of the frame */
};

#endif
