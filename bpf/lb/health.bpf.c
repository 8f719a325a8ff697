// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Health checks go the way of real packets: the daemon connects to the VIP
 * with the mark 0xFA1E0000 | server line, and this program, on tc egress,
 * sends the packet through that line's forwarding, whatever the routing table
 * says about the VIP. The answer comes straight back (direct server return).
 *
 *   marked? ─no─▶ next program
 *      │yes
 *   line names a server with a known next hop, and it fits? ─no─▶ drop: the
 *      │yes                                        check runs into its time limit
 *   outer header, MACs, tag ─▶ redirect to the line's interface
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "csum.h"
#include "fairlead.h"

#define FL_MARK 0xFA1E
/* TC_ACT_UNSPEC is TCX_NEXT by its name before tcx, whose headers Debian 12
 * does not have: the next program decides. */
#define FL_GUE_PORT 6080

/* Constants as in maps.h; the daemon sets both alike. */
const volatile __u32 source4;
const volatile __u32 source4_mask;
const volatile __u64 source6[2];
const volatile __u64 source6_mask[2];
const volatile __u32 steering;

/* The balancer's own maps; sized and shared by the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fl_line);
} lines SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct fl_steer);
} steers SEC(".maps");

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

struct fl_gue_header {
	struct udphdr udp;
	__u8 version; /* 0: data, no options */
	__u8 proto;
	__be16 flags;
} __attribute__((packed));

/* UDP checksums are zero, over IPv6 too (RFC 6935), whatever gue6_checksum
 * says: the inner checksum may still be unfinished here, to be
 * computed by the device, so that no sum over it would hold. */
static __always_inline void fl_health_gue(struct fl_gue_header *g, __u16 sport, __u32 inner_len,
					  __u8 inner)
{
	g->udp.source = bpf_htons(sport);
	g->udp.dest = bpf_htons(FL_GUE_PORT);
	g->udp.len = bpf_htons(inner_len + sizeof(*g));
	g->udp.check = 0;
	g->version = 0;
	g->proto = inner;
	g->flags = 0;
}

/* Puts the outer header in front; 0 or negative. */
static __always_inline int fl_health_encapsulate(struct __sk_buff *skb, const struct fl_line *line,
						 __u32 index, __u8 forwarding, __u8 line_flags)
{
	__u32 hash = bpf_get_hash_recalc(skb), inner_len = skb->len - ETH_HLEN;
	__u64 steer = fl_health_steer(index, line_flags, hash);
	bool gue = forwarding == FL_FWD_GUE, six = line_flags & FL_LINE_IPV6;
	__u8 inner = skb->protocol == bpf_htons(ETH_P_IPV6) ? IPPROTO_IPV6 : IPPROTO_IPIP;
	__u32 l4 = gue ? sizeof(struct fl_gue_header) : 0;
	__u32 l3 = six ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	__u64 flags = six ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV4;
	struct fl_gue_header g;

	if (gue)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	if (bpf_skb_adjust_room(skb, l3 + l4, BPF_ADJ_ROOM_MAC, flags))
		return -1;
	if (six) {
		struct ipv6hdr ip = {
			.payload_len = bpf_htons(inner_len + l4),
			.nexthdr = gue ? IPPROTO_UDP : inner,
			.hop_limit = 64,
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
			.ttl = 64,
			.protocol = gue ? IPPROTO_UDP : inner,
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
	if (!gue)
		return 0;
	fl_health_gue(&g, steer ? FL_STEER_PORT(steer) : 49152 + (hash >> 18), inner_len, inner);
	return bpf_skb_store_bytes(skb, ETH_HLEN + l3, &g, sizeof(g), 0);
}

SEC("tcx/egress")
int health(struct __sk_buff *skb)
{
	__u32 index = skb->mark & 0xffff;
	struct fl_line *line;
	__u8 forwarding, flags;
	__u64 mac_dst, mac_src;
	__be16 type;
	__u8 eth[12];

	if (skb->mark >> 16 != FL_MARK)
		return TC_ACT_UNSPEC;
	line = bpf_map_lookup_elem(&lines, &index);
	if (!line)
		return TC_ACT_SHOT;
	mac_dst = *(volatile __u64 *)&line->mac_dst;
	mac_src = *(volatile __u64 *)&line->mac_src;
	forwarding = mac_dst >> 48;
	flags = mac_dst >> 56;
	if (forwarding == FL_FWD_NONE || flags & FL_LINE_UNRESOLVED)
		return TC_ACT_SHOT;
	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return TC_ACT_SHOT;
	/* The kernel's route to the VIP may have led over a VLAN device. */
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return TC_ACT_SHOT;
	if (!skb->gso_size && skb->len - ETH_HLEN > line->mtu)
		return TC_ACT_SHOT;
	if (forwarding != FL_FWD_L2 &&
	    fl_health_encapsulate(skb, line, index, forwarding, flags))
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

char _license[] SEC("license") = "Dual BSD/GPL";
