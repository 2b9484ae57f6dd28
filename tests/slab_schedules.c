/* SPDX-License-Identifier: MIT */
/*
 * slab_schedules: a look at whose a page is (magazine_cache), by a thread that holds no object there, stopped
 * at each instruction while another one gives the slab back, and its descriptor, or its pages as well, become
 * something else (schedules.h).  It finds the slab's cache or none, and nothing else.
 */
#include "check.h"

#include "linked/slab.h"
#include "magazine/magazine.h"
#include "page/page.h"
#include "slab/descriptor.h"
#include "slab/slab.h"

#include "schedules.h"

#ifdef __x86_64__

enum { SIZE = 64 << 10, PAGES = SIZE / PAGE_BYTES };
enum conflict { TO_METADATA, TO_LINKED, CONFLICTS };

static const char *const operations[] = {"look"};
static struct cache cache;
static void *object;
static struct cache *volatile found;
static char *block, *run;
static size_t descriptor_bytes;

static void begin(void)
{
	/* One object a slab, so that none is kept. */
	static const struct slab_traits traits = {.name = "test", .size = SIZE, .id = PAGE_SLAB};
	slab_cache_init(&cache.depot.slabs, &traits);
	CHECK(slab_alloc_batch(&cache.depot.slabs, &object, 1) == 1);
	CHECK(cache.depot.slabs.objects == 1 && magazine_cache(object) == &cache);
	descriptor_bytes = offsetof(struct slab, index) + 1;
}

static void operate(unsigned operation)
{
	(void)operation;
	TRACED_TRAP();
	found = magazine_cache(object);
	TRACED_TRAP();
}

static void conflict(unsigned kind)
{
	bool zeroed;
	const void *descriptor = slab_of_object(object);
	slab_free_batch(&cache.depot.slabs, &object, 1);
	CHECK(cache.depot.slabs.slabs == 0);
	block = metadata_alloc(descriptor_bytes);
	CHECK((void *)block == descriptor, "the descriptor's place is not used again");
	memset(block, 0x5a, descriptor_bytes);
	if (kind == TO_METADATA)
		return;
	run = page_alloc(PAGES, 1, PAGE_LINKED, &zeroed);
	CHECK((void *)run == object, "nor are its pages");
	for (uintptr_t page = page_of(run); page < page_of(run) + PAGES; page++)
		page_front.slab_of[page] = metadata_reference(block);
}

static void check(void)
{
	CHECK(!found || found == &cache, "%p", (void *)found);
	if (block) {
		for (uintptr_t page = page_of(object); run && page < page_of(object) + PAGES; page++)
			page_front.slab_of[page] = 0;
		if (run)
			page_free(run, PAGES);
		metadata_free(block, descriptor_bytes);
		block = run = NULL;
		CHECK(!magazine_cache(object));
		CHECK(slab_alloc_batch(&cache.depot.slabs, &object, 1) == 1);
	}
	CHECK(magazine_cache(object) == &cache);
}

int main(void)
{
	static const struct schedules look = {
		.operations = operations,
		.conflicts = CONFLICTS,
		.begin = begin,
		.operate = operate,
		.conflict = conflict,
		.check = check,
	};

	free(malloc(1));
	schedules_begin(&look);
	struct schedules_count stops = schedules_run(0);
	CHECK(stops.stops >= 20, "%u stops", stops.stops);
	schedules_end();
	return 0;
}

#endif
