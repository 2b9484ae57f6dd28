/* SPDX-License-Identifier: MIT */
/*
 * page_headroom: a large run that grows over and over does so without the page lock, into pages that are kept
 * behind it.  Lengths and counts are exact all the time, nobody else has those pages, and they can be
 * reclaimed for any request: when nothing else resident is left, at a tick, when memory is given back, when
 * the run is freed or shrinks, and in a forked child.  And realloc learns at which sizes all objects that it
 * moves keep growing.
 */
#include "check.h"

#include <cpuslab/cache.h>

#include "heap.h"
#include "page/headroom.h"
#include "still_clock.h"

enum { FIRST = 64 << 10, PAGES = FIRST / PAGE_BYTES, LAST = 1 << 20, SOME_SLAB = 40000 /* id of no cache */ };

static struct page_statistics statistics(void)
{
	struct page_statistics now;
	page_statistics(&now);
	return now;
}

/* A run of so many pages, all written, with headroom behind it. */
static char *growing(size_t pages)
{
	bool zeroed;
	char *run = page_alloc_to_grow(pages, &zeroed);
	CHECK(run && page_large_pages(run) == pages && headroom_pages() > 0);
	memset(run, 1, pages * PAGE_BYTES);
	return run;
}

/* Grows by single pages until nothing is left; returns the final length. */
static size_t grow_to_the_end(char *run)
{
	size_t pages = page_large_pages(run);
	while (page_large_grow(run, pages + 1)) {
		run[pages * PAGE_BYTES] = 1;
		pages++;
		CHECK(page_large_pages(run) == pages);
		CHECK(page_id(run) == PAGE_LARGE &&
		      page_id(run + (pages - 1) * PAGE_BYTES) == PAGE_LARGE_TAIL);
		CHECK(page_id(run + (pages - 2) * PAGE_BYTES) == PAGE_FREE || pages == 2);
	}
	return pages;
}

/* Grows a vector as a program does, writing as it grows. */
static char *grow_vector(char *vector, size_t from, size_t to)
{
	for (size_t length = from; length < to;) {
		size_t next = length + length / 10 < to ? length + length / 10 : to;
		CHECK((vector = realloc(vector, next)));
		CHECK(malloc_usable_size(vector) >= next && malloc_usable_size(vector) < 2 * next);
		CHECK(check_all_bytes(vector + length - 64, 64, 1));
		memset(vector + length, 1, next - length);
		length = next;
	}
	return vector;
}

/*
 * A block that stands by has grown without the lock: freeing the remaining run beside it leaves none, and
 * begins an ebb.  Runs as the first of all tests: no fall has been in vain yet.
 */
static void test_nothing_left(void)
{
	enum { LARGE = 16 << 20, LEARN = 64 };
	bool zeroed;
	for (int i = 0; i < LEARN; i++)
		page_free(page_alloc(PAGES, 1, PAGE_LARGE, &zeroed), PAGES);
	char *large = malloc(LARGE), *run = page_alloc_to_grow(PAGES - 4, &zeroed);
	CHECK(large && run && page_large_place(run, 0) == run && page_large_grow(run, PAGES));
	CHECK(page_put_standby(run, 0) == PAGES);
	free(large);
	CHECK(page_id(run) == PAGE_FREE, "no ebb");
	CHECK(statistics().large_runs == 0 && statistics().large_pages == 0);
	heap_walk();
}

static void test_without_lock(void)
{
	char *vector = malloc(FIRST);
	memset(vector, 1, FIRST);
	size_t before = statistics().lock_acquires;
	vector = grow_vector(vector, FIRST, LAST);
	struct page_statistics after = statistics();
	CHECK(after.lock_acquires - before < 12, "%zu page locks", after.lock_acquires - before);
	CHECK(after.large_runs == 1 && after.large_pages == LAST / PAGE_BYTES);
	CHECK(malloc_usable_size(vector) == LAST && check_all_bytes(vector, LAST, 1));
	heap_walk();
	/* Within its last page, growing or shrinking, it stays in place. */
	CHECK(realloc(vector, LAST - 1) == vector && realloc(vector, LAST) == vector);
	free(vector);
	CHECK(statistics().large_runs == 0 && statistics().large_pages == 0);
	heap_walk();
}

/* Small vectors that grow twice become runs as well. */
static void test_small_vectors(void)
{
	char *vector = NULL;
	for (size_t length = 5000; length < 32 << 10; length += 700) {
		vector = realloc(vector, length);
		CHECK(vector && malloc_usable_size(vector) >= length);
		memset(vector, 1, length);
	}
	struct page_statistics now = statistics();
	CHECK(now.large_runs == 1 && now.large_pages == 8, "%zu runs", now.large_runs);
	/* Shrunk to a class's size it moves to the class. */
	vector = realloc(vector, 1000);
	CHECK(vector && statistics().large_runs == 0 && check_all_bytes(vector, 1000, 1));
	free(vector);
}

