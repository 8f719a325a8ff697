/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a server does for each scheme: the one place that knows them all. How it is
 * done stands in a header a scheme. */
#ifndef FAIRLEAD_HOST_SCHEME_H
#define FAIRLEAD_HOST_SCHEME_H

#include "maps.h"

enum fl_duty {
	FL_DUTY_COOKIE = 1, /* stamps what it sends, and undoes that: scheme_cheetah.h */
	FL_DUTY_OWNER = 2,  /* asks who owns a connection, and passes it on: own.h */
	FL_DUTY_HOPS = 4,   /* in tunnels with hops, on to the next: scheme_beamer.h */
	FL_DUTY_MAC = 8,    /* in frames whose MAC is a chain: scheme_faild.h */
};

static __always_inline __u32 fl_duties(const struct fl_host_vip *v)
{
	switch (v->scheme) {
	case FL_SCHEME_CHEETAH:
	case FL_SCHEME_CHEETAH_STATEFUL:
		return FL_DUTY_COOKIE;
	case FL_SCHEME_BEAMER:
		return FL_DUTY_OWNER | FL_DUTY_HOPS;
	case FL_SCHEME_FAILD:
		return FL_DUTY_OWNER | FL_DUTY_MAC;
	}
	return 0;
}

static __always_inline _Bool fl_does(const struct fl_host_vip *v, enum fl_duty duty)
{
	return fl_duties(v) & duty;
}

#endif
