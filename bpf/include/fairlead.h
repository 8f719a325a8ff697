/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Structs and enums that cross between BPF C and Go. bpf2go turns them into
 * Go types, so every name here is also the name in Go, metrics and docs.
 * Multi-byte fields are in host byte order unless they are marked BE
 * (network byte order). A change of a struct that lives in a pinned map is a
 * change of layout: raise FL_LAYOUT (balancer) or FL_HOST_LAYOUT, and the
 * daemon migrates instead of adopting (docs/ARCHITECTURE.md, "Adopting what is pinned"). */
#ifndef FAIRLEAD_H
#define FAIRLEAD_H

#include <linux/types.h>

/* ---- choices of a VIP ------------------------------------------------- */

enum fl_scheme {
	FL_SCHEME_STATELESS = 0,
	FL_SCHEME_CHEETAH = 1,
	FL_SCHEME_JET = 2,
	FL_SCHEME_FULL_CT = 3,
	FL_SCHEME_BEAMER = 4,
	FL_SCHEME_FAILD = 5, /* hosts only: a switch stands where balancers do */
	FL_SCHEME_CHEETAH_STATEFUL = 6,
};

/* Form of a VIP's hash in `tables`: see FL_ROW_*, FL_ANCHOR_* and FL_BUCKET_*.
 * Schemes beamer and faild go by buckets, all others by a consistent hash. */
enum fl_hash_form { FL_HASH_TABLE = 0, FL_HASH_ANCHOR = 1, FL_HASH_BUCKETS = 2 };

/* rr and wrr differ only in the table that user space compiles. */
enum fl_policy {
	FL_POLICY_RR = 0,
	FL_POLICY_WRR = 1,
	FL_POLICY_P2C = 2,
	FL_POLICY_LEAST_CONN = 3,
	FL_POLICY_HASH = 4,
};

/* Where a cookie travels. 0 also where a VIP has none. */
enum fl_carrier { FL_CARRIER_TCP_TIMESTAMP = 0 };

/* Zero marks a server line that names no server: a decoded slot that lands
 * on it is invalid. */
enum fl_forwarding { FL_FWD_NONE = 0, FL_FWD_IPIP = 1, FL_FWD_GUE = 2, FL_FWD_L2 = 3 };

enum fl_vip_flags {
	FL_VIP_ICMP_ECHO = 1 << 0,      /* answer echo requests to the address */
	FL_VIP_FRAG_ADDRESSES = 1 << 1, /* fragments go by addresses, else dropped */
	FL_VIP_AFFINITY = 1 << 2,       /* policy hash: by client address alone */
	FL_VIP_ADDRESS_ENTRY = 1 << 3,  /* not a service: see FL_PROTO_* below */
	FL_VIP_SHARE = 1 << 4,          /* tracked flows are told to other balancers */
	FL_VIP_TRACK_ALL = 1 << 5,      /* track each connection, whatever the hash says
	                                 * of it: its rows may go back to what they
	                                 * were, which no bit of theirs foresees */
	FL_VIP_JOIN = 1 << 6,           /* of an address's own entry, which then is like
	                                 * the MPTCP VIP's: joins are served, FL_JOIN_* */
	FL_VIP_MIGRATES = 1 << 7,       /* schemes with cookies: an entry of the flow table
	                                 * counts more than a cookie, as connections live
	                                 * that were opened under another scheme */
};

/* Two kinds of entries stand in the VIP table beside the services, so that
 * packets without ports find their VIP in the same look-up:
 *   (address, port 0, ICMP or ICMPv6)            settings of the address;
 *   (address, port 0, protocol | FL_PROTO_FRAG)  the VIP that takes the
 *                                                fragments of the protocol. */

/* ---- numbers ------------------------------------------------------------ */

enum fl_constants {
	FL_LAYOUT = 2,
	/* The host's maps have a form, and a layout, of their own: an agent whose
	 * sockets live cannot migrate, so it must not have to for the balancer's
	 * sake. */
	FL_HOST_LAYOUT = 1,

	FL_PROTO_FRAG = 0x80,

	/* Both halves of the VIP table have FL_VIP_LINES lines; an entry stands on
	 * one of the two lines that FL_VIP_LINE1/2() name (cuckoo; user space picks
	 * the seed). */
	FL_VIP_BITS = 12,
	FL_VIP_LINES = 1 << FL_VIP_BITS,

	/* A bucket without a server, and an end of a chain. */
	FL_BUCKET_NONE = 0xffff,
	/* Servers that a chain names at most: with the current one, so many more
	 * than this may own connections of one bucket. */
	FL_CHAIN = 3,

	/* Ports of MPTCP joins: FL_JOIN_PORT + fl_cookie_encode(join_hash, slot, 0,
	 * FL_JOIN_SHIFT), which has 15 bits, names the server of the first subflow. */
	FL_JOIN_PORT = 32768,
	FL_JOIN_SHIFT = 16,
};

/* ---- counters --------------------------------------------------------- */

struct fl_count {
	__u64 packets;
	__u64 bytes;
};

#endif
