/* SPDX-License-Identifier: MIT */
/*
 * fast: the hit paths of malloc and free, for the functions that programs call, in malloc.c and
 * operators.c.
 *
 * A miss changes nothing, so a caller that missed may try again.  While the process starts, and in hardened
 * mode, each call misses.
 */
#ifndef CPUSLAB_FAST_H
#define CPUSLAB_FAST_H

#include "magazine/magazine.h"
#include "malloc/size_class.h"
#include "page/page.h"

static inline __attribute__((always_inline)) void *malloc_fast_below(size_t size, size_t limit)
{
	if (__builtin_expect(size >= limit, 0))
		return NULL;
	return magazine_alloc(&malloc_front.offset[(size + SIZE_CLASS_STEP - 1) / SIZE_CLASS_STEP]);
}

static inline __attribute__((always_inline)) void *malloc_fast(size_t size)
{
	return malloc_fast_below(size, malloc_front.small_limit);
}

/* For functions that stand for malloc. */
static inline __attribute__((always_inline)) void *forwarding_malloc_fast(size_t size)
{
	return malloc_fast_below(size, malloc_front.forward_limit);
}

/*
 * Aligned to a power of two.  Up to SIZE_CLASS_SMALL the class of a multiple of the alignment is aligned to
 * it: where classes lie closer together than the alignment, the multiple is a class itself, and elsewhere
 * all classes are aligned to it.  The slow path takes a size or alignment of zero, which has no such
 * multiple.
 */
static inline __attribute__((always_inline)) void *malloc_aligned_fast(size_t alignment, size_t size)
{
	_Static_assert(!(SIZE_CLASS_SMALL & (SIZE_CLASS_SMALL - 1)),
		       "both are below it if all their bits are");

	if (__builtin_expect(((alignment - 1) | (size - 1)) >= SIZE_CLASS_SMALL, 0))
		return NULL;
	return malloc_fast((size + alignment - 1) & -alignment);
}

/* NULL and addresses below the heap read as PAGE_FREE in the map, whose words are void. */
static inline __attribute__((always_inline)) bool free_fast_below(void *object, uintptr_t limit)
{
	uintptr_t page = page_of(object);

	return __builtin_expect(page < limit, 1) &&
	       __builtin_expect(magazine_free(&page_front.map[page], object), 1);
}

static inline __attribute__((always_inline)) bool free_fast(void *object)
{
	return free_fast_below(object, page_front.limit);
}

/* Returns whether functions that stand for malloc and free take their fast paths. */
static inline bool forwards_fast(void)
{
	return page_front.forward_limit != 0;
}

/* For functions that stand for free. */
static inline __attribute__((always_inline)) bool forwarding_free_fast(void *object)
{
	return free_fast_below(object, page_front.forward_limit);
}

#endif
