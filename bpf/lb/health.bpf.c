// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Health checks go the way of real packets to one server, whatever this
 * machine's routes and addresses say about the VIP: the daemon connects to a
 * stand-in for it (stand_in4, stand_in6), which is routed to the loopback alone, with
 * the mark 0xFA100000 | server line.
 *
 *   socket ─▶ lo, tc egress: `health`            interface, tc ingress: `health_back` ─▶ lo ─▶ socket
 *             stand-in ▷ VIP,                     answer of a VIP that is checked, to
 *             tunnel of the line ─▶ server ─────▶ a check's socket? VIP ▷ stand-in
 *                                 (direct server return)
 *
 * `health` drops what it cannot send, so that the check runs into its time
 * limit. `health_back` drops answers that come when their check has ended: the
 * stack would send an RST by its own route, to be taken for a client's. What does
 * not answer a check is let alone: this machine may be the way of others to the
 * VIP, masqueraded by its address, and tc sees their answers before NAT does.
 */
#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "csum.h"
#include "lines.h"
#include "shim.h"

#define FL_MARK 0xFA1
#define FL_MARK_BITS 20 /* of the server line */
/* TC_ACT_UNSPEC is TCX_NEXT by its name before tcx, whose headers Debian 12
 * does not have: the next program decides. */

/* The VIP that checks of a server line are for; IPv4 as ::ffff:a.b.c.d. Sized
 * by the daemon. */
struct fl_check_addr {
	__u64 addr[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct fl_check_addr);
} check_lines SEC(".maps");

/* A check that is, or was: its connection, its first sequence number and when that
 * was sent. Sized by the daemon. */
struct fl_check_pair {
	struct fl_check_addr vip, own;
	__be16 vip_port, own_port;
	__u32 zero;
};

struct fl_check_sent {
	__u32 seq, at;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct fl_check_pair);
	__type(value, struct fl_check_sent);
} check_pairs SEC(".maps");

/* The stand-ins of both families, set before load. */
const volatile struct fl_check_addr stand_in4, stand_in6;

/* bpf_l4_csum_replace: a whole packet's sum does not change with the addresses of
 * IPv6. Kernels before 6.16 do not know it, and get that wrong. */
#define FL_BPF_F_IPV6 (1ull << 7)
#define FL_LOOPBACK 1 /* its index, in every network namespace */
#define FL_TCP_LISTEN 10
#define FL_CHECK_SENDS 4096 /* bytes: a check's request */
/* About seconds. A server that does not hear from its client gives up within so
 * many: five more SYN-ACKs. */
#define FL_CHECK_NOW() ((__u32)(bpf_ktime_get_ns() >> 30))
#define FL_CHECK_LATE 64

/* The entry of a steered line's row, so that a check goes the way of connections:
 * a link that those have left takes no server down. */
static __always_inline __u64 fl_health_steer(__u32 index, __u8 flags, __u64 hash)
{
	struct fl_steer *row;

	if (!steering || !(flags & FL_LINE_STEERED))
		return 0;
	row = bpf_map_lookup_elem(&steers, &index);
	return row ? *(volatile __u64 *)&row->entry[FL_STEER_INDEX(hash << 32)] : 0;
}

/* Writes what the forwarding has behind the outer IP header to h, and returns how
 * much that is.
 * UDP checksums are zero, over IPv6 too (RFC 6935), whatever gue6_checksum
 * says: the inner checksum may still be unfinished here, to be
 * computed by the device, so that no sum over it would hold. */
static __always_inline __u32 fl_health_own(void *h, __u8 forwarding, __u16 sport, __u32 inner_len,
					   __u8 inner)
{
	struct fl_shim shim = fl_shim_of(forwarding, inner, false);

	if (!shim.bytes)
		return 0;
	fl_shim_write(h, &shim, sport, inner_len, 0);
	return FL_UDP_BYTES + shim.bytes;
}