/* Doubles it from a page to a MiB; returns how often it moved. */
static unsigned double_vector(void)
{
	unsigned moves = 0;
	char *vector = malloc(PAGE_BYTES);
	for (size_t length = PAGE_BYTES; length < LAST; length *= 2) {
		uintptr_t before = (uintptr_t)vector;
		vector[length - 1] = 1;
		vector = realloc(vector, 2 * length);
		CHECK(vector && vector[length - 1] == 1);
		moves += (uintptr_t)vector != before;
	}
	free(vector);
	return moves;
}

/*
 * When all vectors grow on, only the first move is a copy, and only that and the free take the page lock:
 * resident memory behind them is kept for the whole growth.
 */
static void test_learns(void)
{
	enum { VECTORS = 64 };
	unsigned moves = 0;
	for (int i = 0; i < VECTORS; i++)
		double_vector();
	size_t locks = statistics().lock_acquires;
	for (int i = 0; i < VECTORS; i++)
		moves += double_vector();
	locks = statistics().lock_acquires - locks;
	CHECK(moves <= VECTORS + VECTORS / 4, "%u moves of %d vectors", moves, VECTORS);
	CHECK(locks <= 2 * VECTORS + 8, "%zu page locks of %d vectors", locks, VECTORS);
}

/* Objects that grow only once soon stop becoming runs. */
static void test_forgets(void)
{
	unsigned runs = 0;
	for (int i = 0; i < 64; i++) {
		char *object = realloc(malloc(5000), 9000);
		runs += page_id(object) == PAGE_LARGE;
		free(object);
	}
	CHECK(runs > 0 && runs < 32, "%u runs", runs);
}

/* Takes runs like those of slabs until hoards are wanted; returns how often. */
static unsigned take_and_free(void)
{
	unsigned times = 1;
	bool zeroed;
	do
		page_free(page_alloc(LAST / PAGE_BYTES, 1, SOME_SLAB, &zeroed), LAST / PAGE_BYTES);
	while (!page_wants_hoards() && times++ < 100);
	return times;
}

/* Runs that grow again and again are no reason to search hoards for memory; new ones are. */
static void test_wants_no_hoards(void)
{
	bool zeroed;
	CHECK(take_and_free() <= 4);
	for (int i = 0; i < 32; i++) {
		char *run = page_alloc_to_grow(PAGES, &zeroed);
		CHECK(run && page_large_resize(run, LAST / PAGE_BYTES));
		page_free(run, LAST / PAGE_BYTES);
	}
	CHECK(!page_wants_hoards());
	CHECK(take_and_free() <= 4);
}

/* Headroom that the run does not use stays as it was: dirty, or zero. */
static void test_free(void)
{
	page_purge(true);
	char *run = growing(PAGES);
	size_t kept = headroom_pages();
	/* Of pages that are not resident, four times the length of the run. */
	CHECK(kept == 4 * PAGES, "%zu pages", kept);
	CHECK(page_large_grow(run, PAGES + 3) && headroom_pages() == kept - 3);
	page_free(run, PAGES + 3);
	CHECK(headroom_pages() == 0);
	struct heap_walk walk = heap_walk();
	CHECK(walk.large_pages == 0 && walk.dirty_pages >= PAGES);
	page_purge(true);
	/* Shorter free runs, of which there may be some, are taken before the one that begins here. */
	char *taken[64];
	unsigned count = 0;
	do {
		bool zeroed = false;
		CHECK(count < 64, "the run is not free as a whole");
		taken[count] = page_alloc(PAGES + kept, 1, PAGE_LARGE, &zeroed);
		CHECK(taken[count] && zeroed &&
		      check_all_bytes(taken[count], (PAGES + kept) * PAGE_BYTES, 0));
	} while (taken[count++] != run);
	while (count)
		page_free(taken[--count], PAGES + kept);
}

static void test_all_of_it(void)
{
	char *run = growing(PAGES);
	size_t all = PAGES + headroom_pages();
	CHECK(!page_large_grow(run, all + 1) && headroom_pages() == all - PAGES);
	CHECK(page_large_grow(run, all) && headroom_pages() == 0);
	CHECK(page_large_grow(run, all) && !page_large_grow(run, all + 1) && !page_large_grow(run, all - 1));
	CHECK(statistics().large_pages == all);
	page_free(run, all);
	run = growing(1);
	all = grow_to_the_end(run);
	CHECK(all > 1 && statistics().large_pages == all);
	heap_walk();
	page_free(run, all);
	CHECK(statistics().large_runs == 0);
	heap_walk();
}

