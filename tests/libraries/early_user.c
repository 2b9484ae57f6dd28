/* SPDX-License-Identifier: MIT */
/*
 * early_user: a library that allocates in its constructors and destructors.  The loader may run them before
 * and after the allocator's own.
 */
#include "early_user.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT = 200 };

static char *kept[KEPT];
static size_t sizes[KEPT];
static unsigned calls;

static void use(unsigned seed)
{
	for (unsigned i = 0; i < KEPT; i++) {
		size_t size = 1 + (i * 37 + seed * 101) % 3000 + (i % 50 == 0 ? 400000 : 0);
		if (kept[i]) {
			for (size_t at = 0; at < sizes[i]; at += 97)
				if (kept[i][at] != (char)(i + at))
					abort();
			free(kept[i]);
		}
		kept[i] = malloc(size);
		if (!kept[i])
			abort();
		sizes[i] = size;
		for (size_t at = 0; at < size; at++)
			kept[i][at] = (char)(i + at);
	}
	void *moved = realloc(calloc(10, 10), 100000);
	if (!moved)
		abort();
	free(moved);
	calls++;
}

__attribute__((constructor(101))) static void first(void)
{
	use(1);
}

__attribute__((constructor)) static void later(void)
{
	use(2);
}

void early_user_use(void)
{
	use(3);
}

unsigned early_user_calls(void)
{
	return calls;
}

__attribute__((destructor)) static void leave(void)
{
	use(4);
}

__attribute__((destructor(101))) static void last(void)
{
	use(5);
	for (unsigned i = 0; i < KEPT; i++)
		free(kept[i]);
}