/* Puts the outer header in front; 0 or negative. */
static __always_inline int fl_health_encapsulate(struct __sk_buff *skb, const struct fl_line *line,
						 __u32 index, __u8 forwarding, __u8 line_flags)
{
	__u32 hash = bpf_get_hash_recalc(skb), inner_len = skb->len - ETH_HLEN;
	__u64 steer = fl_health_steer(index, line_flags, hash);
	bool six = line_flags & FL_LINE_IPV6;
	__u8 inner = skb->protocol == bpf_htons(ETH_P_IPV6) ? IPPROTO_IPV6 : IPPROTO_IPIP;
	__u16 sport = steer ? FL_STEER_PORT(steer) : FL_TUNNEL_PORTS + (hash >> 18);
	__u8 own[FL_UDP_BYTES + FL_SHIM_BYTES] __attribute__((aligned(8)));
	__u32 l4 = fl_health_own(own, forwarding, sport, inner_len, inner);
	__u32 l3 = six ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	__u64 flags = six ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV4;

	/* Or the compiler asks for the forwarding in its place, of which the verifier
	 * does not know that it says how long this is. */
	asm volatile("" : "+r"(l4));
	if (l4)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	if (bpf_skb_adjust_room(skb, l3 + l4, BPF_ADJ_ROOM_MAC, flags))
		return -1;
	if (six) {
		struct ipv6hdr ip = {
			.payload_len = bpf_htons(inner_len + l4),
			.nexthdr = l4 ? IPPROTO_UDP : inner,
			.hop_limit = FL_OUTER_TTL,
		};
		__u32 first = bpf_htonl(6u << 28 | FL_STEER_LABEL(steer));
		__u64 saddr[2] = {
			source6[0] | (((__u64)hash << 32 | hash) & source6_mask[0]),
			source6[1] | (((__u64)hash << 32 | hash) & source6_mask[1]),
		};

		__builtin_memcpy(&ip, &first, 4);
		__builtin_memcpy(&ip.saddr, saddr, 16);
		__builtin_memcpy(&ip.daddr, line->addr, 16);
		if (bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), 0))
			return -1;
	} else {
		struct iphdr ip = {
			.version = 4,
			.ihl = 5,
			.tot_len = bpf_htons(inner_len + l3 + l4),
			.frag_off = bpf_htons(0x4000),
			.ttl = FL_OUTER_TTL,
			.protocol = l4 ? IPPROTO_UDP : inner,
			.saddr = source4 | (hash & source4_mask),
			.daddr = line->addr[1] >> 32,
		};
		__u64 sum = 0;

		for (int i = 0; i < 5; i++)
			sum += ((__u32 *)&ip)[i];
		ip.check = fl_csum_finish(sum);
		if (bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), 0))
			return -1;
	}
	return l4 ? bpf_skb_store_bytes(skb, ETH_HLEN + l3, own, l4, 0) : 0;
}

static __always_inline struct fl_check_addr fl_check_mapped(__be32 addr)
{
	return (struct fl_check_addr){ { 0, (__u64)addr << 32 | bpf_htonl(0xffff) } };
}

/* Addresses and header of a TCP packet without extension headers or options of
 * IP, which sockets do not send and servers' stacks neither. */
struct fl_check_packet {
	struct fl_check_addr from, to;
	struct tcphdr tcp;
	bool six;
};

static __always_inline bool fl_check_parse(struct __sk_buff *skb, struct fl_check_packet *p)
{
	struct ipv6hdr six;
	struct iphdr four;
	__u32 l4;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &four, sizeof(four)) || four.ihl != 5 ||
		    four.frag_off & bpf_htons(0x3fff) || four.protocol != IPPROTO_TCP)
			return false;
		p->from = fl_check_mapped(four.saddr);
		p->to = fl_check_mapped(four.daddr);
		p->six = false;
		l4 = ETH_HLEN + sizeof(four);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &six, sizeof(six)) ||
		    six.nexthdr != IPPROTO_TCP)
			return false;
		__builtin_memcpy(&p->from, &six.saddr, 16);
		__builtin_memcpy(&p->to, &six.daddr, 16);
		p->six = true;
		l4 = ETH_HLEN + sizeof(six);
	} else {
		return false;
	}
	return !bpf_skb_load_bytes(skb, l4, &p->tcp, sizeof(p->tcp));
}

