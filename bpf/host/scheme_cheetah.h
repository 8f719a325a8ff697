/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Scheme cheetah at the server: which cookies are of this server's slot, and which
 * a connection gets. Where they travel is the carrier's. */
#ifndef FAIRLEAD_HOST_SCHEME_CHEETAH_H
#define FAIRLEAD_HOST_SCHEME_CHEETAH_H

#include "cookie.h"
#include "packet.h"

/* Hash of the connection under the key of an epoch's parity. */
static __always_inline __u64 fl_host_hash(const struct fl_host_vip *v, __u32 parity,
					  const __u64 *client, __u16 sport, __u16 dport)
{
	const __u64 *key = v->key[parity & 1];

	if (fl_is_mapped(client))
		return fl_hash4(key, client[1] >> 32, sport, dport);
	return fl_hash6(key, client[0], client[1], sport, dport);
}

/* What a connection is stamped with. */
struct fl_stamp {
	__u32 slot;
	__u32 epoch; /* parity */
	__u32 told;  /* of its value, beside the slot */
};

static __always_inline __u32 fl_host_seat_bits(const struct fl_host_vip *v)
{
	return FL_HOST_SEAT_BITS(v->generation);
}

/* Whether its cookies have more than the slot: of each connection somebody has to
 * know it. */
static __always_inline _Bool fl_host_told_vip(const struct fl_host_vip *v)
{
	return v->generation;
}

/* The bits of a value that are its slot's. */
static __always_inline __u32 fl_host_slot_mask(const struct fl_host_vip *v)
{
	__u32 below = fl_value_below(31 - v->shift, FL_HOST_TIER_BITS(v->generation));

	return below & ~0u << fl_host_seat_bits(v);
}

/* Notes what the connection's value has beside the slot. */
static __always_inline void fl_host_note(const struct fl_host_vip *v,
					 const struct fl_host_packet *p, __u32 told)
{
	struct fl_tuple t = {
		.addr = { p->src[0], p->src[1] },
		.sport = p->sport,
		.dport = p->dport,
		.vip_id = v->id,
	};

	bpf_map_update_elem(&host_told, &t, &told, BPF_ANY);
}

/* What was noted of the connection whose client is at `client`. */
static __always_inline __u32 fl_host_noted(const struct fl_host_vip *v, const __u64 *client,
					   __u16 sport, __u16 dport)
{
	struct fl_tuple t = {
		.addr = { client[0], client[1] },
		.sport = sport,
		.dport = dport,
		.vip_id = v->id,
	};
	__u32 *told;

	if (!fl_host_told_vip(v))
		return 0;
	told = bpf_map_lookup_elem(&host_told, &t);
	/* A client may have written it, where no balancer was. */
	return told && *told & FL_TOLD
		       ? *told & fl_value_below(31 - v->shift, 0) & ~fl_host_slot_mask(v)
		       : 0;
}

/* Whether what is opened from stamp_since on gets no cookie. */
static __always_inline _Bool fl_host_unstamps(const struct fl_host_vip *v)
{
	return v->stamp_epoch & FL_HOST_UNSTAMPS;
}

/* How a SYN-ACK sent at ms (CLOCK_MONOTONIC) is stamped; 0: not at all, since
 * this server had no slot then. See struct fl_host_vip. */
static __always_inline _Bool fl_stamp_at(const struct fl_host_vip *v, __u64 ms, struct fl_stamp *s)
{
	__u32 other = (v->stamp_epoch ^ 1) & 1;

	s->slot = v->slot;
	if (ms < v->slot_since) {
		if (v->old_slot == FL_NO_SLOT)
			return 0;
		s->slot = v->old_slot;
	}
	s->epoch = v->stamp_epoch & 1;
	if (fl_host_unstamps(v))
		return ms < v->stamp_since;
	if (ms < v->stamp_since && v->epochs >> other & 1)
		s->epoch = other;
	return 1;
}

/* In: whether the field is a cookie of this server's, and under which epoch; *hash is
 * the connection's under that, *told what the value has beside the slot. */
static __always_inline _Bool fl_cheetah_ours(const struct fl_host_vip *v,
					     const struct fl_host_packet *p, __u32 field,
					     __u32 *epoch, __u64 *hash, __u32 *told)
{
	__u32 value, slot, mask = fl_host_slot_mask(v);

	*epoch = fl_cookie_epoch(field, v->shift);
	*hash = fl_host_hash(v, *epoch, p->src, p->sport, p->dport);
	value = fl_cookie_value(*hash, field, v->shift);
	slot = fl_value_slot(value & mask, fl_host_seat_bits(v));
	*told = value & ~mask;
	return v->epochs >> *epoch & 1 && (slot == v->slot || slot == v->old_slot);
}

/* The field that has the stamp's slot, and what was told, for the client at `client`. */
static __always_inline __u32 fl_cheetah_field(const struct fl_host_vip *v, const struct fl_stamp *s,
					      const __u64 *client, __u16 sport, __u16 dport)
{
	__u64 hash = fl_host_hash(v, s->epoch, client, sport, dport);

	return fl_cookie_encode(hash, s->slot << fl_host_seat_bits(v) | s->told, s->epoch,
				v->shift);
}

/* A TIME_WAIT socket cannot say under which epoch its connection was stamped,
 * but its peer's packet does: noted for the answer that may come of it. */
static __always_inline void fl_remember_epoch(const struct fl_host_vip *v,
					      const struct fl_host_packet *p, __u32 epoch)
{
	struct fl_tuple t = {
		.addr = { p->src[0], p->src[1] },
		.sport = p->sport,
		.dport = p->dport,
		.vip_id = v->id,
	};
	__u8 parity = epoch;

	if (!bpf_map_update_elem(&old_epochs, &t, &parity, BPF_ANY))
		fl_host_reason(FL_HOST_IN_OLD_EPOCH, p->l3_len);
}

/* The parity that a TIME_WAIT connection was stamped under: what its client
 * showed last (fl_remember_epoch), else today's. 0: it was not stamped, as far as its
 * client has shown. */
static __always_inline _Bool fl_time_wait_stamp(const struct fl_host_vip *v,
						const struct fl_host_packet *p, struct fl_stamp *s)
{
	struct fl_tuple t = {
		.addr = { p->dst[0], p->dst[1] },
		.sport = p->dport,
		.dport = p->sport,
		.vip_id = v->id,
	};
	__u8 *parity;

	s->slot = v->slot;
	s->epoch = v->stamp_epoch & 1;
	if (v->epochs == 3 || fl_host_unstamps(v)) {
		parity = bpf_map_lookup_elem(&old_epochs, &t);
		if (parity)
			s->epoch = *parity & 1;
		else if (fl_host_unstamps(v))
			return 0;
	}
	return 1;
}

#endif
