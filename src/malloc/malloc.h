/* SPDX-License-Identifier: MIT */
/*
 * malloc: what callers see: sizes, alignment, errno, and the names of the malloc family.
 *
 * Owns no memory.  Sizes up to SIZE_CLASS_RUNS go to the size classes' caches, larger ones to page runs and
 * mappings.  The fast paths of malloc and free are in fast.h and nowhere else.
 */
#ifndef CPUSLAB_MALLOC_H
#define CPUSLAB_MALLOC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "cpuslab/cpuslab.h"

#define EXPORT CPUSLAB_API
/* For names that a program may define itself (replaced.h): its own win, also in a static program. */
#define REPLACEABLE CPUSLAB_API __attribute__((weak))

/* Allocates `size` bytes, any number, aligned to a power of two; NULL with errno set. */
void *malloc_aligned(size_t alignment, size_t size);
/* The same, zeroed. */
void *malloc_aligned_zeroed(size_t alignment, size_t size);
/* The alignment, up to a page, that every result of malloc(size) has. */
size_t malloc_alignment(size_t size);
/* The bytes that the caller may use at `object`, which is not NULL; 0 if it is not an object. */
size_t malloc_usable(const void *object);
/* For sized frees that missed: compares the size where the object is debugged or hardened. */
void malloc_free_sized_missed(void *object, size_t size);
/* Returns whether even a large object must come from its class. */
bool malloc_is_special(size_t bytes);

/* The result of an allocation that finds no memory. */
static inline void *malloc_failed(void)
{
	errno = ENOMEM;
	return NULL;
}

#endif
