/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: pages, and memory of any length. */
#ifndef CPUSLAB_LINUX_MM_H
#define CPUSLAB_LINUX_MM_H

#include <cpuslab/kmem.h>
#include <linux/gfp.h>

#define PAGE_ALIGN(address)     (((address) + PAGE_SIZE - 1) & PAGE_MASK)
#define offset_in_page(address) ((unsigned long)(address) & ~PAGE_MASK)

#endif
