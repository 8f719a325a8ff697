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
#ifndef FAIRLEAD_HOST_SCHEME_FAILD_H
#define FAIRLEAD_HOST_SCHEME_FAILD_H

#include "maps.h"
#include "question.h"

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

/* The destination MAC as hops, which have no time and no generation: the switch
 * ends chains by itself. 0: the frame is another server's. */
static __always_inline _Bool fl_faild_read(struct fl_question *q, const __u8 *mac)
{
	__u64 numbers = fl_faild_numbers(mac);

	if (numbers >> 30 != (__u64)q->slot + 1)
		return 0;
	/* A number less one is a slot; 0, none, becomes FL_BUCKET_NONE. */
	q->hops.chain =
		fl_hops_chain((__u16)((numbers >> 20 & 1023) - 1),
			      (__u16)((numbers >> 10 & 1023) - 1), (__u16)((numbers & 1023) - 1));
	q->hops.when = 0;
	q->hops_place = FL_HOPS_IN_MAC;
	q->mac = mac[0];
	q->from = mac[0] == FL_FAILD_MAC ? FL_FROM_BALANCER : FL_FROM_SERVER;
	return 1;
}

/* Passes a frame on, by the way it came. A bridge between learns addresses from
 * what it forwards, so the source has to be this server's own. */
__noinline int fl_faild_pass_on(struct xdp_md *ctx, const struct fl_question *q)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 ifindex = ctx->ingress_ifindex;
	__u64 numbers, *source;
	__u8 *mac = data;

	if (!q || data + ETH_HLEN > end)
		return XDP_DROP;
	source = bpf_map_lookup_elem(&host_nics, &ifindex);
	if (!source) {
		fl_host_reason(FL_HOST_UNRESOLVED_PREVIOUS, q->bytes);
		return XDP_DROP;
	}
	numbers = ((__u64)q->next_slot + 1) << 30 |
		  (__u64)((fl_hops_previous(&q->hops, 0) + 1) & 1023) << 20 |
		  (__u64)((fl_hops_previous(&q->hops, 1) + 1) & 1023) << 10 |
		  (__u64)((fl_hops_previous(&q->hops, 2) + 1) & 1023);
	mac[0] = q->mac;
	mac[1] = numbers >> 32;
	*(__u32 *)(mac + 2) = bpf_htonl((__u32)numbers);
	*(__u32 *)(mac + 6) = *source;
	*(__u16 *)(mac + 10) = *source >> 32;
	fl_host_reason(FL_HOST_FORWARD_PREVIOUS, q->bytes);
	return XDP_TX;
}

/* ---- ICMP errors -------------------------------------------------------- */

/* A router's error comes by the router's own address, which the switch hashes
 * like a client's: to any server. The one that gets it has the agent ask all
 * others, under a bound for all and one for each sender. */
struct fl_ask_bound {
	__u32 last_ms;
	__u32 pad;
	__u64 tokens; /* thousandths */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fl_ask_bound);
} host_ask_bound SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__uint(key_size, 16);
	__type(value, struct fl_ask_bound);
} host_ask_sources SEC(".maps");

/* Takes a token, of which `rate` come a second and as many are kept. */
static __always_inline _Bool fl_ask_token(struct fl_ask_bound *b, __u32 rate, __u32 now)
{
	__u64 most = (__u64)rate * 1000, tokens;

	tokens = b->tokens + (__u64)(now - b->last_ms) * rate;
	b->last_ms = now;
	if (tokens > most)
		tokens = most;
	if (tokens < 1000) {
		b->tokens = tokens;
		return 0;
	}
	b->tokens = tokens - 1000;
	return 1;
}

/* sender: of the error, which may be forged; hence both bounds. The one of
 * senders is by IPv4 address or IPv6 prefix of 64 bits, of which everybody has
 * all addresses; CPUs share it without a lock: close enough. */
static __always_inline _Bool fl_ask_allowed(const __u64 *source, __u32 now)
{
	__u64 sender[2] = { source[0], fl_is_mapped(source) ? source[1] : 0 };
	struct fl_ask_bound *all, *one, new = {};
	__u32 zero = 0, rate = ask_rate / 8;

	if (!rate)
		rate = 1;
	one = bpf_map_lookup_elem(&host_ask_sources, sender);
	if (one) {
		if (!fl_ask_token(one, rate, now))
			return 0;
	} else {
		new.last_ms = now;
		new.tokens = (__u64)(rate - 1) * 1000;
		bpf_map_update_elem(&host_ask_sources, sender, &new, BPF_ANY);
	}
	all = bpf_map_lookup_elem(&host_ask_bound, &zero);
	return all && fl_ask_token(all, ask_rate, now);
}

/* Has the other servers asked about the error at q->l3. sender is its source
 * address. */
__noinline int fl_ask_others(struct xdp_md *ctx, const struct fl_question *q, __u32 now)
{
	struct fl_host_ask *ask;
	__u32 length;

	if (!q)
		return XDP_DROP;
	if (!fl_ask_allowed(q->source, now))
		goto limit;
	ask = bpf_ringbuf_reserve(&host_asks, sizeof(*ask), 0);
	if (!ask)
		goto limit;
	/* Here, or the verifier has forgotten its bounds. */
	length = q->bytes;
	if (length < 1 || length > FL_HOST_ASK_BYTES)
		length = FL_HOST_ASK_BYTES;
	ask->vip_id = q->vip_id;
	ask->ifindex = ctx->ingress_ifindex;
	ask->length = length;
	ask->family = fl_is_mapped(q->vip) ? 4 : 6;
	if (bpf_xdp_load_bytes(ctx, q->l3, ask->packet, length)) {
		bpf_ringbuf_discard(ask, 0);
		goto limit;
	}
	bpf_ringbuf_submit(ask, 0);
	fl_host_reason(FL_HOST_ASK_ICMP, q->bytes);
	return XDP_DROP;
limit:
	fl_host_reason(FL_HOST_DROP_ASK_LIMIT, q->bytes);
	return XDP_DROP;
}

/* ---- into the stack ------------------------------------------------------ */

/* tc ingress: the stack takes no frame that is addressed to another card. This
 * says that those of our VIPs are ours; host_in has dropped what is another
 * server's. */
static __always_inline void fl_accept(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct fl_host_control *c;
	struct fl_host_vip *v;
	struct fl_cursor cur;
	struct fl_host_packet p;
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
	if (v && fl_does(v, FL_DUTY_MAC))
		bpf_skb_change_type(skb, 0); /* PACKET_HOST */
}

#endif
