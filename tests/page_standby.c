/* SPDX-License-Identifier: MIT */
/*
 * page_standby: a block that comes and goes does so without the page lock, a double free of it is found, and
 * it keeps nothing from others: its run can be reclaimed for any request, when memory is given back, and in a
 * forked child, and no two threads ever have it at once.  Threads on several vCPUs do not wait for each
 * other.
 */
#include "check.h"

#include "heap.h"
#include "options/options.h"
#include "page/page.h"
#include "still_clock.h"

/* A block has that many pages wherever in the first of them it begins (large.c). */
enum { LEARN = 64, PAIRS = 10000, PAGES = 256, BLOCK = PAGES * PAGE_BYTES - PAGE_BYTES / 2 };

static struct page_statistics statistics(void)
{
	struct page_statistics now;
	page_statistics(&now);
	return now;
}

/* Allocates, writes and frees the same block repeatedly; returns its last address. */
/* gcc knows that a freed block is no other's, but here it may be. */
static char *come_and_go(unsigned times, size_t bytes)
{
	char *volatile block = NULL;
	for (unsigned i = 0; i < times; i++) {
		CHECK((block = malloc(bytes)));
		memset(block, 1, 16);
		block[bytes - 1] = 1;
		free(block);
	}
	return block;
}

/* Page locks that so many pairs take, beyond the usual number for two statistics. */
static size_t locks_of(unsigned pairs, size_t bytes)
{
	size_t before = statistics().lock_acquires;
	(void)come_and_go(pairs, bytes);
	return statistics().lock_acquires - before;
}

static void test_without_lock(void)
{
	(void)come_and_go(LEARN, BLOCK);
	struct page_statistics before = statistics();
	struct cpuslab_counters calls_before = check_counters();
	size_t locks = locks_of(PAIRS, BLOCK);
	struct cpuslab_counters calls = check_counters();
	struct page_statistics after = statistics();
	CHECK(locks < PAIRS / 100, "%zu page locks", locks);
	CHECK(calls.alloc_misses - calls_before.alloc_misses == PAIRS);
	CHECK(calls.free_misses - calls_before.free_misses == PAIRS);
	CHECK(after.large_runs == before.large_runs && after.large_pages == before.large_pages);
	CHECK(after.used_pages == before.used_pages && after.dirty_pages == before.dirty_pages);
}

/* The same for a block aligned to pages, which begins with one. */
static void test_aligned_without_lock(void)
{
	size_t before = 0;
	for (unsigned i = 0; i < LEARN + PAIRS; i++) {
		char *block = aligned_alloc(PAGE_BYTES, BLOCK);
		CHECK(block && (uintptr_t)block % PAGE_BYTES == 0);
		free(block);
		if (i == LEARN)
			before = statistics().lock_acquires;
	}
	CHECK(statistics().lock_acquires - before < PAIRS / 100);
}

/* Blocks of several lengths at once, as in an image-processing program. */
static void frame(void)
{
	static const size_t lengths[] = {300 << 10, 700 << 10, 3 << 20, 5 << 20};
	char *blocks[4];
	for (unsigned k = 0; k < 4; k++) {
		CHECK((blocks[k] = malloc(lengths[k])));
		blocks[k][0] = blocks[k][lengths[k] - 1] = (char)k;
	}
	for (unsigned k = 0; k < 4; k++) {
		CHECK(blocks[k][0] == (char)k && blocks[k][lengths[k] - 1] == (char)k);
		free(blocks[k]);
	}
}

static void test_lengths(void)
{
	for (unsigned i = 0; i < LEARN; i++)
		frame();
	size_t before = statistics().lock_acquires;
	for (unsigned i = 0; i < PAIRS / 4; i++)
		frame();
	size_t locks = statistics().lock_acquires - before;
	CHECK(locks < PAIRS / 50, "%zu page locks", locks);
}

/* Each vCPU has a run of its own standing by, and takes another vCPU's if it has none. */
static void test_vcpus(void)
{
	malloc_trim(0);
	(void)come_and_go(LEARN, BLOCK);
	page_tick();
	char *blocks[2];
	for (unsigned i = 0; i < 2; i++)
		CHECK((blocks[i] = malloc(BLOCK)));
	for (unsigned i = 0; i < 2; i++)
		CHECK(page_put_standby(blocks[i], i), "no place for run %u", i);
	struct page_statistics both = statistics();
	CHECK(both.large_runs == 0 && both.dirty_pages >= 2 * PAGES);
	CHECK(page_of(page_take_standby(PAGES, 1)) == page_of(blocks[1]));
	CHECK(page_of(page_take_standby(PAGES, 1)) == page_of(blocks[0]));
	CHECK(!page_take_standby(PAGES, 0) && !page_take_standby(PAGES, 1));
	/* Without an owner, until it is recalled. */
	for (unsigned i = 0; i < 2; i++)
		CHECK(page_put_standby(blocks[i], i));
	page_tick();
	CHECK(!page_take_standby(PAGES, 0) && !page_take_standby(PAGES, 1) && statistics().large_runs == 0);
	heap_walk();
}