static void test_shrinks(void)
{
	char *run = growing(PAGES);
	CHECK(page_large_grow(run, PAGES + 4) && page_large_resize(run, PAGES - 4));
	CHECK(headroom_pages() == 0 && statistics().large_pages == PAGES - 4);
	heap_walk();
	/* And grows again over the pages that it had. */
	CHECK(page_large_resize(run, PAGES + 1) && headroom_pages() > 0);
	CHECK(page_large_grow(run, PAGES + 2));
	CHECK(check_all_bytes(run, (PAGES - 4) * PAGE_BYTES, 1));
	page_free(run, PAGES + 2);
	heap_walk();
}

/* Several at once, more than there are places. */
static void test_many(void)
{
	enum { RUNS = 3 * HEADROOM_PLACES };
	char *runs[RUNS];
	size_t pages[RUNS];
	for (int i = 0; i < RUNS; i++) {
		bool zeroed;
		pages[i] = PAGES;
		CHECK((runs[i] = page_alloc_to_grow(PAGES, &zeroed)));
	}
	for (int round = 0; round < 100; round++)
		for (int i = 0; i < RUNS; i++)
			if (page_large_grow(runs[i], pages[i] + 1) ||
			    page_large_resize(runs[i], pages[i] + 1)) {
				pages[i]++;
				*(int *)(void *)(runs[i] + (pages[i] - 1) * PAGE_BYTES) = i + 1;
			}
	size_t all = 0;
	for (int i = 0; i < RUNS; i++) {
		for (size_t page = PAGES; page < pages[i]; page++)
			CHECK(*(int *)(void *)(runs[i] + page * PAGE_BYTES) == i + 1, "page %zu of run %d",
			      page, i);
		all += pages[i];
	}
	CHECK(all > 2 * RUNS * PAGES && statistics().large_pages == all);
	heap_walk();
	for (int i = 0; i < RUNS; i++)
		page_free(runs[i], pages[i]);
	heap_walk();
}

/* Resident headroom serves other requests before they take memory from the system. */
static void test_serves_others(void)
{
	bool zeroed;
	page_purge(true);
	char *block = page_alloc(4 * PAGES, 1, SOME_SLAB, &zeroed);
	memset(block, 1, 4 * PAGES * PAGE_BYTES);
	page_free(block, 4 * PAGES);
	char *run = growing(PAGES);
	size_t top = page_heap_pages();
	CHECK(run == block && headroom_pages() == 3 * PAGES);
	char *other = page_alloc(3 * PAGES, 1, SOME_SLAB, &zeroed);
	CHECK(other == run + PAGES * PAGE_BYTES && !zeroed && page_heap_pages() == top);
	page_free(other, 3 * PAGES);
	page_free(run, PAGES);
	heap_walk();
}

/* At the end of a large heap the next block, which may become a huge page, is not used as headroom. */
static void test_begins_no_block(void)
{
	enum { BLOCK = 512, LARGE_HEAP = 10 * 1024, LEFT = 2 };
	bool zeroed;
	size_t pages = LARGE_HEAP;
	page_purge(true);
	char *run = page_alloc(pages, 1, PAGE_LARGE, &zeroed);
	CHECK(run && page_of(run) + pages == page_front.heap_page + page_heap_pages());
	pages += (2 * BLOCK - LEFT - page_heap_pages() % BLOCK) % BLOCK + BLOCK;
	CHECK(page_large_resize(run, pages) && headroom_pages() == LEFT, "%zu pages are kept",
	      headroom_pages());
	page_free(run, pages);
	page_purge(true);
}

static void ebb(void)
{
	page_ebb(false);
}

static void test_given_back(void)
{
	static void (*const back[])(void) = {page_tick, ebb, NULL};
	for (size_t i = 0; i < sizeof back / sizeof *back; i++) {
		char *run = growing(PAGES);
		if (back[i])
			back[i]();
		else
			page_purge(true);
		CHECK(headroom_pages() == 0 && !page_large_grow(run, PAGES + 1));
		heap_walk();
		page_free(run, PAGES);
	}
}

/* A child goes on with the headroom, or finds it free where the lists are rebuilt. */
static void test_fork(void)
{
	for (int repaired = 0; repaired < 2; repaired++) {
		char *run = growing(PAGES);
		CHECK(page_large_grow(run, PAGES + 2));
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			if (repaired)
				page_repair(true);
			CHECK(page_large_grow(run, PAGES + 3) != repaired);
			CHECK(statistics().large_pages == PAGES + (repaired ? 2 : 3));
			heap_walk();
			CHECK(page_large_resize(run, PAGES + 4) && page_large_grow(run, PAGES + 5));
			page_free(run, PAGES + 5);
			CHECK(statistics().large_runs == 0);
			heap_walk();
			_exit(0);
		}
		CHECK_EXITED(check_wait(child), 0);
		page_free(run, PAGES + 2);
	}
}

