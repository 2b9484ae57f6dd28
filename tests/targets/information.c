/* SPDX-License-Identifier: MIT */
/*
 * information: writes malloc_info() to standard output, and mallinfo2()'s figures of the same instant to
 * standard error, with objects of known sizes in use and caches whose names mean something to XML.
 */
#include "check.h"

#include <cpuslab/cache.h>

enum { SMALL = 5000, SMALL_BYTES = 1000, RUNS = 3, RUN_BYTES = 1 << 20, HUGE = 2 };

static const size_t huge_bytes = (size_t)3 << 30;

static void make_caches(void)
{
	static const char *const names[] = {
		"<&>\"'", "]]>", "a b\tc\nd\001e", "\xc3\xb6 \xff\xfe", "&amp;", "<!--", "<?xml", "%s%n%d",
	};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct cpuslab_cache_args args = {
			.name = names[i], .size = 100 + 16 * i, .flags = CPUSLAB_CACHE_NO_MERGE};
		struct cpuslab_cache *cache = cpuslab_cache_create(&args);
		CHECK(cache && cpuslab_cache_alloc(cache));
	}
}

int main(void)
{
	static char buffer[1 << 20];

	make_caches();
	for (int i = 0; i < SMALL; i++)
		CHECK(malloc(SMALL_BYTES));
	for (int i = 0; i < RUNS; i++)
		CHECK(malloc(RUN_BYTES));
	for (int i = 0; i < HUGE; i++)
		CHECK(malloc(huge_bytes));
	CHECK(setvbuf(stdout, buffer, _IOFBF, sizeof buffer) == 0);
	struct mallinfo2 info = mallinfo2();
	CHECK(malloc_info(0, stdout) == 0);
	struct mallinfo2 after = mallinfo2();
	CHECK(memcmp(&info, &after, sizeof info) == 0, "malloc_info allocates");
	dprintf(STDERR_FILENO, "%zu %zu %zu %zu %zu %zu %zu\n", info.arena, info.hblks, info.hblkhd,
		info.fsmblks, info.uordblks, info.fordblks, info.keepcost);
	return 0;
}
