/* SPDX-License-Identifier: MIT */
/* Every allocation function, by number; where one returns NULL, errno says why. */
#ifndef CPUSLAB_TESTS_ALLOCATE_BY_H
#define CPUSLAB_TESTS_ALLOCATE_BY_H

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

enum { ALLOCATE_KINDS = 5 };

static inline void *allocate_by(int kind, size_t size)
{
	void *object = NULL;

	switch (kind) {
	case 0:
		return malloc(size);
	case 1:
		return calloc(1, size);
	case 2:
		return realloc(NULL, size);
	case 3:
		return memalign(256, size);
	default:
		errno = posix_memalign(&object, 64, size);
		return object;
	}
}

#endif
