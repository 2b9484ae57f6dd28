/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: pages, and memory of any length. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_MM_H
#define CPUSLAB_LINUX_MM_H

#include <cpuslab/kmem.h>
#include <linux/gfp.h>
#include <linux/math.h>

#define PAGE_ALIGNED(address)   IS_ALIGNED((unsigned long)(address), PAGE_SIZE)
#define PAGE_ALIGN(address)     (((address) + PAGE_SIZE - 1) & PAGE_MASK)
#define offset_in_page(address) ((unsigned long)(address) & ~PAGE_MASK)

/* Describes an address, continuing the current line. */
static inline void mem_dump_obj(void *address)
{
	if (kmem_dump_obj(address))
		return;
	fprintf(stderr, !address                   ? " NULL pointer.\n"
			: address == ZERO_SIZE_PTR ? " zero-size pointer.\n"
						   : " non-slab memory.\n");
}

#endif
