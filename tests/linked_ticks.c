/* SPDX-License-Identifier: MIT */
/*
 * linked_ticks: a program that uses linked caches through bulk calls only also gives back, in due time, what
 * it does not use.
 */
#include "check.h"

#include <cpuslab/cache.h>

#include "moved_clock.h"
#include "options/options.h"
#include "page/page.h"

enum { SIZE = 256, OBJECTS = 20000, STEP = 150 };

static size_t dirty_pages(void)
{
	struct page_statistics now;

	page_statistics(&now);
	return now.dirty_pages;
}

static void *objects[OBJECTS];

static void take_and_give(struct cpuslab_cache *cache, size_t count)
{
	CHECK(cpuslab_cache_alloc_bulk(cache, count, objects) == count);
	for (size_t i = 0; i < count; i++)
		memset(objects[i], 1, SIZE);
	cpuslab_cache_free_bulk(cache, count, objects);
}

int main(void)
{
	const struct cpuslab_cache_args args = {
		.name = "ticks", .size = SIZE, .engine = CPUSLAB_ENGINE_LINKED};

	check_watchdog(60);
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);

	CHECK(cache);
	take_and_give(cache, OBJECTS);
	size_t before = dirty_pages();

	CHECK(before > OBJECTS * SIZE / PAGE_BYTES / 2, "%zu dirty pages", before);
	for (uint64_t passed = 0; passed < 20ull * options.decay; passed += STEP) {
		milliseconds += STEP;
		take_and_give(cache, 1);
	}
	CHECK(dirty_pages() < before / 10, "%zu of %zu pages are dirty", dirty_pages(), before);
	cpuslab_cache_destroy(cache);
	return 0;
}
