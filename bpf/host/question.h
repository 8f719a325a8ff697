/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Who owns the connection of a packet: what the question is about, passed from
 * stage to stage. Offsets instead of pointers, so that stages may be functions
 * that the verifier walks once each. */
#ifndef FAIRLEAD_HOST_QUESTION_H
#define FAIRLEAD_HOST_QUESTION_H

#include "hops.h"
#include "packet.h"

/* Where the hops stand. */
enum fl_hops_place {
	FL_HOPS_IN_NONE,    /* nowhere: a copy, a health check, another scheme */
	FL_HOPS_IN_OPTION4, /* IPv4 option */
	FL_HOPS_IN_OPTION6, /* IPv6 destination option */
	FL_HOPS_IN_UDP,     /* as the forwarding has it, under the UDP checksum */
	FL_HOPS_IN_MAC,     /* faild: the destination MAC */
};

/* Who sent the packet here. */
enum fl_from {
	FL_FROM_NOBODY,   /* neither: forged */
	FL_FROM_BALANCER, /* or faild's switch */
	FL_FROM_SERVER,   /* one that was asked before */
};

/* Answers beside XDP's verdicts. */
enum fl_answer {
	FL_TAKE = 32,    /* to the stack */
	FL_PASS_ON = 33, /* to question.next */
	FL_ASK = 34,     /* the question is put, and to be answered */
};

struct fl_question {
	__u64 client[2]; /* the connection: of the packet, or of what it quotes */
	__u64 vip[2];
	__u64 source[2]; /* outer source, as in fl_host_vip */
	__u64 tunnel[2]; /* this server's address: what it passes on comes from there */
	struct fl_hops hops;
	struct fl_host_peer next; /* FL_PASS_ON: who gets it */
	__u32 vip_id;
	__u32 chain_ms;
	__u32 seq;       /* of the segment, or of the quoted one */
	__u32 ack;
	__u32 bytes;     /* of the packet, from layer 3 on, without the tunnel */
	__u16 sport;     /* BE, the client's */
	__u16 dport;     /* BE */
	__u16 slot;      /* this server's */
	__u16 l2;        /* bytes before the (outer) IP header: 14 or 18 */
	__u16 hops_at;   /* offset of the hops' sixteen octets */
	__u16 l3;        /* offset of the inner IP header */
	__u16 l4;        /* offset of what follows it */
	__u16 l4_len;
	__u8 proto;      /* of the connection */
	__u8 flags;      /* TCP's */
	__u8 hops_place; /* enum fl_hops_place */
	__u8 from;       /* enum fl_from */
	__u8 quote;      /* the packet is an ICMP error */
	__u8 opening;    /* UDP: QUIC Initial */
	__u8 stale;      /* older generation than others', or unsettled */
	__u8 outer6;     /* the tunnel is IPv6 */
	__u8 mac;        /* faild: first octet of the destination */
	__u8 settled;    /* the bucket has no previous server, and the table is fresh */
	__u16 next_slot; /* FL_PASS_ON: whose it is next */
	__u16 cut;       /* bytes between the Ethernet and the inner header */
	__u16 inner_proto; /* ETH_P_IP or ETH_P_IPV6, BE */
	__u8 congested;  /* the outer header says: congestion experienced */
	__u8 forwarding; /* enum fl_forwarding, of the tunnel */
	__u16 udp;       /* offset of the outer UDP header, with FL_HOPS_IN_UDP */
};

/* The CPU's one: too large for the stack of all functions together. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fl_question);
} host_question SEC(".maps");

static __always_inline struct fl_question *fl_question(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&host_question, &zero);
}

static __always_inline _Bool fl_is_icmp(__u8 proto)
{
	return proto == IPPROTO_ICMP || proto == IPPROTO_ICMPV6;
}

/* What the offsets above are below: 18 bytes of Ethernet, 60 of IPv4 or 64 of
 * IPv6, 28 of UDP and GUE, or less than 40 of another shim; and the inner headers on top, of which no one begins
 * behind FL_L4_MAX. */
#define FL_L3_MASK 127
#define FL_L4_MASK 2047

/* data + offset, for an offset of at most `mask`. In assembly, since the
 * compiler drops what it can prove and the verifier cannot. */
#define fl_at(data, offset, mask)                                 \
	({                                                        \
		__u64 _at = (offset);                             \
		asm volatile("%0 &= " FL_TEXT(mask) : "+r"(_at)); \
		(void *)(data) + _at;                             \
	})

#endif
