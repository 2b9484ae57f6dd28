/* SPDX-License-Identifier: MIT */
/* page/map: what stands in the page map, and where the heap and its metadata lie; see page.h. */
#ifndef CPUSLAB_PAGE_MAP_H
#define CPUSLAB_PAGE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"
#include "os/os.h"

enum { PAGE_SHIFT = OS_PAGE_SHIFT, PAGE_BYTES = 1 << PAGE_SHIFT, PAGE_MARK_UNIT = 16 };

/*
 * Page map entries other than "a slab of the cache whose word is at this offset".  The words at these offsets
 * are void in every area (empty for alloc, full for free), so a free through them always misses into the
 * checks.
 */
enum page_id {
	PAGE_FREE = 0,        /* free, or not ours */
	PAGE_LARGE = 8,       /* first page of a large run */
	PAGE_LARGE_TAIL = 16, /* last page of a large run of more than one page */
	PAGE_TRANSIT = 24,    /* ends of a run in transit: being purged, standing by, or headroom */
	PAGE_SLAB = 32,       /* of a cache whose word has no 16-bit offset: slab_of tells */
	PAGE_LINKED = 40,     /* of a linked cache: slab_of tells */
	PAGE_WATCHED = 48,    /* as PAGE_SLAB, of a cache with objects whose frees must be seen */
	PAGE_RETIRED = 56,    /* of a destroyed hardened cache: never used again */
	PAGE_ID_RESERVED = 64 /* caches' offsets start here */
};
enum { PAGE_ID_STEP = 8 }; /* every id is a multiple of it */

/*
 * What the fast path reads.  Written once at start, except for `end` and `limit`: where the page map grows
 * with the heap (PIECEWISE in layout.h) they grow too, so that no free reads a part of the map that is not
 * mapped yet.
 */
struct page_front {
	uint16_t *map;   /* indexed by address >> PAGE_SHIFT, valid below `limit` */
	uintptr_t limit; /* what free's fast path admits: `end`; in hardened mode and in a hole 0 */
	uintptr_t
		forward_limit; /* the same for functions that stand for free; 0 where a program has its own */
	uintptr_t end;         /* first page number past the heap; 0 until the room is open */
	uintptr_t heap_page;   /* first page number of the heap; 0 until the room is open */
	uint32_t *slab_of;     /* indexed by page number, like the map */
	uint16_t *marks;       /* indexed by address / PAGE_MARK_UNIT; in hardened mode only */
	char *metadata;        /* base of the METADATA_UNITs that slab_of counts */
	size_t metadata_bytes; /* planned size, not the size in use */
};
extern ARCH_INTERNAL struct page_front page_front;
/* `map` for the heap's pages alone: where the heap lies in a hole (layout.h), the map has no others. */
extern ARCH_INTERNAL uint16_t *page_entries;

static inline uintptr_t page_of(const void *address)
{
	return (uintptr_t)address >> PAGE_SHIFT;
}

/* Returns the mark of the unit that contains a heap address. */
static inline uint16_t *page_mark(const void *address)
{
	return &page_front.marks[(uintptr_t)address / PAGE_MARK_UNIT];
}

static inline bool page_is_heap(const void *address)
{
	return page_of(address) - page_front.heap_page < page_front.end - page_front.heap_page;
}

static inline uint16_t page_id(const void *address)
{
	return __atomic_load_n(&page_entries[page_of(address)], __ATOMIC_ACQUIRE);
}

/* ---- metadata: by a number of its unit ---------------------------------------------------------------- */

enum { METADATA_UNIT = 64 };

static inline uint32_t metadata_reference(const void *block)
{
	return (uint32_t)((size_t)((const char *)block - page_front.metadata) / METADATA_UNIT);
}

static inline bool metadata_contains(const void *address)
{
	return (uintptr_t)address - (uintptr_t)page_front.metadata < page_front.metadata_bytes;
}

static inline void *metadata_block(uint32_t reference)
{
	return page_front.metadata + (size_t)reference * METADATA_UNIT;
}

#endif
