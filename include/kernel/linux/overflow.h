/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: sizes that saturate, so that an allocation of them fails. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_OVERFLOW_H
#define CPUSLAB_LINUX_OVERFLOW_H

#include <linux/types.h>
#include <stddef.h>

#define check_add_overflow(a, b, result) __builtin_add_overflow(a, b, result)
#define check_sub_overflow(a, b, result) __builtin_sub_overflow(a, b, result)
#define check_mul_overflow(a, b, result) __builtin_mul_overflow(a, b, result)

static inline size_t size_mul(size_t a, size_t b)
{
	size_t bytes;

	return __builtin_mul_overflow(a, b, &bytes) ? SIZE_MAX : bytes;
}

static inline size_t size_add(size_t a, size_t b)
{
	size_t bytes;

	return __builtin_add_overflow(a, b, &bytes) ? SIZE_MAX : bytes;
}

/* A size that has overflowed stays so. */
static inline size_t size_sub(size_t a, size_t b)
{
	return a == SIZE_MAX || b == SIZE_MAX || b > a ? SIZE_MAX : a - b;
}

#define array3_size(a, b, size) size_mul(size_mul(a, b), size)
#define array_size(count, size) size_mul(count, size)
/* The size of `count` elements of the last member alone, and of the struct with them. */
#define flex_array_size(pointer, member, count) size_mul(count, sizeof(*(pointer)->member))
#define struct_size(pointer, member, count)                                                                  \
	size_add(sizeof(*(pointer)), flex_array_size(pointer, member, count))
#define struct_size_t(type, member, count) struct_size((type *)NULL, member, count)

#endif
