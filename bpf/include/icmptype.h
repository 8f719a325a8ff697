/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Types of ICMP and ICMPv6, and which of them a balancer forwards: errors, and
 * nothing else. A server takes no other out of a tunnel, but echo. */
#ifndef FAIRLEAD_ICMPTYPE_H
#define FAIRLEAD_ICMPTYPE_H

#include <linux/types.h>

/* linux/icmp.h pulls in the C library's headers; these are all we need. */
#define FL_ICMP_ECHO_REPLY 0
#define FL_ICMP_UNREACHABLE 3
#define FL_ICMP_FRAG_NEEDED 4 /* a code of 3 */
#define FL_ICMP_ECHO 8
#define FL_ICMP_TIME_EXCEEDED 11
#define FL_ICMP_PARAMETER 12
#define FL_ICMP6_UNREACHABLE 1
#define FL_ICMP6_TOO_BIG 2
#define FL_ICMP6_PARAMETER 4
#define FL_ICMP6_ECHO 128
#define FL_ICMP6_ECHO_REPLY 129

static __always_inline _Bool fl_icmp_is_error(__u8 family, __u8 type)
{
	if (family == 4)
		return type == FL_ICMP_UNREACHABLE || type == FL_ICMP_TIME_EXCEEDED ||
		       type == FL_ICMP_PARAMETER;
	return type >= FL_ICMP6_UNREACHABLE && type <= FL_ICMP6_PARAMETER;
}

static __always_inline _Bool fl_icmp_is_echo(__u8 family, __u8 type)
{
	if (family == 4)
		return type == FL_ICMP_ECHO || type == FL_ICMP_ECHO_REPLY;
	return type == FL_ICMP6_ECHO || type == FL_ICMP6_ECHO_REPLY;
}

#endif
