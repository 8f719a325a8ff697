/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Scheme faild: no balancer and no tunnel, but a switch whose neighbour entries
 * name servers by MAC addresses that no network card has (Faild, NSDI'18,
 * "failover:original", with four servers of ten bits in place of two of eight):
 *
 *   octet 0      FL_FAILD_MAC, _COPY or _BACK
 *   octets 1-5   four numbers of ten bits: current server, then the previous
 *                ones, newest first; a number is a slot + 1, 0 is none
 *
 * A server takes frames whose first number is its own; the rest is the chain. */
#ifndef FAIRLEAD_HOST_FAILD_H
#define FAIRLEAD_HOST_FAILD_H

#include "packet.h"

static __always_inline _Bool fl_faild_kind(__u8 octet)
{
	return octet == FL_FAILD_MAC || octet == FL_FAILD_MAC_COPY || octet == FL_FAILD_MAC_BACK;
}

/* The four numbers as 40 bits, the current server's on top. */
static __always_inline __u64 fl_faild_numbers(const __u8 *mac)
{
	return (__u64)mac[1] << 32 | (__u64)mac[2] << 24 | (__u64)mac[3] << 16 |
	       (__u64)mac[4] << 8 | mac[5];
}

/* tc ingress: the stack takes no frame that is addressed to another card. This
 * says that those of our VIPs are ours; host_in has dropped what is another
 * server's. */
static __always_inline void fl_accept(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct fl_host_control *c;
	struct fl_host_vip *v;
	struct fl_cursor cur;
	struct fl_packet p;
	int malformed;

	if (data + ETH_HLEN > end || !fl_faild_kind(*(__u8 *)data))
		return;
	c = fl_host_settings();
	if (!c)
		return;
	cur.pos = data + ETH_HLEN;
	cur.end = end;
	if (skb->protocol == FL_BE16(ETH_P_IP))
		malformed = fl_parse_ip4(&cur, &p);
	else if (skb->protocol == FL_BE16(ETH_P_IPV6))
		malformed = fl_parse_ip6(&cur, &p);
	else
		return;
	if (malformed)
		return;
	v = fl_host_vip_find(c, p.dst, p.dport, p.proto);
	if (v && v->scheme == FL_SCHEME_FAILD)
		bpf_skb_change_type(skb, 0); /* PACKET_HOST */
}

#endif
