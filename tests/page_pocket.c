/* SPDX-License-Identifier: MIT */
/*
 * page_pocket: large blocks of many lengths that are replaced come from their vCPU's pocket and go there,
 * without the page lock; counts say what is in use all the same; and what lies there is free for whatever is
 * asked for, when the program has less and less, when memory is given back, and in a forked child.  No two
 * threads ever have it at once.  A program whose threads do not wait for the page lock has no pockets.
 */
#include "check.h"

#include "heap.h"
#include "options/options.h"
#include "page/headroom.h"
#include "page/layout.h"
#include "page/page.h"
#include "page/pocket.h"
#include "still_clock.h"
#include "vcpu/vcpu.h"

enum { RING = 8, LEAST = 40, STEPS = 4000, EARNED = 32 };

static struct page_statistics statistics(void)
{
	struct page_statistics now;
	page_statistics(&now);
	return now;
}

static uint32_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

struct ring {
	char *blocks[RING];
	size_t pages[RING];
	uint64_t state, mine;
};

/* Each page has its owner's value. */
static void replace(struct ring *ring)
{
	unsigned k = next(&ring->state) % RING;
	for (size_t page = 0; page < ring->pages[k]; page += 7)
		CHECK(*(volatile uint64_t *)(void *)(ring->blocks[k] + page * PAGE_BYTES) == ring->mine + k);
	free(ring->blocks[k]);
	ring->pages[k] = LEAST + next(&ring->state) % (2 * LEAST);
	/* As many pages with any colour: see large.c. */
	CHECK((ring->blocks[k] = malloc(ring->pages[k] * PAGE_BYTES - PAGE_BYTES / 2)));
	for (size_t page = 0; page < ring->pages[k]; page += 7)
		*(volatile uint64_t *)(void *)(ring->blocks[k] + page * PAGE_BYTES) = ring->mine + k;
}

static void fill(struct ring *ring, uint64_t seed)
{
	*ring = (struct ring){.state = seed, .mine = seed << 32};
	for (unsigned i = 0; i < 16 * RING; i++)
		replace(ring);
}

static void empty(struct ring *ring)
{
	for (unsigned k = 0; k < RING; k++) {
		free(ring->blocks[k]);
		ring->blocks[k] = NULL;
	}
}

static size_t in_use(const struct ring *ring)
{
	size_t pages = 0;
	for (unsigned k = 0; k < RING; k++)
		pages += ring->pages[k];
	return pages;
}

/* As threads that wait for each other do. */
static void earn(void)
{
	run_lock();
	for (unsigned i = 0; i < EARNED; i++)
		pocket_waited();
	run_unlock();
}

static struct ring ring;

/* A ring whose blocks pockets serve. */
static void begin(void)
{
	fill(&ring, 1);
	earn();
	CHECK(pocket_open);
	for (unsigned i = 0; i < STEPS; i++)
		replace(&ring);
	CHECK(pocket_pages() > 0);
}

static void test_not_alone(void)
{
	fill(&ring, 1);
	for (unsigned i = 0; i < STEPS; i++)
		replace(&ring);
	empty(&ring);
	CHECK(!pocket_open && !pocket_count, "one thread has pockets");
}

/* Waits that are far apart open nothing, however many there are. */
static void test_not_where_waits_are_rare(void)
{
	fill(&ring, 1);
	for (unsigned i = 0; i < 4 * EARNED; i++) {
		if (i % (EARNED - 1) == 0)
			page_tick();
		run_lock();
		pocket_waited();
		run_unlock();
		CHECK(!pocket_open, "open after %u waits", i + 1);
	}
	page_tick();
	empty(&ring);
}

static void test_without_lock(void)
{
	begin();
	struct page_statistics before = statistics();
	struct cpuslab_counters calls_before = check_counters();
	for (unsigned i = 0; i < STEPS; i++)
		replace(&ring);
	struct cpuslab_counters calls = check_counters();
	struct page_statistics after = statistics();
	size_t locks = after.lock_acquires - before.lock_acquires;
	CHECK(locks < STEPS, "%zu page locks for %u blocks", locks, STEPS);
	CHECK(calls.alloc_misses - calls_before.alloc_misses == STEPS);
	CHECK(calls.free_misses - calls_before.free_misses >= STEPS);
	CHECK(after.large_runs == RING && after.large_pages == in_use(&ring), "%zu runs, %zu pages of %zu",
	      after.large_runs, after.large_pages, in_use(&ring));
	CHECK(after.dirty_pages >= pocket_pages());
	page_tick();
	CHECK(pocket_pages() == 0);
	CHECK(heap_walk().large_pages == in_use(&ring));
	empty(&ring);
	CHECK(pocket_pages() == 0 && statistics().large_runs == 0, "%zu pages are left", pocket_pages());
	heap_walk();
}

