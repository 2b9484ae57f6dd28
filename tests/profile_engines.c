/* SPDX-License-Identifier: MIT */
/*
 * profile_engines: a heap profile sees objects that no mark in a magazine can send to a slow path: those of
 * linked caches, of magazines too small for a mark, and debugged ones.  With a mean of one byte between
 * samples every object is a sample, so that counts are exact; with a longer one they are right within
 * statistical bounds.  Objects of callers that must not wait, which come through a miss, are seen too.  And a
 * cache whose depot sorts, and so fills whole magazines, yields as many samples.
 *
 *   profile_engines linked | small | tuned | checked | sorted
 */
#include "check.h"

#include <cpuslab/profile.h>

#include "cache/cache.h"

#include <math.h>
#include <sys/mman.h>

enum { SIZE = 192, HELD = 500, THREADS = 4, BULK = 40 };

struct counts {
	unsigned long in_use, all; /* samples */
};

static struct cpuslab_cache *cache;
static unsigned long calls[THREADS];
static void *held[THREADS][HELD];

/* The sums in the first line of the text. */
static struct counts read_counts(void)
{
	static int file = -1;
	char line[256] = "";
	struct counts counts = {0};
	unsigned long bytes;

	if (file < 0)
		file = memfd_create("profile", MFD_CLOEXEC);
	CHECK(file >= 0 && ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0);
	CHECK(cpuslab_profile_write(file, CPUSLAB_PROFILE_TEXT) == 0);
	CHECK(pread(file, line, sizeof line - 1, 0) > 0);
	CHECK(sscanf(line, "heap profile: %lu: %lu [%lu:", &counts.in_use, &bytes, &counts.all) == 3,
	      "the first line is %s", line);
	return counts;
}

/* Replaces `rounds` of the objects that a thread holds, now and then many at once. */
static void change(unsigned thread, unsigned rounds, uint64_t *random)
{
	for (unsigned i = 0; i < rounds; i++) {
		void **slot = &held[thread][check_below(random, HELD - BULK)];

		if (*slot) {
			cpuslab_cache_free(cache, *slot);
			*slot = NULL;
			continue;
		}
		*slot = cpuslab_cache_alloc(cache);
		CHECK(*slot);
		calls[thread]++;
		if (i % 100)
			continue;
		void *bulk[BULK];

		CHECK(cpuslab_cache_alloc_bulk(cache, BULK, bulk) == BULK);
		calls[thread] += BULK;
		cpuslab_cache_free_bulk(cache, BULK, bulk);
	}
}

static struct counts expected(void)
{
	struct counts counts = {0, 0};

	for (unsigned t = 0; t < THREADS; t++) {
		counts.all += calls[t];
		for (unsigned i = 0; i < HELD; i++)
			counts.in_use += held[t][i] != NULL;
	}
	return counts;
}

static void *run(void *argument)
{
	unsigned thread = (unsigned)(uintptr_t)argument;
	uint64_t random = thread + 1;

	change(thread, 20000, &random);
	return NULL;
}

static void free_all(void)
{
	for (unsigned t = 0; t < THREADS; t++)
		for (unsigned i = 0; i < HELD; i++) {
			if (held[t][i])
				cpuslab_cache_free(cache, held[t][i]);
			held[t][i] = NULL;
		}
	memset(calls, 0, sizeof calls);
}

static void run_threads(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t t = 0; t < THREADS; t++)
		CHECK(pthread_create(&threads[t], NULL, run, (void *)t) == 0);
	for (unsigned t = 0; t < THREADS; t++)
		CHECK(pthread_join(threads[t], NULL) == 0);
}

/* What threads allocate for themselves exists before, and stays. */
static void every_object_is_seen(void)
{
	CHECK(cpuslab_profile_start(1) == 0);
	struct counts before = read_counts();

	for (unsigned round = 0; round < 3; round++) {
		uint64_t random = round;

		change(0, 20000, &random);
	}
	struct counts seen = read_counts(), wanted = expected();

	CHECK(seen.all - before.all == wanted.all, "%lu allocations, and %lu of them seen", wanted.all,
	      seen.all - before.all);
	CHECK(seen.in_use - before.in_use == wanted.in_use, "%lu objects, and %lu of them seen",
	      wanted.in_use, seen.in_use - before.in_use);
	free_all();
	CHECK(read_counts().in_use == before.in_use);

	run_threads();
	seen = read_counts();
	wanted = expected();
	/* Threads allocate stacks and the like, but few of them. */
	CHECK(seen.in_use >= wanted.in_use && seen.in_use <= wanted.in_use + before.in_use + 8 * THREADS,
	      "%lu objects, and %lu of them seen", wanted.in_use, seen.in_use);
	free_all();
}

/*
 * Allocations that must not wait reach the slabs past all marks; a second round has marks in the magazines.
 */
