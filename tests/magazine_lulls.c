/* SPDX-License-Identifier: MIT */
/*
 * magazine_lulls: what a program freed last goes back by age though it then makes few calls, all of which
 * magazines could serve: after blocks, after blocks that stand by, and after a mapping.  So does what waits
 * in depots after many small objects, when blocks are freed behind them, or the first large object of a
 * class, or when a fall that was passed over lasts; double frees meanwhile are found; and a program that goes
 * on with many calls keeps its magazines, however often large blocks come and go.
 */
#include "check.h"

#include "heap.h"
#include "moved_clock.h"
#include "page/page.h"

enum { MIB = 1 << 20, FALLS = 6, LEARN = 64, SMALL = 100, CALLS = 1000, STEP = 10, REST = 2000 };
enum { BURST = 10000, BLOCK = 384 << 10, OF_A_CLASS = 128 << 10 };

/* Bytes that wait to go back. */
static size_t waiting(void)
{
	struct page_statistics now;
	page_statistics(&now);
	return (now.dirty_pages << PAGE_SHIFT) + now.huge_cached_bytes;
}

static char *block(size_t bytes)
{
	char *made = malloc(bytes);
	CHECK(made);
	memset(made, 1, bytes);
	return made;
}

/* Falls in vain, after which the memory of the next ones stays. */
static void blocks(unsigned lengths)
{
	for (unsigned i = 0; i < FALLS * lengths; i++) {
		char *made[3];
		for (size_t k = 0; k < 3; k++)
			made[k] = block((8 + k) * MIB + i % lengths * PAGE_BYTES);
		for (unsigned k = 0; k < 3; k++)
			free(made[k]);
	}
}

/* Each of these returns the object to be freed last. */
static void *many_lengths(void)
{
	blocks(FALLS);
	return block(20 * MIB);
}

/* Its run stands by once it is freed. */
static void *one_length(void)
{
	for (unsigned i = 0; i < LEARN; i++)
		free(block(24 * MIB));
	return block(24 * MIB);
}

/*
 * A mapping, with no memory of the heap waiting: the block behind the object kept it from growing in place.
 */
static void *vector(void)
{
	char *one = block(40 * MIB), *other = block(40 * MIB);
	char *low = one < other ? one : other, *high = one < other ? other : one;
	char *moved = realloc(low, 64 * MIB);
	CHECK(moved && !page_is_heap(moved));
	free(high);
	malloc_trim(0);
	return moved;
}

static void small_calls(unsigned pairs)
{
	for (unsigned i = 0; i < pairs; i++) {
		void *volatile object = malloc(SMALL);
		CHECK(object);
		free(object);
	}
}

static void test_rest(void *(*work)(void))
{
	void *last = work();
	small_calls(CALLS);
	milliseconds += STEP;
	free(last);
	size_t before = waiting();
	CHECK(before >= 16 * MIB, "%zu bytes", before);
	for (unsigned i = 0; i < REST / STEP; i++) {
		milliseconds += STEP;
		small_calls(1);
	}
	CHECK(waiting() <= 2 * MIB, "%zu of %zu bytes", waiting(), before);
	heap_walk();
}

/* Also counts the memory of slabs, nearly all of which depots keep. */
static size_t held(void)
{
	struct page_statistics now;
	page_statistics(&now);
	return ((now.dirty_pages + now.used_pages) << PAGE_SHIFT) + now.huge_cached_bytes;
}

/*
 * Like a program that handles requests: too few objects for an ebb, and all of them come back.  The last ones
 * of each stay on the word.
 */
static void test_small(size_t last_bytes)
{
	static void *objects[BURST];
	malloc_trim(0);
	size_t least = held();
	char *first = block(last_bytes), *last = block(last_bytes);
	for (unsigned turn = 0; turn < FALLS; turn++) {
		for (unsigned i = 0; i < BURST; i++)
			objects[i] = block(SMALL);
		for (unsigned i = 0; i < BURST; i++)
			free(objects[i]);
		milliseconds += STEP;
	}
	free(first);
	free(last);
	size_t before = held();
	CHECK(before - least >= MIB, "%zu bytes", before - least);
	for (unsigned i = 0; i < REST / STEP; i++) {
		milliseconds += STEP;
		small_calls(1);
	}
	CHECK(held() - least <= MIB / 8, "%zu: %zu of %zu bytes", last_bytes, held() - least, before - least);
	heap_walk();
}

