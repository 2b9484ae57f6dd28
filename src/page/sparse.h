/* SPDX-License-Identifier: MIT */
/*
 * sparse: memory that may be large and mostly untouched.  Whatever reads as zero is not written to a place
 * that does so already: untouched pages take no memory for being read.
 */
#ifndef CPUSLAB_SPARSE_H
#define CPUSLAB_SPARSE_H

#include <stddef.h>
#include <string.h>

/* Copies between places that do not overlap. */
void sparse_copy(void *to, const void *from, size_t bytes);
void sparse_clear(void *start, size_t bytes);

/*
 * Bytes of zeroes from which on their pages are not to be touched.  A smaller object mostly lies in pages
 * that others use as well, and is cleared in hardly more time than looking at it takes.
 */
enum { SPARSE_ZEROES = 16 << 10 };

/* Clears a just allocated object of `bytes`, from byte `from` on. */
static inline void sparse_zero(void *object, size_t from, size_t bytes)
{
	char *start = (char *)object + from;

	if (bytes < SPARSE_ZEROES)
		memset(start, 0, bytes - from);
	else
		sparse_clear(start, bytes - from);
}

#endif