static void calls_that_do_not_wait_are_seen(void)
{
	enum { MANY = 1000 };
	static void *objects[MANY], *kept[MANY];
	size_t large = 5ul << 20;

	/* A linked cache serves them from existing slabs. */
	for (unsigned i = 0; i < MANY; i++) {
		objects[i] = cpuslab_cache_alloc(cache);
		kept[i] = cpuslab_cache_alloc(cache);
		CHECK(objects[i] && kept[i]);
	}
	for (unsigned i = 0; i < MANY; i++)
		cpuslab_cache_free(cache, objects[i]);
	for (int round = 0; round < 2; round++) {
		CHECK(cpuslab_profile_start(1) == 0);
		struct counts before = read_counts();
		unsigned long got = 0;

		for (unsigned i = 0; i < MANY; i++) {
			objects[i] = cpuslab_cache_alloc_nowait(cache);
			got += objects[i] != NULL;
		}
		CHECK(got && read_counts().in_use - before.in_use == got, "%lu objects, and %lu of them seen",
		      got, read_counts().in_use - before.in_use);
		for (unsigned i = 0; i < MANY; i++)
			if (objects[i])
				cpuslab_cache_free(cache, objects[i]);
		CHECK(read_counts().in_use == before.in_use);
		/* By now all are in magazines, under marks. */
	}
	struct counts before = read_counts();
	void *object = cpuslab_aligned_alloc_nowait(8, large);

	CHECK(object && read_counts().in_use == before.in_use + 1);
	free(object);
	CHECK(read_counts().in_use == before.in_use);
	cpuslab_profile_stop();
	for (unsigned i = 0; i < MANY; i++)
		cpuslab_cache_free(cache, kept[i]);
}

/* Addresses are chosen at random, once per profile start: several starts. */
static void samples_are_fair(void)
{
	enum { PROFILES = 24 };
	const double interval = 8192, probability = 1 - exp(-SIZE / interval);
	double wanted = 0, seen = 0;
	uint64_t random = 7;

	for (unsigned round = 0; round < PROFILES; round++) {
		CHECK(cpuslab_profile_start((size_t)interval) == 0);
		struct counts before = read_counts();

		change(0, 20000, &random);
		wanted += (double)expected().all * probability;
		seen += (double)(read_counts().all - before.all);
		free_all();
		CHECK(read_counts().in_use == before.in_use, "%lu samples of what is free",
		      read_counts().in_use - before.in_use);
	}
	CHECK(seen > wanted * 0.5 && seen < wanted * 2, "%.0f samples expected, and %.0f seen", wanted, seen);
	dprintf(STDOUT_FILENO, "%.0f samples expected, and %.0f seen\n", wanted, seen);
}

/* Many objects that come and go together. */
static void sorted_samples_are_fair(void)
{
	enum { MANY = 40000, ROUNDS = 5 };
	static void *many[MANY];
	const double interval = 8192, wanted = MANY * (1 - exp(-SIZE / interval));
	bool sorted = false;

	CHECK(cpuslab_profile_start((size_t)interval) == 0);
	for (unsigned round = 0; round < ROUNDS || !sorted; round++) {
		struct counts before = read_counts();

		for (unsigned i = 0; i < MANY; i++)
			many[i] = cpuslab_cache_alloc(cache);
		unsigned long seen = read_counts().in_use - before.in_use;

		CHECK((double)seen > wanted * 0.7 && (double)seen < wanted * 1.4,
		      "%.0f samples expected, and %lu seen", wanted, seen);
		/* Scattered over pages, so that the slabs put most of them in order again. */
		for (unsigned i = 0; i < MANY; i++)
			cpuslab_cache_free(cache, many[i * 1001 % MANY]);
		CHECK(read_counts().in_use == before.in_use);
		sorted |= cache->memory->cache.depot.drains > MANY / DEPOT_CAPACITY_MAX / 2;
	}
}

/* After the end of a profile nothing is kept for it, and objects that it watched are ordinary again. */
static void nothing_is_left(void)
{
	uint64_t random = 9;

	cpuslab_profile_stop();
	struct counts before = read_counts();

	change(0, 20000, &random);
	CHECK(read_counts().all == before.all);
	struct cpuslab_counters start = check_counters();

	free_all();
	change(0, 20000, &random);
	struct cpuslab_counters end = check_counters();

	CHECK(end.alloc_misses - start.alloc_misses < 20000 / 4, "%lu of some 10000 allocations missed",
	      end.alloc_misses - start.alloc_misses);
	free_all();
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "linked";
	bool checked = strcmp(kind, "checked") == 0, small = strcmp(kind, "small") == 0;
	const struct cpuslab_cache_args args = {
		.name = kind,
		.size = SIZE,
		.engine = strcmp(kind, "linked") == 0 ? CPUSLAB_ENGINE_LINKED : CPUSLAB_ENGINE_MAGAZINE,
		.magazine_capacity = small ? 2 : 0,
		.flags = checked ? CPUSLAB_CACHE_RED_ZONE | CPUSLAB_CACHE_CONSISTENCY_CHECKS : 0,
	};

	check_watchdog(120);
	cache = cpuslab_cache_create(&args);
	CHECK(cache);
	if (strcmp(kind, "sorted") == 0) {
		sorted_samples_are_fair();
		CHECK(cpuslab_cache_destroy(cache) == 0);
		return 0;
	}
	if (strcmp(kind, "tuned") == 0) {
		const struct cpuslab_cache_tunables tunables = {1, 1, 1};
		uint64_t random = 3;

		/* Magazines of the usual size are still in use when the profile starts. */
		change(0, 1000, &random);
		free_all();
		CHECK(cpuslab_cache_set_tunables(cache, &tunables) == 0);
	}
	calls_that_do_not_wait_are_seen();
	every_object_is_seen();
	samples_are_fair();
	if (!checked && !small && strcmp(kind, "tuned") != 0)
		nothing_is_left();
	CHECK(cpuslab_cache_destroy(cache) == 0);
	return 0;
}