static __always_inline struct fl_check_addr fl_check_stand_in(bool six)
{
	return six ? stand_in6 : stand_in4;
}

static __always_inline bool fl_check_equal(const struct fl_check_addr *a,
					   const struct fl_check_addr *b)
{
	return a->addr[0] == b->addr[0] && a->addr[1] == b->addr[1];
}

/* Writes one of the packet's addresses, the source or the destination, and what
 * its checksums make of it; 0 or negative. */
static __always_inline long fl_check_rewrite(struct __sk_buff *skb, bool six, bool source,
					     struct fl_check_addr *from, struct fl_check_addr *to)
{
	__u32 at = ETH_HLEN, l4;
	__s64 sum;

	if (!six) {
		__be32 was = from->addr[1] >> 32, is = to->addr[1] >> 32;

		at += source ? offsetof(struct iphdr, saddr) : offsetof(struct iphdr, daddr);
		l4 = ETH_HLEN + sizeof(struct iphdr) + offsetof(struct tcphdr, check);
		if (bpf_l4_csum_replace(skb, l4, was, is, BPF_F_PSEUDO_HDR | sizeof(is)) ||
		    bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), was, is,
					sizeof(is)))
			return -1;
		return bpf_skb_store_bytes(skb, at, &is, sizeof(is), 0);
	}
	at += source ? offsetof(struct ipv6hdr, saddr) : offsetof(struct ipv6hdr, daddr);
	l4 = ETH_HLEN + sizeof(struct ipv6hdr) + offsetof(struct tcphdr, check);
	sum = bpf_csum_diff((__be32 *)from, sizeof(*from), (__be32 *)to, sizeof(*to), 0);
	if (bpf_l4_csum_replace(skb, l4, 0, sum, BPF_F_PSEUDO_HDR | FL_BPF_F_IPV6) &&
	    bpf_l4_csum_replace(skb, l4, 0, sum, BPF_F_PSEUDO_HDR))
		return -1;
	return bpf_skb_store_bytes(skb, at, to, sizeof(*to), 0);
}

/* Addresses a check's packet to the VIP of its line; 0 or negative. */
static __always_inline long fl_check_address(struct __sk_buff *skb, __u32 index)
{
	struct fl_check_addr *vip = bpf_map_lookup_elem(&check_lines, &index), stand_in;
	struct fl_check_pair pair;
	struct fl_check_packet p;
	struct fl_check_sent sent;

	if (!vip || !fl_check_parse(skb, &p))
		return -1;
	stand_in = fl_check_stand_in(p.six);
	if (!fl_check_equal(&p.to, &stand_in))
		return -1;
	pair = (struct fl_check_pair){ *vip, p.from, p.tcp.dest, p.tcp.source, 0 };
	sent = (struct fl_check_sent){ bpf_ntohl(p.tcp.seq), FL_CHECK_NOW() };
	if ((p.tcp.syn || !bpf_map_lookup_elem(&check_pairs, &pair)) &&
	    bpf_map_update_elem(&check_pairs, &pair, &sent, BPF_ANY))
		return -1;
	return fl_check_rewrite(skb, p.six, false, &p.to, &pair.vip);
}

