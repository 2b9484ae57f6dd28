/* SPDX-License-Identifier: MIT */
/*
 * heap: walks over the whole heap and checks that page map, boundary tags and statistics agree.  For unit
 * tests, while no other thread allocates.
 */
#ifndef CPUSLAB_TESTS_HEAP_H
#define CPUSLAB_TESTS_HEAP_H

#include "check.h"

#include "page/layout.h"
#include "page/page.h"
#include "page/run.h"

struct heap_walk {
	size_t clean_pages, dirty_pages, large_pages, slab_pages;
	size_t clean_runs, dirty_runs, large_runs;
};

static inline struct run *heap_run(size_t page)
{
	return (struct run *)(void *)layout.runs.base + page;
}

static inline uint16_t heap_id(size_t page)
{
	return page_front.map[page_front.heap_page + page];
}

static inline struct heap_walk heap_walk(void)
{
	struct heap_walk walk = {0};
	struct page_statistics statistics;
	/* Called before the walk, so that no pages are kept behind a run that has grown. */
	page_statistics(&statistics);
	size_t top = page_heap_pages(), page = 0;
	int before = -1; /* the state of the free run that ends here */
	while (page < top) {
		const struct run *run = heap_run(page);
		size_t pages = run->pages;
		uint16_t id = heap_id(page);
		CHECK(id != PAGE_TRANSIT && id != PAGE_LARGE_TAIL, "page %zu has id %u", page, id);
		if (id == PAGE_FREE) {
			CHECK(pages && page + pages <= top, "a free run of %zu pages at %zu", pages, page);
			CHECK(run->state == RUN_CLEAN || run->state == RUN_DIRTY);
			CHECK((int)run->state != before, "neighbours at page %zu are two runs", page);
			CHECK(heap_run(page + pages - 1)->pages == pages &&
			      heap_run(page + pages - 1)->state == run->state);
			for (size_t i = 0; i < pages; i++)
				CHECK(heap_id(page + i) == PAGE_FREE);
			before = (int)run->state;
			*(run->state == RUN_CLEAN ? &walk.clean_pages : &walk.dirty_pages) += pages;
			(*(run->state == RUN_CLEAN ? &walk.clean_runs : &walk.dirty_runs))++;
		} else if (id == PAGE_LARGE) {
			CHECK(pages && page + pages <= top, "a large run of %zu pages at %zu", pages, page);
			CHECK(pages == 1 || heap_id(page + pages - 1) == PAGE_LARGE_TAIL,
			      "the large run of %zu pages at %zu has no end", pages, page);
			for (size_t i = 1; i + 1 < pages; i++)
				CHECK(heap_id(page + i) == PAGE_FREE);
			before = -1;
			walk.large_pages += pages;
			walk.large_runs++;
		} else if (id == PAGE_RETIRED) {
			before = -1;
			pages = 1;
		} else {
			CHECK(id % 8 == 0 && (id >= PAGE_ID_RESERVED || id == PAGE_SLAB ||
					      id == PAGE_WATCHED || id == PAGE_LINKED),
			      "page %zu has id %u", page, id);
			before = -1;
			pages = 1;
			walk.slab_pages++;
		}
		page += pages;
	}
	CHECK(page == top);
	CHECK(statistics.heap_pages == top);
	CHECK(statistics.dirty_pages == walk.dirty_pages, "%zu dirty pages, %zu by count", walk.dirty_pages,
	      statistics.dirty_pages);
	CHECK(statistics.used_pages == walk.large_pages + walk.slab_pages, "%zu used pages, %zu by count",
	      walk.large_pages + walk.slab_pages, statistics.used_pages);
	CHECK(statistics.large_pages == walk.large_pages && statistics.large_runs == walk.large_runs);
	return walk;
}

/* Runs `each` in `count` threads, numbered from 1, while another thread runs `beside` until *done. */
static inline void heap_threads(void *(*each)(void *), uintptr_t count, void *(*beside)(void *), bool *done)
{
	pthread_t threads[8], other = check_thread(beside, NULL);
	CHECK(count <= 8);
	for (uintptr_t i = 0; i < count; i++)
		threads[i] = check_thread(each, (void *)(i + 1));
	for (uintptr_t i = 0; i < count; i++)
		check_join(threads[i]);
	__atomic_store_n(done, true, __ATOMIC_RELAXED);
	check_join(other);
}

#endif
