/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: the C library's, and the copies that are allocated. */
#ifndef CPUSLAB_LINUX_STRING_H
#define CPUSLAB_LINUX_STRING_H

#include <cpuslab/kmem.h>
#include <string.h>

/* The kernel does not copy what its own image holds; here each is a copy. */
static inline const char *kstrdup_const(const char *string, gfp_t flags)
{
	return kstrdup(string, flags);
}

static inline void kfree_const(const void *string)
{
	kfree(string);
}

#endif
