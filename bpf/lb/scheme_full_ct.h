/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3, scheme full-ct: what others do. The hash says where new connections
 * go, and each is remembered. */
#ifndef FAIRLEAD_LB_SCHEME_FULL_CT_H
#define FAIRLEAD_LB_SCHEME_FULL_CT_H

#include "way.h"

static __always_inline int fl_full_ct(const struct fl_lb_packet *p, struct fl_way *w)
{
	w->rules = (p->opens ? FL_FORWARD_NEW : FL_KNOWN) | FL_RULE_TRACKS | FL_RULE_ALL |
		   FL_RULE_FRESH;
	return FL_CONTINUE;
}

#endif
