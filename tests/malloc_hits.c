/* SPDX-License-Identifier: MIT */
/*
 * malloc_hits: the fast path really serves calls.  A fast path that never hits passes every other test; so
 * this one counts misses against calls, for the loops that the benchmarks time.
 */
#include "check.h"
#include "still_clock.h"

/* More pairs than others, as after a fall some thousand calls may miss (magazine/lull.h). */
enum { COUNT = 10000, PAIRS = 200000, OTHERS = 32 << 20 };

static void *objects[COUNT];

/* Other live objects, so that freeing those of the loops is no ebb (docs/life-of-an-allocation.md). */
static void have_others(void)
{
	for (size_t bytes = 0; bytes < OTHERS; bytes += 1024)
		CHECK(malloc(1024)); /* never touched */
}

static void check_share(const char *loop, size_t size, unsigned calls, const struct cpuslab_counters *before)
{
	struct cpuslab_counters after = check_counters();
	uint64_t misses = after.alloc_misses - before->alloc_misses + after.free_misses - before->free_misses;
	CHECK(misses * 100 < calls, "%s of %zu bytes: %llu misses in %u calls (%s)", loop, size,
	      (unsigned long long)misses, calls, check_mode());
}

static void pairs(size_t size)
{
	struct cpuslab_counters before = check_counters();
	for (int i = 0; i < PAIRS; i++) {
		void *object = malloc(size);
		CHECK(object);
		free(object);
	}
	check_share("pairs", size, 2 * PAIRS, &before);
}

/* Alignment beyond a page uses a class of its own, not a page run for each object. */
static void aligned_pairs(size_t size)
{
	free(aligned_alloc(size, size));
	struct cpuslab_counters before = check_counters();
	for (int i = 0; i < PAIRS; i++) {
		void *object = aligned_alloc(size, size - size / 32);
		CHECK(object && (uintptr_t)object % size == 0);
		free(object);
	}
	check_share("aligned pairs", size, 2 * PAIRS, &before);
}

static void all_then_all(size_t size, bool counted)
{
	struct cpuslab_counters before = check_counters();
	for (int i = 0; i < COUNT; i++) {
		objects[i] = malloc(size);
		CHECK(objects[i]);
		*(char *)objects[i] = 1;
	}
	for (int i = 0; i < COUNT; i++)
		free(objects[i]);
	if (counted)
		check_share("all then all", size, 2 * COUNT, &before);
}

static void *measure(void *unused)
{
	(void)unused;
	for (size_t size = 16; size <= 1024; size *= 2) {
		free(malloc(size)); /* a first magazine */
		pairs(size);
		all_then_all(size, false); /* slabs for all */
		all_then_all(size, true);
	}
	for (size_t size = 4096; size <= 256 << 10; size *= 2)
		aligned_pairs(size);
	return NULL;
}

/* If misses were not counted, every hit rate would be perfect: these calls cannot be hits. */
static void misses_are_counted(void)
{
	struct cpuslab_counters before = check_counters();
	for (int i = 0; i < 20; i++)
		free(malloc(3 << 20));
	struct cpuslab_counters after = check_counters();
	CHECK(after.free_misses >= before.free_misses + 20);
	for (int i = 0; i < COUNT; i++)
		CHECK((objects[i] = malloc(1000)));
	struct cpuslab_counters full = check_counters();
	CHECK(full.alloc_misses >= after.alloc_misses + 5 && full.refills > after.refills);
	for (int i = 0; i < COUNT; i++)
		free(objects[i]);
	CHECK(check_counters().free_misses >= full.free_misses + 5);
}

int main(void)
{
	if (!check_cpuslab())
		check_skip("only cpuslab counts its misses");
	check_watchdog(60);
	have_others();
	misses_are_counted();
	measure(NULL);
	/* Later threads are served like the first one, also when they run one after another. */
	for (int i = 0; i < 4; i++)
		check_join(check_thread(measure, NULL));
	printf("%s: more than 99 %% hits\n", check_mode());
	return 0;
}
