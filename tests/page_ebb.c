/* SPDX-License-Identifier: MIT */
/*
 * page_ebb: what goes back in an ebb beside the free runs themselves: where the heap ends inside a huge page,
 * the rest of that; and of long free runs, the records between their ends.  And the ebb goes on while the
 * program takes a few pages, but not when it takes many.
 */
#include "check.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include "page/block.h"
#include "page/layout.h"
#include "page/page.h"
#include "page/run.h"

enum {
	SOME_SLAB = PAGE_ID_RESERVED,
	SMALL_PAGES = BLOCK_SMALL_HEAP >> PAGE_SHIFT,
	RUN = 16, /* pages */
	RUNS = SMALL_PAGES / RUN + 2,
	FEW = 24,
	MANY = 100
};

static char *runs[RUNS];

static char *take(size_t pages)
{
	bool zeroed;
	char *run = page_alloc(pages, 1, SOME_SLAB, &zeroed);
	CHECK(run);
	for (size_t i = 0; i < pages; i++)
		run[i * PAGE_BYTES] = 1;
	page_count_touched((long)pages);
	return run;
}

static size_t resident(const char *base, size_t bytes)
{
	static unsigned char present[1 << 16];
	size_t pages = bytes >> PAGE_SHIFT, count = 0;
	CHECK(pages <= sizeof present && mincore((void *)base, bytes, present) == 0);
	for (size_t i = 0; i < pages; i++)
		count += present[i] & 1;
	return count;
}

static size_t dirty(void)
{
	struct page_statistics statistics;
	page_statistics(&statistics);
	return statistics.dirty_pages;
}

static void fill(void)
{
	for (unsigned i = 0; i < RUNS; i++)
		if (!runs[i])
			runs[i] = take(RUN);
}

static void purge(void)
{
	while (page_is_behind())
		page_purge(false);
}

/* Frees all runs, or all but every hundredth. */
static void empty(bool all)
{
	for (unsigned i = 0; i < RUNS; i++)
		if (runs[i] && (all || i % 100)) {
			page_free(runs[i], RUN);
			runs[i] = NULL;
		}
}

static void test_block(bool asked)
{
	size_t top = page_heap_pages();
	CHECK(top > SMALL_PAGES && top % BLOCK_PAGES, "the heap ends at page %zu", top);
	if (asked) {
		page_purge(true);
	} else {
		page_ebb(true);
		purge();
	}
	CHECK(page_heap_pages() % BLOCK_PAGES == 0, "the heap ends at page %zu", page_heap_pages());
	const char *end = layout.heap.base + (top << PAGE_SHIFT);
	size_t left = resident(end, (page_heap_pages() - top) << PAGE_SHIFT);
	CHECK(!left, "%zu pages stay behind what was the heap's end", left);
	size_t used = (RUNS + 99) / 100 * RUN;
	CHECK(dirty() <= used + 64, "%zu pages are dirty, and %zu used", dirty(), used);
}

static void test_records(void)
{
	size_t bytes = page_heap_pages() * sizeof(struct run) / PAGE_BYTES * PAGE_BYTES;
	/* Each free run has a first and a last record. */
	size_t left = resident(layout.runs.base, bytes), most = 2 * ((RUNS + 99) / 100 + 1);
	CHECK(left <= most, "%zu of %zu pages of records stay", left, bytes >> PAGE_SHIFT);
	/* Allocated anew, the runs have their ids again. */
	fill();
	for (unsigned i = 0; i < RUNS; i++)
		for (unsigned page = 0; page < RUN; page++)
			CHECK(page_id(runs[i] + page * PAGE_BYTES) == SOME_SLAB);
}

static void test_few_taken(void)
{
	page_ebb(true);
	char *few = take(FEW);
	empty(false);
	CHECK(page_is_behind(), "%zu pages are dirty, and that is no ebb", dirty());
	purge();
	CHECK(dirty() <= (RUNS + 99) / 100 * RUN + FEW + 64, "%zu pages are dirty", dirty());
	page_free(few, FEW);
}

static void test_many_taken(void)
{
	fill();
	page_ebb(true);
	char *many = take(MANY);
	empty(false);
	purge();
	CHECK(dirty() > SMALL_PAGES / 2, "%zu pages are dirty, and that is an ebb", dirty());
	page_free(many, MANY);
	empty(true);
}

/*
 * Two large objects freed in turn are a fall, unless one is allocated or grows in between; so is freeing one
 * of the first few.
 */
static void test_large_fell(void)
{
	bool zeroed;
	char *large[3];
	unsigned few = 0;

	for (bool fell = true; fell && few < 100; few++) {
		CHECK((large[0] = page_alloc(RUN, 1, PAGE_LARGE, &zeroed)));
		CHECK(!page_large_fell());
		page_free(large[0], RUN);
		fell = page_large_fell();
	}
	CHECK(few > 1 && few < 100, "%u", few);
	for (unsigned i = 0; i < 3; i++)
		CHECK((large[i] = page_alloc(RUN, 1, PAGE_LARGE, &zeroed)));
	CHECK(!page_large_fell());
	page_free(large[0], RUN);
	CHECK(!page_large_fell());
	page_free(large[1], RUN);
	CHECK(page_large_fell());
	CHECK((large[0] = page_alloc(RUN, 1, PAGE_LARGE, &zeroed)));
	CHECK(!page_large_fell(), "one has come");
	page_free(large[0], RUN);
	CHECK(!page_large_fell());
	page_free(large[2], RUN);
	CHECK(page_large_fell());
}

int main(void)
{
	check_watchdog(60);
	free(malloc(1));
	/* The cost of huge pages on this machine does not matter here. */
	block_dear = UINT64_MAX;
	test_large_fell();
	fill();
	empty(false);
	/* As malloc_trim() asks, without an ebb; of what the others look at nothing has gone then. */
	pid_t child = fork();
	if (child == 0) {
		test_block(true);
		_exit(0);
	}
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	test_block(false);
	test_records();
	test_few_taken();
	empty(true);
	test_many_taken();
	return 0;
}
