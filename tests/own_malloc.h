/* SPDX-License-Identifier: MIT */
/*
 * own_malloc: the program's own malloc, which never frees anything.  In a program without one, at the latest
 * its first thread starts the library.
 */
#ifndef CPUSLAB_TESTS_OWN_MALLOC_H
#define CPUSLAB_TESTS_OWN_MALLOC_H

#include "check.h"

static char pool[1 << 20] __attribute__((aligned(64)));
static size_t used;

void *malloc(size_t size)
{
	size_t begin = __atomic_fetch_add(&used, (size + 63) & ~(size_t)63, __ATOMIC_RELAXED);
	CHECK(begin + size <= sizeof pool);
	return &pool[begin];
}

void *calloc(size_t count, size_t size)
{
	return malloc(count * size); /* fresh memory, hence zero */
}

void *realloc(void *block, size_t size)
{
	void *moved = malloc(size);
	return block ? memmove(moved, block, size) : moved;
}

void free(void *block)
{
	(void)block;
}

#endif
