/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: errors encoded in pointers. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_ERR_H
#define CPUSLAB_LINUX_ERR_H

#include <errno.h>
#include <linux/compiler.h>

#define MAX_ERRNO 4095

#define IS_ERR_VALUE(x) unlikely((unsigned long)(void *)(x) >= (unsigned long)-MAX_ERRNO)

static inline void *ERR_PTR(long error)
{
	return (void *)error;
}

static inline long PTR_ERR(const void *pointer)
{
	return (long)pointer;
}

static inline bool IS_ERR(const void *pointer)
{
	return (unsigned long)pointer >= (unsigned long)-MAX_ERRNO;
}

static inline bool IS_ERR_OR_NULL(const void *pointer)
{
	return !pointer || IS_ERR(pointer);
}

/* Returns one pointer's error as a pointer of another type. */
static inline void *ERR_CAST(const void *pointer)
{
	return (void *)(uintptr_t)pointer;
}

static inline int PTR_ERR_OR_ZERO(const void *pointer)
{
	return IS_ERR(pointer) ? (int)PTR_ERR(pointer) : 0;
}

#endif
