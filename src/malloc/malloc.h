/* SPDX-License-Identifier: MIT */
/*
 * malloc: what callers see: sizes, alignment, errno, and the names of the malloc family.
 *
 * Owns no memory.  Sizes up to SIZE_CLASS_RUNS go to the size classes' caches, the others to page runs and
 * mappings.  The fast paths of malloc and free are in fast.h and nowhere else.
 */
#ifndef CPUSLAB_MALLOC_H
#define CPUSLAB_MALLOC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "cpuslab/cpuslab.h"

#define EXPORT CPUSLAB_API

/* Aligned to a power of two, any size; NULL with errno set. */
void *malloc_aligned(size_t alignment, size_t size);
/* As what malloc(size) returns is aligned in any case, up to a page. */
size_t malloc_alignment(size_t size);
/* Bytes that the caller may use at `object`, which is not NULL; 0 if it is no object. */
size_t malloc_usable(const void *object);
/* Whether even large objects of a class must come from it. */
bool malloc_is_special(size_t bytes);

/* What an allocation returns where there is no memory. */
static inline void *malloc_failed(void)
{
	errno = ENOMEM;
	return NULL;
}

#endif