/* Of several frees in a row the first alone may come to lie here; and the last ones find it. */
static void test_falls(void)
{
	begin();
	empty(&ring);
	CHECK(pocket_pages() == 0 && !pocket_open, "%zu pages are left", pocket_pages());
	CHECK(statistics().large_runs == 0 && statistics().large_pages == 0);
	heap_walk();
}

static void test_forgotten(void)
{
	begin();
	page_tick();
	CHECK(pocket_open && pocket_pages() == 0);
	page_tick();
	CHECK(!pocket_open);
	empty(&ring);
}

static void test_serves_others(void)
{
	begin();
	size_t top = statistics().heap_pages, pages = statistics().dirty_pages;
	/* More than is free anywhere else. */
	CHECK(pocket_pages() > 0);
	malloc_trim(0);
	CHECK(pocket_pages() == 0 && statistics().dirty_pages == 0, "%zu pages of %zu are dirty",
	      statistics().dirty_pages, pages);
	CHECK(statistics().heap_pages == top);
	empty(&ring);
}

/* The headroom behind a run is not the pocket's. */
static void test_no_growing_run(void)
{
	bool zeroed;
	begin();
	char *growing = page_alloc_to_grow(LEAST, &zeroed),
	     *other = malloc(LEAST * PAGE_BYTES - PAGE_BYTES / 2);
	CHECK(growing && other);
	(void)page_large_place(growing, 0);
	CHECK(headroom_is_behind((uint32_t)(page_of(growing) - page_front.heap_page), LEAST));
	CHECK(page_put_standby(growing, arch_id(vcpu_self)) == 0);
	CHECK(page_put_standby(other, arch_id(vcpu_self)) == LEAST);
	free(growing);
	empty(&ring);
	heap_walk();
}

static void test_not_where_memory_goes_back(void)
{
	unsigned decay = (unsigned)options.decay;
	page_tick();
	page_tick();
	options.decay = 0;
	earn();
	CHECK(!pocket_open);
	options.decay = decay;
}

static void free_twice(void *argument)
{
	(void)argument;
	begin();
	char *volatile block = ring.blocks[0];
	ring.blocks[0] = NULL;
	free(block);
	free(block);
}

static void test_fork(void)
{
	begin();
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		for (unsigned i = 0; i < STEPS; i++)
			replace(&ring);
		CHECK(statistics().large_runs == RING && statistics().large_pages == in_use(&ring));
		page_repair(true);
		CHECK(statistics().large_runs == RING && statistics().large_pages == in_use(&ring));
		CHECK(pocket_pages() == 0);
		heap_walk();
		empty(&ring);
		CHECK(statistics().large_runs == 0);
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
	empty(&ring);
}

static bool done;

static void *own(void *argument)
{
	struct ring mine;
	fill(&mine, (uintptr_t)argument);
	for (unsigned i = 0; i < 4 * STEPS; i++) {
		replace(&mine);
		if (i % 64 == 0)
			sched_yield();
	}
	empty(&mine);
	return NULL;
}

/* What lies there is taken away meanwhile, and comes back. */
static void *recall(void *argument)
{
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		page_tick();
		for (unsigned i = 0; i < 100; i++) {
			earn();
			free(malloc(LEAST * PAGE_BYTES - PAGE_BYTES / 2));
			sched_yield();
		}
	}
	return argument;
}

static void test_threads(void)
{
	uint64_t before, takes, puts;
	pocket_calls(&before, &puts);
	heap_threads(own, 3, recall, &done);
	pocket_calls(&takes, &puts);
	CHECK(takes > before);
	page_tick();
	CHECK(pocket_pages() == 0 && statistics().large_runs == 0 && statistics().large_pages == 0);
	heap_walk();
}

int main(void)
{
	check_watchdog(100);
	/* One vCPU's. */
	cpu_set_t all, one;
	CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &one);
	CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
	test_not_alone();
	test_not_where_waits_are_rare();
	test_without_lock();
	test_falls();
	test_forgotten();
	test_serves_others();
	test_no_growing_run();
	test_not_where_memory_goes_back();
	check_stopped(free_twice, NULL, "already free");
	test_fork();
	CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
	test_threads();
	return 0;
}
