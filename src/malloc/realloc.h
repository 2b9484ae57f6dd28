/* SPDX-License-Identifier: MIT */
/*
 * realloc: whether an object stays where it is, grows there, or goes where it will be able to.
 *
 * The function of that name is malloc.c's, as all of the family that libc itself calls: a static program must
 * have them from one object file, or libc's comes for the one that is missing, with another malloc.
 */
#ifndef CPUSLAB_REALLOC_H
#define CPUSLAB_REALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* What outgrows so many bytes becomes a run of pages, which can grow where it is. */
enum { REALLOC_LARGE = 32 << 10 };

/* Whether realloc leaves an object of a class where it is: as long as at most half of it is wasted. */
static inline bool realloc_stays(size_t size, size_t usable)
{
	return size <= usable && size >= usable / 2;
}

/* An object of a usual class, of a size that is another's.  The old one will do where there is no memory. */
void *realloc_usual(void *object, size_t size, size_t usable);
/*
 * Everything else: NULL, objects that are debugged, hardened, guarded or large, of more than REALLOC_LARGE,
 * and those of no size.
 */
void *realloc_special(void *object, size_t size);

#endif
