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

static inline __attribute__((always_inline)) void *malloc_fast(size_t size)
{
	if (__builtin_expect(size >= malloc_front.small_limit, 0))
		return NULL;
	return magazine_alloc(&malloc_front.offset[(size + SIZE_CLASS_STEP - 1) / SIZE_CLASS_STEP]);
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
static inline __attribute__((always_inline)) bool free_fast(void *object)
{
	uintptr_t page = page_of(object);

	return __builtin_expect(page < page_front.limit, 1) &&
	       __builtin_expect(magazine_free(&page_front.map[page], object), 1);
}

#endif
