// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Stands in for a balancer in the agent's tests: on a client's way out, puts
 * one fixed tunnel header before everything that goes to the VIP. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define HEADER_MAX 60

const volatile __u8 vip[16];        /* IPv4 in the first four bytes */
const volatile __u32 inner_family;  /* 4 or 6 */
const volatile __u32 outer_family;
const volatile __u32 udp_at;        /* offset of a UDP header within header; 0: none */
const volatile __u32 header_len;    /* 0: no tunnel */
const volatile __u8 header[HEADER_MAX]; /* lengths 0, checksum right for that */

SEC("tc")
int encap(struct __sk_buff *skb)
{
	__u8 dst[16] = {}, bytes[HEADER_MAX];
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	__u16 type = bpf_htons(outer_family == 4 ? ETH_P_IP : ETH_P_IPV6), length;

	if (!header_len || skb->protocol != bpf_htons(inner_family == 4 ? ETH_P_IP : ETH_P_IPV6))
		return TC_ACT_UNSPEC;
	if (bpf_skb_load_bytes(skb, ETH_HLEN + (inner_family == 4 ? 16 : 24), dst,
			       inner_family == 4 ? 4 : 16))
		return TC_ACT_UNSPEC;
	for (int i = 0; i < 16; i++)
		if (dst[i] != vip[i])
			return TC_ACT_UNSPEC;
	for (int i = 0; i < HEADER_MAX; i++)
		bytes[i] = header[i];
	flags |= outer_family == 4 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV6;
	if (udp_at)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	if (bpf_skb_adjust_room(skb, header_len, BPF_ADJ_ROOM_MAC, flags))
		return TC_ACT_SHOT;
	if (header_len > HEADER_MAX || bpf_skb_store_bytes(skb, ETH_HLEN, bytes, header_len, 0))
		return TC_ACT_SHOT;
	bpf_skb_store_bytes(skb, 12, &type, 2, 0);
	if (outer_family == 4) {
		length = bpf_htons(skb->len - ETH_HLEN);
		bpf_l3_csum_replace(skb, ETH_HLEN + 10, 0, length, 2);
		bpf_skb_store_bytes(skb, ETH_HLEN + 2, &length, 2, 0);
	} else {
		length = bpf_htons(skb->len - ETH_HLEN - 40);
		bpf_skb_store_bytes(skb, ETH_HLEN + 4, &length, 2, 0);
	}
	if (udp_at) {
		length = bpf_htons(skb->len - ETH_HLEN - udp_at);
		bpf_skb_store_bytes(skb, ETH_HLEN + udp_at + 4, &length, 2, 0);
	}
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