static void free_twice(void *argument)
{
	char *volatile block = come_and_go(LEARN, BLOCK);
	(void)argument;
	free(block);
}

static void test_serves_others(void)
{
	malloc_trim(0);
	char *block = come_and_go(LEARN, BLOCK);
	size_t top = statistics().heap_pages;
	char *other = malloc(BLOCK / 2);
	CHECK(page_of(other) - page_of(block) < PAGES && statistics().heap_pages == top);
	free(other);
}

static void test_given_back(void)
{
	char *block = come_and_go(LEARN, BLOCK);
	malloc_trim(0);
	CHECK(check_all_bytes(block, BLOCK, 0));
	CHECK(statistics().dirty_pages == 0);
	(void)come_and_go(LEARN, BLOCK);
	page_tick();
	CHECK(statistics().large_runs == 0);
	page_ebb(true);
	page_purge(false);
	CHECK(statistics().dirty_pages <= statistics().used_pages);
}

/* A run that nobody has asked for by the next tick must be learnt anew. */
static void test_forgotten(void)
{
	(void)come_and_go(LEARN, BLOCK);
	CHECK(locks_of(4, BLOCK) <= 1);
	page_tick();
	CHECK(locks_of(4, BLOCK) <= 3);
	page_tick(); /* it was asked for since the last tick */
	page_tick();
	CHECK(locks_of(4, BLOCK) >= 8);
}

static void test_not_where_memory_goes_back(void)
{
	size_t decay = options.decay, dirty = options.dirty;
	options.decay = 0;
	(void)come_and_go(LEARN, 3 * BLOCK);
	CHECK(locks_of(4, 3 * BLOCK) >= 8);
	options.decay = decay;
	options.dirty = 2 * BLOCK;
	(void)come_and_go(LEARN, 5 * BLOCK);
	CHECK(locks_of(4, 5 * BLOCK) >= 8);
	options.dirty = dirty;
}

/* A child that rebuilds its lists finds the run there, once. */
static void test_fork(void)
{
	(void)come_and_go(LEARN, BLOCK);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		page_repair(true);
		CHECK(statistics().large_runs == 0);
		char *one = malloc(BLOCK), *two = malloc(BLOCK);
		CHECK(one && two && (one + BLOCK <= two || two + BLOCK <= one));
		CHECK(statistics().large_runs == 2 && statistics().large_pages == 2 * PAGES);
		free(one);
		free(two);
		CHECK(statistics().large_runs == 0);
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
}

/*
 * The free that begins an ebb recalls the run beside its own, which must not be taken for a free one yet.
 * Runs as the first of all tests: no fall has been in vain yet.
 */
static void test_ebb_beside(void)
{
	enum { LARGE = 16 * BLOCK };
	malloc_trim(0);
	char *block = malloc(BLOCK), *large = malloc(LARGE);
	CHECK(block && page_of(large) == page_of(block) + PAGES, "%p, not behind %p", (void *)large,
	      (void *)block);
	/* Makes its first page look like that of a dirty run. */
	free(large);
	CHECK(malloc(LARGE) == large);
	free(block);
	CHECK(come_and_go(LEARN, BLOCK) == block);
	CHECK(heap_id(page_of(block) - page_front.heap_page) == PAGE_TRANSIT);
	free(large);
	CHECK(statistics().large_runs == 0);
	CHECK(heap_id(page_of(block) - page_front.heap_page) == PAGE_FREE, "no ebb");
	heap_walk();
}

static bool done;

/* Each writes a value of its own at both ends, and finds it there. */
static void *own(void *argument)
{
	uint64_t mine = (uintptr_t)argument;
	for (unsigned i = 0; i < PAIRS; i++) {
		char *block = malloc(BLOCK);
		volatile uint64_t *first = (uint64_t *)(void *)block, *last = first + BLOCK / 8 - 1;
		CHECK(block);
		*first = *last = mine;
		if (i % 16 == 0)
			sched_yield();
		CHECK(*first == mine && *last == mine);
		free(block);
	}
	return NULL;
}

/* Meanwhile recalls runs that stand by. */
static void *recall(void *argument)
{
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		page_tick();
		free(malloc(BLOCK / 2));
		sched_yield();
	}
	return argument;
}

static void test_threads(void)
{
	heap_threads(own, 3, recall, &done);
	CHECK(statistics().large_runs == 0 && statistics().large_pages == 0);
	/* With other threads present it takes atomic exchanges, and still no locks. */
	(void)come_and_go(LEARN, BLOCK);
	CHECK(locks_of(PAIRS, BLOCK) < PAIRS / 100);
}

int main(void)
{
	check_watchdog(100);
	test_ebb_beside();
	test_without_lock();
	test_aligned_without_lock();
	test_lengths();
	test_vcpus();
	check_stopped(free_twice, NULL, "already free");
	test_serves_others();
	test_given_back();
	test_forgotten();
	test_not_where_memory_goes_back();
	test_fork();
	test_threads();
	return 0;
}