/*
 * Bursts of small objects, most of which are followed in vain, so that the last ones are passed over; then a
 * few calls now and then, more at once than a lull lets by in a millisecond.
 */
static void test_bursts(void)
{
	enum {
		OBJECTS = 20000,
		MOST = 4000,
		BURSTS = 5,
		APART = 300,
		CHECKS = 40,
		WAIT = 200,
		DECAYED = 5000
	};
	static void *objects[OBJECTS];
	malloc_trim(0);
	size_t least = held(), before;
	for (unsigned turn = 0; turn < BURSTS; turn++) {
		for (unsigned i = 0; i < OBJECTS; i++)
			objects[i] = block(100 + i * 37 % MOST);
		for (unsigned i = 0; i < OBJECTS; i++)
			free(objects[i]);
		milliseconds += APART;
	}
	before = held() - least;
	CHECK(before >= 16 * MIB, "%zu bytes", before);
	for (unsigned i = 0; i < DECAYED / WAIT; i++) {
		for (unsigned k = 0; k < CHECKS; k++)
			objects[k] = block(100 + (i + k) * 611 % MOST);
		for (unsigned k = 0; k < CHECKS; k++)
			free(objects[k]);
		milliseconds += WAIT;
	}
	CHECK(held() - least <= before / 8, "%zu of %zu bytes", held() - least, before);
	heap_walk();
}

/*
 * Many small objects of many sizes, freed before the blocks: when the last of them are back, too little is
 * left for an ebb, and no calls follow.  Once in a fall the blocks bring one.
 */
static void test_end(void)
{
	enum { OBJECTS = 50000, SIZES = 60 };
	static void *objects[OBJECTS];
	malloc_trim(0);
	size_t least = held();
	char *first = block(BLOCK), *last = block(BLOCK);
	for (unsigned i = 0; i < OBJECTS; i++)
		objects[i] = block(16 + 16 * (i % SIZES));
	/* Each as far as possible from the one before; 7919 is coprime with all numbers here. */
	for (unsigned i = 0; i < OBJECTS; i++)
		free(objects[i * 7919 % OBJECTS]);
	CHECK(held() - least > 2 * BLOCK + MIB / 16, "%zu bytes", held() - least);
	free(first);
	free(last);
	CHECK(held() - least <= MIB / 16, "%zu bytes", held() - least);
	heap_walk();
}

static uint64_t misses(void)
{
	struct cpuslab_counters now = check_counters();
	return now.alloc_misses + now.free_misses;
}

/* Many calls at the same time on the clock. */
static void test_goes_on(void)
{
	free(many_lengths());
	milliseconds += STEP;
	uint64_t before = misses();
	small_calls(CALLS);
	CHECK(misses() - before <= 64, "%llu", (unsigned long long)(misses() - before));

	/* As often as words become void at one time, and no more often. */
	before = misses();
	for (unsigned i = 0; i < CALLS; i++) {
		char *large = malloc(16 * MIB + i % FALLS * PAGE_BYTES);
		CHECK(large);
		free(large);
		small_calls(10);
	}
	uint64_t then = misses() - before - 2 * CALLS;
	/* Idle words also become void as pages are taken, but not at each block. */
	CHECK(then <= CALLS / 2, "%llu", (unsigned long long)then);
}

/* A block replaced at each step of the clock. */
static void test_replaces(void)
{
	void *replaced = block(MIB);
	malloc_trim(0);
	uint64_t before = misses();
	for (unsigned i = 0; i < CALLS; i++) {
		milliseconds++;
		free(replaced);
		replaced = malloc(MIB + i % FALLS * PAGE_BYTES);
		CHECK(replaced);
		small_calls(100);
	}
	uint64_t then = misses() - before - 2 * CALLS;
	CHECK(then <= CALLS / 2, "%llu", (unsigned long long)then);
	free(replaced);
}

static void free_twice(void *argument)
{
	(void)argument;
	small_calls(CALLS);
	free(many_lengths());
	milliseconds += STEP;
	void *volatile object = malloc(SMALL);
	free(object);
	free(object);
}

int main(void)
{
	cpu_set_t one;
	check_watchdog(60);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
	test_small(BLOCK);
	test_small(OF_A_CLASS);
	test_rest(many_lengths);
	test_rest(one_length);
	test_rest(vector);
	test_end();
	test_goes_on();
	test_replaces();
	test_bursts();
	check_stopped(free_twice, NULL, "freed just before");
	printf("few calls after large blocks and small objects\n");
	return 0;
}