static bool done;

/* Marks each page from `from` to `to` as the run's; a second call checks the marks. */
static void sign(char *run, size_t from, size_t to, uint64_t mine)
{
	for (size_t page = from; page < to; page++)
		*(volatile uint64_t *)(void *)(run + page * PAGE_BYTES) = mine + page;
}

static void check_signed(const char *run, size_t pages, uint64_t mine)
{
	for (size_t page = 0; page < pages; page++)
		CHECK(*(const volatile uint64_t *)(const void *)(run + page * PAGE_BYTES) == mine + page,
		      "page %zu of %zu", page, pages);
}

static unsigned long grown_without_lock;

static void *own(void *argument)
{
	uint64_t random = (uintptr_t)argument;
	unsigned long grown = 0, rounds = check_rounds(3000, 100000, 100);
	for (unsigned long i = 0; i < rounds; i++) {
		uint64_t mine = check_random(&random) << 16;
		size_t pages = 1 + check_below(&random, 32), last = 200;
		bool zeroed, can = true;
		char *run = page_alloc_to_grow(pages, &zeroed);
		CHECK(run);
		sign(run, 0, pages, mine);
		while (can && pages < last) {
			size_t next = pages + 1 + check_below(&random, 3);
			bool alone = page_large_grow(run, next);
			can = alone || page_large_resize(run, next);
			if (!can)
				break;
			grown += alone;
			sign(run, pages, next, mine);
			pages = next;
			if (next % 16 == 0)
				sched_yield();
		}
		CHECK(page_large_pages(run) == pages);
		check_signed(run, pages, mine);
		page_free(run, pages);
	}
	__atomic_fetch_add(&grown_without_lock, grown, __ATOMIC_RELAXED);
	return NULL;
}

/* Meanwhile reclaims the pages that are kept. */
static void *recall(void *argument)
{
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		page_tick();
		sched_yield();
	}
	return argument;
}

static void test_threads(void)
{
	heap_threads(own, 3, recall, &done);
	CHECK(grown_without_lock > 1000, "%lu times", grown_without_lock);
	CHECK(statistics().large_runs == 0 && statistics().large_pages == 0);
	heap_walk();
}

/*
 * When the heap is at its end a size class and a linked cache get the kept pages, too, before they are
 * refused.
 */
static void serves_the_last(void *(*take)(void *), void *argument)
{
	char *run = growing(PAGES);
	CHECK(headroom_pages() >= PAGES);
	unsigned taken = 0;
	while (take(argument))
		taken++;
	CHECK(taken > 0 && errno == ENOMEM);
	CHECK(headroom_pages() == 0, "%zu pages are kept", headroom_pages());
	CHECK(check_all_bytes(run, PAGES * PAGE_BYTES, 1));
	page_free(run, PAGES);
}

/* Less than a page: objects from a page on are served beside the heap. */
static void *from_class(void *unused)
{
	(void)unused;
	return malloc(PAGE_BYTES / 2);
}

static void *from_cache(void *cache)
{
	return cpuslab_cache_alloc(cache);
}

static void *several_from_cache(void *cache)
{
	void *objects[8];
	return cpuslab_cache_alloc_bulk(cache, 8, objects) ? objects[0] : NULL;
}

static void test_full(const char *what)
{
	struct cpuslab_cache_args args = {.name = "last", .size = 1000, .engine = CPUSLAB_ENGINE_LINKED};
	struct cpuslab_cache *cache = strcmp(what, "class") == 0 ? NULL : cpuslab_cache_create(&args);
	serves_the_last(!cache                       ? from_class
			: strcmp(what, "cache") == 0 ? from_cache
						     : several_from_cache,
			cache);
}

int main(int argc, char **argv)
{
	check_watchdog(100);
	free(malloc(1));
	if (argc > 1) {
		test_full(argv[1]);
		return 0;
	}
	test_nothing_left();
	test_without_lock();
	test_small_vectors();
	test_learns();
	test_forgets();
	test_wants_no_hoards();
	test_free();
	test_all_of_it();
	test_shrinks();
	test_many();
	test_serves_others();
	test_begins_no_block();
	test_given_back();
	test_fork();
	test_threads();
	check_again("reserve:8M", "class");
	check_again("reserve:8M", "cache");
	check_again("reserve:8M", "several");
	return 0;
}
