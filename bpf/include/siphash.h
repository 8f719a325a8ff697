/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* SipHash-1-3 over a fixed number of 64-bit words: the form of Aumasson and
 * Bernstein's SipHash-c-d (c=1, d=3) without its last block, which only
 * encodes the length; the length here is fixed by the address family.
 * Go's twin is scheme/cheetah.sipWords; a test holds them together. */
#ifndef FAIRLEAD_SIPHASH_H
#define FAIRLEAD_SIPHASH_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define FL_ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))

struct fl_sip {
	__u64 v0, v1, v2, v3;
};

static __always_inline void fl_sip_round(struct fl_sip *s)
{
	s->v0 += s->v1;
	s->v1 = FL_ROTL(s->v1, 13);
	s->v1 ^= s->v0;
	s->v0 = FL_ROTL(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = FL_ROTL(s->v3, 16);
	s->v3 ^= s->v2;
	s->v0 += s->v3;
	s->v3 = FL_ROTL(s->v3, 21);
	s->v3 ^= s->v0;
	s->v2 += s->v1;
	s->v1 = FL_ROTL(s->v1, 17);
	s->v1 ^= s->v2;
	s->v2 = FL_ROTL(s->v2, 32);
}

static __always_inline void fl_sip_init(struct fl_sip *s, const __u64 *key)
{
	s->v0 = key[0] ^ 0x736f6d6570736575ULL;
	s->v1 = key[1] ^ 0x646f72616e646f6dULL;
	s->v2 = key[0] ^ 0x6c7967656e657261ULL;
	s->v3 = key[1] ^ 0x7465646279746573ULL;
}

static __always_inline void fl_sip_word(struct fl_sip *s, __u64 word)
{
	s->v3 ^= word;
	fl_sip_round(s);
	s->v0 ^= word;
}

static __always_inline __u64 fl_sip_end(struct fl_sip *s)
{
	s->v2 ^= 0xff;
	fl_sip_round(s);
	fl_sip_round(s);
	fl_sip_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#endif
