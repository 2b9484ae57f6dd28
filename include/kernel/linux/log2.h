/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: powers of two. */
#ifndef CPUSLAB_LINUX_LOG2_H
#define CPUSLAB_LINUX_LOG2_H

#include <linux/types.h>

static inline bool is_power_of_2(unsigned long n)
{
	return n && !(n & (n - 1));
}

#endif
