/* SPDX-License-Identifier: MIT */
/*
 * realloc finds room in the heap where the address space has none for another mapping.  An object that
 * outgrows a few dozen MiB becomes a mapping of its own, which can grow without a copy; but realloc must not
 * fail because of that.
 */
#include "check.h"

#include <sys/resource.h>

enum { MIB = 1 << 20, SHORT = 40 * MIB, LONG = 60 * MIB };

static void limit_address_space(void)
{
	unsigned long pages;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file && fscanf(file, "%lu", &pages) == 1 && fclose(file) == 0);
	struct rlimit limit = {.rlim_cur = pages * 4096 + MIB, .rlim_max = RLIM_INFINITY};
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

int main(void)
{
	/* In the heap, in this order: the object, a neighbour, room for more, and an end. */
	char *object = malloc(SHORT), *neighbour = malloc(MIB), *room = malloc(LONG), *end = malloc(MIB);
	CHECK(object && neighbour && room && end);
	memset(object, 1, MIB);
	free(room);
	limit_address_space();
	char *grown = realloc(object, LONG);
	CHECK(grown, "no memory, where malloc has some");
	CHECK(check_all_bytes(grown, MIB, 1) && malloc_usable_size(grown) >= LONG);
	free(grown);
	free(neighbour);
	free(end);
	return 0;
}
