/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3, scheme stateless: every packet by the consistent hash, nothing
 * remembered. The baseline that breaks connections when the pool changes. */
#ifndef FAIRLEAD_LB_SCHEME_STATELESS_H
#define FAIRLEAD_LB_SCHEME_STATELESS_H

#include "flows.h"
#include "place.h"

static __always_inline int fl_stateless(const struct fl_vip *v, const struct fl_packet *p,
					struct fl_way *w, bool opening)
{
	w->hash = fl_flow_hash(v, p);
	if (unlikely(opening && !v->new_size))
		return FL_DROP_NO_SERVER;
	if (unlikely(!fl_way_to(w, v, FL_ROW_SLOT(fl_place(v, w->hash)))))
		return FL_DROP_NO_SERVER;
	if (p->kind == FL_KIND_FRAGMENT)
		return FL_FORWARD_FRAGMENT;
	return p->kind == FL_KIND_QUOTE ? FL_FORWARD_ICMP : FL_FORWARD_STATELESS;
}

#endif
