/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stage 3, scheme stateless: each packet goes where the hash says that new
 * connections go, and nothing is remembered. */
#ifndef FAIRLEAD_LB_SCHEME_STATELESS_H
#define FAIRLEAD_LB_SCHEME_STATELESS_H

#include "way.h"

static __always_inline int fl_stateless(struct fl_way *w)
{
	w->rules = FL_FORWARD_STATELESS | FL_RULE_FRESH;
	return FL_CONTINUE;
}

#endif
