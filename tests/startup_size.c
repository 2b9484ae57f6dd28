/* SPDX-License-Identifier: MIT */
/*
 * startup_size: the first call of a process asks how large objects will be.  Objects allocated later are no
 * smaller, even if options read at the start affect sizes.
 */
#include "check.h"

#include <cpuslab/cpuslab.h>

static const size_t sizes[] = {0, 1, 100, 5000, 100000, 140000, 262140, 300000};
enum { SIZES = sizeof sizes / sizeof *sizes };

int main(void)
{
	size_t granted[SIZES];

	for (unsigned i = 0; i < SIZES; i++)
		granted[i] = cpuslab_malloc_size(sizes[i]);
	check_watchdog(60);
	for (unsigned i = 0; i < SIZES; i++) {
		void *object = malloc(sizes[i]);

		CHECK(object);
		CHECK(malloc_usable_size(object) >= granted[i],
		      "%zu of %zu bytes, of which %zu were promised", malloc_usable_size(object), sizes[i],
		      granted[i]);
		memset(object, 1, granted[i]);
		free(object);
	}
	return 0;
}