SEC("tcx/egress")
int health(struct __sk_buff *skb)
{
	__u32 index = skb->mark & ((1 << FL_MARK_BITS) - 1);
	struct fl_line *line;
	__u8 forwarding, flags;
	__u64 mac_dst, mac_src;
	__be16 type;
	__u8 eth[12];

	if (skb->mark >> FL_MARK_BITS != FL_MARK)
		return TC_ACT_UNSPEC;
	line = bpf_map_lookup_elem(&lines, &index);
	if (!line)
		return TC_ACT_SHOT;
	mac_dst = *(volatile __u64 *)&line->mac_dst;
	mac_src = *(volatile __u64 *)&line->mac_src;
	forwarding = FL_WORD_FORWARDING(mac_dst);
	flags = FL_WORD_FLAGS(mac_dst);
	if (forwarding == FL_FWD_NONE || flags & FL_LINE_UNRESOLVED)
		return TC_ACT_SHOT;
	if (fl_check_address(skb, index))
		return TC_ACT_SHOT;
	if (!skb->gso_size && skb->len - ETH_HLEN > line->mtu)
		return TC_ACT_SHOT;
	if (forwarding != FL_FWD_L2 && fl_health_encapsulate(skb, line, index, forwarding, flags))
		return TC_ACT_SHOT;
	__builtin_memcpy(eth, &mac_dst, 6);
	__builtin_memcpy(eth + 6, &mac_src, 6);
	if (bpf_skb_store_bytes(skb, 0, eth, sizeof(eth), 0))
		return TC_ACT_SHOT;
	if (forwarding != FL_FWD_L2) {
		type = flags & FL_LINE_IPV6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
		if (bpf_skb_store_bytes(skb, 2 * ETH_ALEN, &type, sizeof(type), 0))
			return TC_ACT_SHOT;
	}
	if (mac_src >> 48 && bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), mac_src >> 48))
		return TC_ACT_SHOT;
	/* Else this program would take it again on the next interface. */
	skb->mark = 0;
	return bpf_redirect(line->ifindex, 0);
}

/* The state of the socket of this namespace that a packet from `from` is for, 0:
 * there is none. */
static __always_inline __u32 fl_check_socket(struct __sk_buff *skb, const struct fl_check_packet *p,
					     const struct fl_check_addr *from)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *sk;
	__u32 size, state;

	if (p->six) {
		__builtin_memcpy(t.ipv6.saddr, from, 16);
		__builtin_memcpy(t.ipv6.daddr, &p->to, 16);
		t.ipv6.sport = p->tcp.source;
		t.ipv6.dport = p->tcp.dest;
		size = sizeof(t.ipv6);
	} else {
		t.ipv4.saddr = from->addr[1] >> 32;
		t.ipv4.daddr = p->to.addr[1] >> 32;
		t.ipv4.sport = p->tcp.source;
		t.ipv4.dport = p->tcp.dest;
		size = sizeof(t.ipv4);
	}
	sk = bpf_skc_lookup_tcp(skb, &t, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	state = sk->state;
	bpf_sk_release(sk);
	return state;
}

SEC("tcx/ingress")
int health_back(struct __sk_buff *skb)
{
	struct fl_check_addr stand_in;
	struct fl_check_pair pair;
	struct fl_check_packet p;
	__u8 eth[12] = {}; /* the loopback's own address */
	struct fl_check_sent *sent;
	__u32 state;

	if (!fl_check_parse(skb, &p))
		return TC_ACT_UNSPEC;
	pair = (struct fl_check_pair){ p.from, p.to, p.tcp.source, p.tcp.dest, 0 };
	sent = bpf_map_lookup_elem(&check_pairs, &pair);
	if (!sent)
		return TC_ACT_UNSPEC;
	stand_in = fl_check_stand_in(p.six);
	state = fl_check_socket(skb, &p, &stand_in);
	if (!state || state == FL_TCP_LISTEN) {
		/* Others' connections have a check's ports now and then, but not its
		 * sequence numbers; this machine's own may come to have those, too. */
		if (!p.tcp.ack || bpf_ntohl(p.tcp.ack_seq) - sent->seq > FL_CHECK_SENDS ||
		    FL_CHECK_NOW() - sent->at > FL_CHECK_LATE)
			return TC_ACT_UNSPEC;
		return fl_check_socket(skb, &p, &p.from) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
	}
	/* By the loopback: there the route to the stand-in leads, which reverse path
	 * filters ask for. */
	if ((skb->vlan_present && bpf_skb_vlan_pop(skb)) ||
	    fl_check_rewrite(skb, p.six, true, &p.from, &stand_in) ||
	    bpf_skb_store_bytes(skb, 0, eth, sizeof(eth), 0))
		return TC_ACT_SHOT;
	return bpf_redirect(FL_LOOPBACK, BPF_F_INGRESS);
}

char _license[] SEC("license") = "Dual BSD/GPL";
