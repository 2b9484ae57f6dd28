/* SPDX-License-Identifier: MIT */
/*
 * The kernel's allocation flags and pages (linux/gfp.h) in user space, for kernel sources; see kmem.h.
 *
 * Three of the flags have an effect:
 *
 *   __GFP_ZERO            the memory is all zero: for kmalloc and its like up to what ksize() says, for an
 *                         object of a cache up to the cache's size
 *   __GFP_DIRECT_RECLAIM  the call may wait.  Without it (GFP_NOWAIT, GFP_ATOMIC, 0) it waits for no other
 *                         thread: locks are tried, not waited for, and NULL can mean that one was taken
 *                         (cpuslab_aligned_alloc_nowait in cpuslab.h says what can still take time)
 *   __GFP_NOFAIL          with __GFP_DIRECT_RECLAIM: the call tries until there is memory, unless it is for
 *                         more bytes than the machine has or the process may have (RLIMIT_AS)
 *
 * All others are accepted and ignored: there are no zones, no I/O to avoid, no emergency reserves, and the
 * system chooses the node.
 */
#ifndef CPUSLAB_GFP_H
#define CPUSLAB_GFP_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "cpuslab/cpuslab.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef unsigned int gfp_t;

#define __GFP_DMA            0x01u
#define __GFP_HIGHMEM        0x02u
#define __GFP_DMA32          0x04u
#define __GFP_MOVABLE        0x08u
#define __GFP_RECLAIMABLE    0x10u
#define __GFP_HIGH           0x20u
#define __GFP_IO             0x40u
#define __GFP_FS             0x80u
#define __GFP_ZERO           0x100u
#define __GFP_DIRECT_RECLAIM 0x400u
#define __GFP_KSWAPD_RECLAIM 0x800u
#define __GFP_WRITE          0x1000u
#define __GFP_NOWARN         0x2000u
#define __GFP_RETRY_MAYFAIL  0x4000u
#define __GFP_NOFAIL         0x8000u
#define __GFP_NORETRY        0x10000u
#define __GFP_MEMALLOC       0x20000u
#define __GFP_COMP           0x40000u
#define __GFP_NOMEMALLOC     0x80000u
#define __GFP_HARDWALL       0x100000u
#define __GFP_THISNODE       0x200000u
#define __GFP_ACCOUNT        0x400000u
#define __GFP_NOLOCKDEP      0x800000u
#define __GFP_BITS_SHIFT     24 /* from here on up flags are free */
#define __GFP_BITS_MASK      ((gfp_t)((1 << __GFP_BITS_SHIFT) - 1))
#define __GFP_RECLAIM        (__GFP_DIRECT_RECLAIM | __GFP_KSWAPD_RECLAIM)

#define GFP_ATOMIC           (__GFP_HIGH | __GFP_KSWAPD_RECLAIM)
#define GFP_KERNEL           (__GFP_RECLAIM | __GFP_IO | __GFP_FS)
#define GFP_KERNEL_ACCOUNT   (GFP_KERNEL | __GFP_ACCOUNT)
#define GFP_NOWAIT           (__GFP_KSWAPD_RECLAIM | __GFP_NOWARN)
#define GFP_NOIO             __GFP_RECLAIM
#define GFP_NOFS             (__GFP_RECLAIM | __GFP_IO)
#define GFP_USER             (__GFP_RECLAIM | __GFP_IO | __GFP_FS | __GFP_HARDWALL)
#define GFP_DMA              __GFP_DMA
#define GFP_DMA32            __GFP_DMA32
#define GFP_HIGHUSER         (GFP_USER | __GFP_HIGHMEM)
#define GFP_HIGHUSER_MOVABLE (GFP_HIGHUSER | __GFP_MOVABLE)

/* The bits that choose a zone. */
#define GFP_ZONEMASK (__GFP_DMA | __GFP_HIGHMEM | __GFP_DMA32 | __GFP_MOVABLE)

#ifndef NUMA_NO_NODE
#define NUMA_NO_NODE (-1)
#endif

/* Returns whether a call with these flags may wait. */
static inline int gfpflags_allow_blocking(gfp_t flags)
{
	return (flags & __GFP_DIRECT_RECLAIM) != 0;
}

