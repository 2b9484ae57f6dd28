/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: powers of two. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_LOG2_H
#define CPUSLAB_LINUX_LOG2_H

#include <linux/bitops.h>
#include <linux/types.h>

static inline bool is_power_of_2(unsigned long n)
{
	return n && !(n & (n - 1));
}

/* The exponent of the largest power of two <= n; constant for a constant.  Not for 0. */
#define ilog2(n) (63 - __builtin_clzll(n))

static inline int cpuslab_order_base_2(unsigned long n)
{
	return n > 1 ? fls64(n - 1) : 0;
}

/* The exponent of the smallest power of two >= n; 0 for 0.  These, too, are constant for a constant. */
#define order_base_2(n)                                                                                      \
	(__builtin_constant_p(n) ? ((n) > 1 ? ilog2((unsigned long)(n)-1) + 1 : 0) : cpuslab_order_base_2(n))

/* Not for 0. */
#define roundup_pow_of_two(n)   (1ul << order_base_2(n))
#define rounddown_pow_of_two(n) (1ul << ilog2(n))

#endif
