/* SPDX-License-Identifier: MIT */
/*
 * slab_schedules: a thread that holds no object of a slab looks at its pages, stopped at each instruction
 * while another thread frees the slab, and its descriptor, or its pages as well, are reused (schedules.h).
 *
 *   look          whose a page is (magazine_cache): it finds the slab's cache or none, and nothing else; also
 *                 where the descriptor is another thing at one instruction, and the slab's again at a later
 *                 one
 *   watch_page,   frees into a page, or a slab, are to be seen (slab_watch_page, slab_watch_pages): while
 *   watch_pages   the slab's pages become a large object, and its descriptor that of another slab of the
 *                 cache, made by an allocation that does not wait for locks, nothing is written to memory
 *                 that is not the cache's
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
enum conflict { TO_METADATA, TO_LINKED, CONFLICTS, BACK };
enum operation { LOOK, WATCH_PAGE, WATCH_PAGES };

static const char *const operations[] = {"look", "watch_page", "watch_pages"};
static unsigned doing;
static struct cache cache;
static void *object, *other;
static struct cache *volatile found;
static char *block, *run;
static size_t descriptor_bytes;

static void begin(void)
{
	/* One object in each slab, so that no slab is kept. */
	static const struct slab_traits traits = {.name = "test", .size = SIZE, .id = PAGE_SLAB};
	slab_cache_init(&cache.depot.slabs, &traits);
	CHECK(slab_alloc_batch(&cache.depot.slabs, &object, 1) == 1);
	CHECK(cache.depot.slabs.objects == 1 && magazine_cache(object) == &cache);
	descriptor_bytes = offsetof(struct slab, index) + 1;
}

/* ---- watched while it is freed ------------------------------------------------------------------------- */

/* The part of slab_free_batch under the cache's lock: no list has the slab, and only its pages lead to it. */
static void begin_release(void)
{
	struct slab_cache *slabs = &cache.depot.slabs;
	struct slab *slab = slab_of_object(object);
	slab->in_use = 0;
	slab->index.narrow[0] = 0;
	slabs->slabs--;
	slabs->full_slabs--;
	slabs->allocated--;
}

/* The rest of it, and of slab_release. */
static void end_release(void)
{
	struct slab *slab = slab_of_object(object);
	for (uintptr_t page = page_of(object); page < page_of(object) + PAGES; page++)
		page_front.slab_of[page] = 0;
	page_free(object, PAGES);
	metadata_free(slab, descriptor_bytes);
}

static bool all_watched(const char *first, unsigned count, bool before)
{
	(void)first, (void)count, (void)before;
	return true;
}

static void watch(void)
{
	if (doing == WATCH_PAGE)
		slab_watch_page(&cache.depot.slabs, object);
	else
		(void)slab_watch_pages(&cache.depot.slabs, object, all_watched);
}

static void conflict_with_watch(void)
{
	bool zeroed;
	const void *descriptor = slab_of_object(object);
	end_release();
	run = page_alloc(PAGES, 1, PAGE_LARGE, &zeroed);
	CHECK((void *)run == object, "the slab's pages are not used again");
	other = slab_try_alloc(&cache.depot.slabs);
	CHECK(other && slab_of_object(other) == descriptor, "nor is its descriptor");
}

static void check_watched(void)
{
	if (run) {
		CHECK(page_id(run) == PAGE_LARGE, "a large object's page says %u", page_id(run));
		page_free(run, PAGES);
		slab_free_batch(&cache.depot.slabs, &other, 1);
		run = NULL;
	} else {
		end_release();
	}
	CHECK(slab_alloc_batch(&cache.depot.slabs, &object, 1) == 1);
}

/* ---- all of them -------------------------------------------------------------------------------------- */

static void operate(unsigned operation)
{
	doing = operation;
	if (doing != LOOK)
		begin_release();
	TRACED_TRAP();
	if (doing == LOOK)
		found = magazine_cache(object);
	else
		watch();
	TRACED_TRAP();
}

/* Restores the slab after TO_METADATA. */
static void bring_back(void)
{
	const char *descriptor = block;
	void *before = object;
	metadata_free(block, descriptor_bytes);
	block = NULL;
	CHECK(slab_alloc_batch(&cache.depot.slabs, &object, 1) == 1);
	CHECK(object == before && (char *)slab_of_object(object) == descriptor, "not the same slab again");
}

static void conflict(unsigned kind)
{
	bool zeroed;
	const void *descriptor = slab_of_object(object);
	if (doing != LOOK) {
		conflict_with_watch();
		return;
	}
	if (kind == BACK) {
		bring_back();
		return;
	}
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
	if (doing != LOOK) {
		check_watched();
		return;
	}
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

/* One round with the first conflict at one place, and the second at a later one. */
static unsigned stop_twice_at(uintptr_t first, uintptr_t second)
{
	unsigned stops = 0;
	schedules_shared->operation = LOOK;
	CHECK(go_on());
	set_debug_register(0, first);
	set_debug_register(7, 1);
	CHECK(go_on());
	if (!at_own_trap()) {
		schedules_shared->conflict = TO_METADATA;
		(void)schedules_let_other();
		set_debug_register(0, second);
		CHECK(go_on());
	}
	if (!at_own_trap()) {
		schedules_shared->conflict = BACK;
		(void)schedules_let_other();
		stops = 1;
	}
	set_debug_register(7, 0);
	if (stops)
		CHECK(go_on());
	return stops;
}

static unsigned stop_twice(void)
{
	unsigned stops = 0;
	schedules_find_places(LOOK);
	for (size_t i = 0; i < (size_t)(text_end - text_start); i++)
		for (size_t j = 0; j < (size_t)(text_end - text_start) && schedules_reached[i]; j++)
			if (schedules_reached[j])
				stops += stop_twice_at((uintptr_t)text_start + i, (uintptr_t)text_start + j);
	printf("  look: stopped %u times in two places\n", stops);
	return stops;
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
	for (unsigned operation = LOOK; operation <= WATCH_PAGES; operation++) {
		struct schedules_count stops = schedules_run(operation);
		CHECK(stops.stops >= 20, "%u stops", stops.stops);
	}
	CHECK(stop_twice() >= 20);
	schedules_end();
	return 0;
}

#endif
