/* SPDX-License-Identifier: MIT */
/*
 * page_clock: a run that another thread frees after this one has read the clock is young, not as old as can
 * be; and a run freed long ago is old, however long.
 *
 * Time stands still but where the test moves it, and another thread may act between a thread's reading of the
 * clock and its use.
 */
#include "check.h"

#include "options/options.h"
#include "page/page.h"

enum { PAGES = 10, SLAB = 40000, MIB = 1 << 20 };

static uint64_t milliseconds = 100000;
static void (*overtaking)(void); /* what another thread does, once, before a clock reading is used */

int clock_gettime(clockid_t clock, struct timespec *now)
{
	(void)clock;
	*now = (struct timespec){.tv_sec = (time_t)(milliseconds / 1000),
				 .tv_nsec = (long)(milliseconds % 1000) * 1000000};
	void (*other)(void) = overtaking;
	overtaking = NULL;
	if (other)
		other();
	return 0;
}

static void *object;

static void free_run(void)
{
	milliseconds += 2;
	page_free(object, PAGES);
}

static void free_mapping(void)
{
	milliseconds += 2;
	CHECK(huge_free(object));
}

static struct page_statistics statistics(void)
{
	struct page_statistics now;
	page_statistics(&now);
	return now;
}

static void test_runs(void)
{
	bool zeroed;
	object = page_alloc(PAGES, 1, SLAB, &zeroed);
	CHECK(object);
	memset(object, 1, (size_t)PAGES * PAGE_BYTES);
	overtaking = free_run;
	page_purge(false);
	CHECK(!overtaking && statistics().dirty_pages == PAGES, "%zu dirty pages", statistics().dirty_pages);
	milliseconds += options.decay - 1;
	page_purge(false);
	CHECK(statistics().dirty_pages == PAGES);
	milliseconds++;
	page_purge(false);
	CHECK(statistics().dirty_pages == 0);
}

/* A program that slept for a month has runs older than 32 bits of milliseconds can tell. */
static void test_months(void)
{
	bool zeroed;
	object = page_alloc(PAGES, 1, SLAB, &zeroed);
	CHECK(object);
	memset(object, 1, (size_t)PAGES * PAGE_BYTES);
	free_run();
	CHECK(statistics().dirty_pages == PAGES);
	milliseconds += 30ull * 24 * 60 * 60 * 1000;
	page_purge(false);
	CHECK(statistics().dirty_pages == 0, "%zu dirty pages", statistics().dirty_pages);
}

static void test_mappings(void)
{
	bool zeroed;
	void *first = huge_alloc(MIB, 1, &zeroed);
	object = huge_alloc(2ul * MIB, 1, &zeroed);
	/* One that waits, so that the clock is read, and that is old afterwards. */
	CHECK(first && object && huge_free(first));
	milliseconds += options.decay;
	overtaking = free_mapping;
	huge_purge(false);
	CHECK(!overtaking && statistics().huge_cached_bytes == 2ul * MIB, "%zu bytes wait",
	      statistics().huge_cached_bytes);
	milliseconds += options.decay;
	huge_purge(false);
	CHECK(statistics().huge_cached_bytes == 0);
}

int main(void)
{
	check_watchdog(60);
	free(malloc(1)); /* starts the library */
	options.decay = 1000;
	page_purge(true);
	CHECK(statistics().dirty_pages == 0 && statistics().huge_cached_bytes == 0);
	test_runs();
	test_months();
	test_mappings();
	return 0;
}
