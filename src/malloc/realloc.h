/* SPDX-License-Identifier: MIT */
/*
 * realloc: whether an object stays where it is, grows in place, or moves to where it can grow.
 *
 * The function realloc itself is in malloc.c, as is every function of the family that libc calls: a static
 * program must get all of them from one object file, or libc's version of a missing one comes along, with
 * another malloc.
 */
#ifndef CPUSLAB_REALLOC_H
#define CPUSLAB_REALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* An object that outgrows this many bytes becomes a run of pages, which can grow in place. */
enum { REALLOC_LARGE = 32 << 10 };

/* Returns whether an object of a class stays where it is: as long as at most half of it is wasted. */
static inline bool realloc_stays(size_t size, size_t usable)
{
	return size <= usable && size >= usable / 2;
}

/*
 * Moves an object of a usual class to the class of its new size.  Keeps the old one where there is no
 * memory but it is large enough.
 */
void *realloc_usual(void *object, size_t size, size_t usable);
/*
 * Everything else but NULL: size zero, and objects that are debugged, hardened, guarded, large, or of more
 * than REALLOC_LARGE bytes.
 */
void *realloc_special(void *object, size_t size);
/*
 * For a large object that begins with a page: resizes it so that it still does, where nothing must be copied
 * for that; else returns NULL, and the object is as it was.
 */
void *realloc_in_pages(void *object, size_t size);

#endif
