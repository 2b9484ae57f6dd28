/* SPDX-License-Identifier: MIT */
/*
 * For kernel sources in user space: limits on how a thread finds memory.  There is no I/O to avoid and there
 * are no reserves, so the two calls of a pair change nothing.
 */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_SCHED_MM_H
#define CPUSLAB_LINUX_SCHED_MM_H

#include <linux/gfp.h>
#include <linux/sched.h>

#define CPUSLAB_MEMALLOC(kind)                                                                               \
	static inline unsigned int memalloc_##kind##_save(void)                                              \
	{                                                                                                    \
		return 0;                                                                                    \
	}                                                                                                    \
	static inline void memalloc_##kind##_restore(unsigned int saved)                                     \
	{                                                                                                    \
		(void)saved;                                                                                 \
	}
CPUSLAB_MEMALLOC(noio)
CPUSLAB_MEMALLOC(nofs)
CPUSLAB_MEMALLOC(noreclaim)
CPUSLAB_MEMALLOC(pin)

static inline gfp_t current_gfp_context(gfp_t flags)
{
	return flags;
}

/* Marks a place that may allocate, which the kernel checks. */
static inline void might_alloc(gfp_t flags)
{
	(void)flags;
}

#endif
