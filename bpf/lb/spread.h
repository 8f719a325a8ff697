/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What spreads a tunnel's packets over the fabric: the outer source port of gue
 * and IPv6's flow label. By the connection's hash, or, where the line is steered,
 * as its row of `steers` says (docs/steering.md).
 *
 * With `steering` 0, the usual case, the verifier takes all about rows out of
 * the program. */
#ifndef FAIRLEAD_LB_SPREAD_H
#define FAIRLEAD_LB_SPREAD_H

#include "way.h"

struct fl_spread {
	__u32 label; /* 20 bits */
	__u16 sport; /* of gue */
};

/* The connection's entry in the row of its line; 0: none. */
static __always_inline __u64 fl_steer(const struct fl_way *w)
{
	__u32 index = w->index;
	struct fl_steer *row;

	if (!(w->form & FL_FORM_STEERED))
		return 0;
	row = bpf_map_lookup_elem(&steers, &index);
	return row ? *(volatile __u64 *)&row->entry[FL_STEER_INDEX(w->hash)] : 0;
}

static __always_inline void fl_spread(struct fl_spread *s, const struct fl_way *w, bool gue)
{
	__u64 entry;

	s->label = w->hash >> 44;
	s->sport = FL_TUNNEL_PORTS + (w->hash >> 50);
	if (!gue || !steering)
		return;
	entry = fl_steer(w);
	if (entry) {
		s->label = FL_STEER_LABEL(entry);
		s->sport = FL_STEER_PORT(entry);
	}
}

#endif
