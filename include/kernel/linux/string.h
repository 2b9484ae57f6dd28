/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: the C library's functions, and copies in allocated memory. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#include_next <linux/string.h>
#ifndef CPUSLAB_LINUX_STRING_H
#define CPUSLAB_LINUX_STRING_H

#include <cpuslab/kmem.h>
#include <errno.h>
#include <linux/stddef.h>
#include <string.h>
#include <sys/types.h>

/* The kernel does not copy strings of its own image; here every string is copied. */
static inline const char *kstrdup_const(const char *string, gfp_t flags)
{
	return kstrdup(string, flags);
}

static inline void kfree_const(const void *string)
{
	kfree(string);
}

/* Returns the first byte that differs from `value`; NULL if none does. */
static inline void *memchr_inv(const void *start, int value, size_t size)
{
	const unsigned char *bytes = (const unsigned char *)start;

	for (size_t i = 0; i < size; i++)
		if (bytes[i] != (unsigned char)value)
			return (void *)(uintptr_t)(bytes + i);
	return NULL;
}

/* Sets an object from a member on, or from the first byte after one. */
#define memset_startat(object, value, member)                                                                \
	memset((char *)(object) + offsetof(__typeof__(*(object)), member), value,                            \
	       sizeof(*(object)) - offsetof(__typeof__(*(object)), member))
#define memset_after(object, value, member)                                                                  \
	memset((char *)(object) + offsetofend(__typeof__(*(object)), member), value,                         \
	       sizeof(*(object)) - offsetofend(__typeof__(*(object)), member))

#undef strscpy
/* Copies what fits in `size` bytes with its terminator; returns its length, or -E2BIG if it was cut. */
static inline ssize_t strscpy(char *to, const char *from, size_t size)
{
	size_t length = strnlen(from, size);

	if (length < size) {
		memcpy(to, from, length + 1);
		return (ssize_t)length;
	}
	if (size) {
		memcpy(to, from, size - 1);
		to[size - 1] = '\0';
	}
	return -E2BIG;
}

/* Two arguments are enough if the first is an array. */
#ifdef __cplusplus
#define CPUSLAB_MUST_BE_ARRAY(array) 0
#else
#define CPUSLAB_IS_POINTER(array)    __builtin_types_compatible_p(__typeof__(array), __typeof__(&(array)[0]))
#define CPUSLAB_MUST_BE_ARRAY(array) (0 * sizeof(char[1 - 2 * CPUSLAB_IS_POINTER(array)]))
#endif
#define CPUSLAB_STRSCPY_OF_TWO(to, from)             (strscpy)(to, from, sizeof(to) + CPUSLAB_MUST_BE_ARRAY(to))
#define CPUSLAB_STRSCPY_CHOOSE(a, b, c, chosen, ...) chosen
#define strscpy(...)                                 CPUSLAB_STRSCPY_CHOOSE(__VA_ARGS__, (strscpy), CPUSLAB_STRSCPY_OF_TWO, )(__VA_ARGS__)

#endif
