/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: bits of numbers. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_BITOPS_H
#define CPUSLAB_LINUX_BITOPS_H

#include <linux/types.h>
#include <strings.h>

#define BIT(n)              (1ul << (n))
#define BIT_ULL(n)          (1ull << (n))
#define BIT_MASK(n)         (1ul << ((n) % BITS_PER_LONG))
#define BIT_WORD(n)         ((n) / BITS_PER_LONG)
#define BITS_PER_TYPE(type) (sizeof(type) * BITS_PER_BYTE)

/* Counts from 1 for the lowest bit; returns 0 for 0. */
static inline int fls(unsigned int x)
{
	return x ? 32 - __builtin_clz(x) : 0;
}

static inline int fls64(u64 x)
{
	return x ? 64 - __builtin_clzll(x) : 0;
}

/* Counts from 0; undefined for 0. */
static inline unsigned long __fls(unsigned long x)
{
	return (unsigned long)(BITS_PER_LONG - 1 - __builtin_clzl(x));
}

static inline unsigned long __ffs(unsigned long x)
{
	return (unsigned long)__builtin_ctzl(x);
}

/* Finds the lowest clear bit; there must be one. */
static inline unsigned long ffz(unsigned long x)
{
	return __ffs(~x);
}

static inline unsigned int hweight32(u32 x)
{
	return (unsigned int)__builtin_popcount(x);
}

static inline unsigned int hweight64(u64 x)
{
	return (unsigned int)__builtin_popcountll(x);
}

static inline unsigned long hweight_long(unsigned long x)
{
	return (unsigned long)__builtin_popcountl(x);
}

#endif