/*
 * Allocates for the functions of gfp.h, kmem.h and mempool.h: memory for free(), aligned to a power of two,
 * as the flags say.  Not for programs.
 */
CPUSLAB_API void *cpuslab_kmem_obtain(size_t alignment, size_t size, gfp_t flags);

/* ---- pages --------------------------------------------------------------------------------------------- */

/*
 * A `struct page *` is the address of the page's first byte: page_address() and virt_to_page() only change
 * the type.  A struct page has no members; its flags, mapping and reference count exist only in the kernel.
 */
struct page;

#ifndef PAGE_SHIFT
#define PAGE_SHIFT 12
#endif
#ifndef PAGE_SIZE
#define PAGE_SIZE (1ul << PAGE_SHIFT)
#endif
#ifndef PAGE_MASK
#define PAGE_MASK (~(PAGE_SIZE - 1))
#endif
#ifndef MAX_PAGE_ORDER
#define MAX_PAGE_ORDER 10
#endif
#ifndef NR_PAGE_ORDERS
#define NR_PAGE_ORDERS (MAX_PAGE_ORDER + 1)
#endif
#ifndef MAX_ORDER
#define MAX_ORDER NR_PAGE_ORDERS /* as up to Linux 6.3 */
#endif

static inline void *page_address(const struct page *page)
{
	return (void *)(uintptr_t)page;
}

static inline struct page *virt_to_page(const void *address)
{
	return (struct page *)((uintptr_t)address & PAGE_MASK);
}

/* Returns the smallest order whose pages hold `size` bytes; 52 for 0, as for ULONG_MAX. */
static inline int get_order(unsigned long size)
{
	unsigned long above = (size - 1) >> PAGE_SHIFT;

	return above ? 64 - __builtin_clzl(above) : 0;
}

/*
 * Allocates 2^order pages, aligned to their total length; NULL above MAX_PAGE_ORDER, or when memory is short.
 */
static inline struct page *alloc_pages(gfp_t flags, unsigned int order)
{
	size_t bytes = PAGE_SIZE << (order & 31);

	return order > MAX_PAGE_ORDER ? NULL : (struct page *)cpuslab_kmem_obtain(bytes, bytes, flags);
}

static inline struct page *alloc_pages_node(int node, gfp_t flags, unsigned int order)
{
	(void)node;
	return alloc_pages(flags, order);
}

static inline struct page *alloc_page(gfp_t flags)
{
	return alloc_pages(flags, 0);
}

/* Returns 0 where alloc_pages returns NULL. */
static inline unsigned long __get_free_pages(gfp_t flags, unsigned int order)
{
	return (unsigned long)(uintptr_t)alloc_pages(flags, order);
}

static inline unsigned long __get_free_page(gfp_t flags)
{
	return __get_free_pages(flags, 0);
}

static inline unsigned long get_zeroed_page(gfp_t flags)
{
	return __get_free_pages(flags | __GFP_ZERO, 0);
}

static inline void __free_pages(struct page *page, unsigned int order)
{
	(void)order;
	free(page);
}

static inline void __free_page(struct page *page)
{
	free(page);
}

static inline void free_pages(unsigned long address, unsigned int order)
{
	(void)order;
	free((void *)(uintptr_t)address);
}

static inline void free_page(unsigned long address)
{
	free((void *)(uintptr_t)address);
}

/*
 * Allocates as many pages as `size` bytes take, and no more; NULL for 0 bytes, above 2^MAX_PAGE_ORDER pages,
 * or when memory is short.
 */
static inline void *alloc_pages_exact(size_t size, gfp_t flags)
{
	return size - 1 < PAGE_SIZE << MAX_PAGE_ORDER
		       ? cpuslab_kmem_obtain(PAGE_SIZE, (size + PAGE_SIZE - 1) & PAGE_MASK, flags)
		       : NULL;
}

static inline void *alloc_pages_exact_nid(int node, size_t size, gfp_t flags)
{
	(void)node;
	return alloc_pages_exact(size, flags);
}

static inline void free_pages_exact(void *address, size_t size)
{
	(void)size;
	free(address);
}

#ifdef __cplusplus
}
#endif
#endif
