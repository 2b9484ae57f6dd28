/* SPDX-License-Identifier: MIT */
/*
 * page_hardened: placement in hardened mode.  Metadata is so far from the heap that no page of the
 * processor's page tables covers both; and a page of one size class never becomes one of another.
 */
#include "check.h"

#include "page/page.h"

enum { GIB = 1 << 30, OBJECTS = 3000, SIZE = 200, OTHER = 900 };

/* A page of the second-lowest level of the page tables covers about a gibibyte. */
static void apart(const char *what, const void *address)
{
	uintptr_t heap = page_front.heap_page << PAGE_SHIFT, end = page_front.end << PAGE_SHIFT;
	uintptr_t at = (uintptr_t)address;

	CHECK(at < heap ? heap - at >= GIB : at >= end && at - end >= GIB,
	      "%s at %p, the heap from %#zx to %#zx", what, address, heap, end);
}

static void test_metadata_apart(void)
{
	uintptr_t last = page_front.end - 1;
	void *heap = (void *)(page_front.heap_page << PAGE_SHIFT), *end = (void *)(last << PAGE_SHIFT);

	apart("the page map", &page_front.map[page_front.heap_page]);
	apart("the page map's end", &page_front.map[last]);
	apart("slab_of", &page_front.slab_of[page_front.heap_page]);
	apart("slab_of's end", &page_front.slab_of[last]);
	apart("the marks", page_mark(heap));
	apart("the marks' end", page_mark(end));
	apart("metadata", page_front.metadata);
	apart("metadata's end", page_front.metadata + page_front.metadata_bytes - 1);
}

/* Freed and given back to the system, yet no other class gets it. */
static void test_classes_apart(void)
{
	static void *objects[OBJECTS], *others[OBJECTS];

	for (int i = 0; i < OBJECTS; i++) {
		objects[i] = malloc(SIZE);
		CHECK(objects[i] && page_is_heap(objects[i]));
	}
	uint16_t id = page_id(objects[0]);

	for (int i = 0; i < OBJECTS; i++)
		free(objects[i]);
	struct page_statistics before, after;

	page_statistics(&before);
	CHECK(malloc_trim(0) == 1);
	page_statistics(&after);
	CHECK(after.purged_pages_total - before.purged_pages_total >= (size_t)OBJECTS * SIZE / PAGE_BYTES / 2,
	      "%zu pages are said to have gone", after.purged_pages_total - before.purged_pages_total);
	for (int i = 0; i < OBJECTS; i++) {
		others[i] = malloc(OTHER);
		CHECK(others[i] && page_id(others[i]) != id);
	}
	for (int i = 0; i < OBJECTS; i++)
		CHECK(page_id(objects[i]) == id, "%p was in use before, and its page is another one's",
		      objects[i]);
	for (int i = 0; i < OBJECTS; i++)
		free(others[i]);
}

int main(void)
{
	if (!check_hardened()) {
		check_again("hardened:1", NULL);
		return 0;
	}
	check_watchdog(60);
	free(malloc(1));
	test_metadata_apart();
	test_classes_apart();
	return 0;
}
