/* SPDX-License-Identifier: MIT */
/*
 * The tunables of a cache: SLAB's defaults, the effect of each of the three, by call and by the kernel's text
 * interface, and changes of them while threads allocate and free and while caches shrink, come and go.
 */
#include "check.h"

#include <cpuslab/cache.h>

static struct cpuslab_cache *create(const char *name, size_t size)
{
	struct cpuslab_cache_args args = {.name = name, .size = size, .flags = CPUSLAB_CACHE_NO_MERGE};
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);

	CHECK(cache);
	return cache;
}

static void destroy(struct cpuslab_cache *cache)
{
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static void tune(struct cpuslab_cache *cache, unsigned limit, unsigned batchcount, unsigned sharedfactor)
{
	struct cpuslab_cache_tunables tunables = {limit, batchcount, sharedfactor};

	CHECK(cpuslab_cache_set_tunables(cache, &tunables) == 0);
}

static bool tuned(struct cpuslab_cache *cache, unsigned limit, unsigned batchcount, unsigned sharedfactor)
{
	struct cpuslab_cache_tunables now = cpuslab_cache_get_tunables(cache);

	return now.limit == limit && now.batchcount == batchcount && now.sharedfactor == sharedfactor;
}

/* What slabinfo says of the only cache of that name. */
struct row {
	unsigned limit, batchcount, sharedfactor;
	unsigned long waiting;
};

static struct row row_of(const char *name)
{
	static char line[1024];
	FILE *file = tmpfile();
	struct row row;
	unsigned rows = 0;

	CHECK(file && cpuslab_slabinfo(fileno(file)) == 0);
	rewind(file);
	while (fgets(line, sizeof line, file))
		if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ' ')
			rows += sscanf(strstr(line, "tunables"), "tunables %u %u %u : slabdata %*u %*u %lu",
				       &row.limit, &row.batchcount, &row.sharedfactor, &row.waiting) == 4;
	fclose(file);
	CHECK(rows == 1, "%u rows of %s", rows, name);
	return row;
}

static void test_defaults(void)
{
	static const struct {
		size_t size;
		unsigned limit, batchcount;
	} expected[] = {{1, 120, 60},   {256, 120, 60}, {257, 54, 27},  {1024, 54, 27}, {1025, 24, 12},
			{4096, 24, 12}, {4097, 8, 4},   {131072, 8, 4}, {131073, 1, 1}, {4 << 20, 1, 1}};

	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
		struct cpuslab_cache *cache = create("default", expected[i].size);
		struct row row = row_of("default");

		CHECK(tuned(cache, expected[i].limit, expected[i].batchcount, 65535), "%zu bytes",
		      expected[i].size);
		CHECK(row.limit == expected[i].limit && row.batchcount == expected[i].batchcount &&
		      row.sharedfactor == 65535);
		destroy(cache);
	}
}

static void refuse(struct cpuslab_cache *cache, unsigned limit, unsigned batchcount, unsigned sharedfactor)
{
	struct cpuslab_cache_tunables tunables = {limit, batchcount, sharedfactor};

	errno = 0;
	CHECK(cpuslab_cache_set_tunables(cache, &tunables) == -1 && errno == EINVAL);
}

static void refuse_text(const char *text)
{
	errno = 0;
	CHECK(cpuslab_slabinfo_tune(text) == -1 && errno == EINVAL, "%s", text);
}

static void test_ranges(void)
{
	struct cpuslab_cache *cache = create("some name", 100);

	refuse(cache, 0, 0, 0);
	refuse(cache, 10, 0, 0);
	refuse(cache, 10, 11, 0);
	refuse(cache, 501, 1, 0);
	refuse(cache, 10, 5, 65536);
	CHECK(tuned(cache, 120, 60, 65535));
	tune(cache, 500, 500, 65535);
	tune(cache, 1, 1, 0);
	CHECK(tuned(cache, 1, 1, 0));

	CHECK(cpuslab_slabinfo_tune("some_name 100 30 4") == 0 && tuned(cache, 100, 30, 4));
	CHECK(cpuslab_slabinfo_tune("some_name  500\t500  0\n") == 0 && tuned(cache, 500, 500, 0));
	refuse_text("");
	refuse_text("some_name");
	refuse_text("some_name 100 30");
	refuse_text("some_name 100 30 4 5");
	refuse_text("some_name 100 30 4x");
	refuse_text("some_name 100 -30 4");
	refuse_text("some_name 100 0 4");
	refuse_text("some_name 100 101 4");
	refuse_text("some_name 501 101 4");
	refuse_text("some_name 99999999999999999999999 101 4");
	refuse_text("some_nam 100 30 4");
	refuse_text("no_name 100 30 4");
	refuse_text(" some_name 100 30 4");
	CHECK(tuned(cache, 500, 500, 0));
	destroy(cache);
	refuse_text("some_name 100 30 4");

	/* One of malloc's classes. */
	struct row before = row_of("malloc-112");

	CHECK(cpuslab_slabinfo_tune("malloc-112 17 9 3") == 0);
	struct row row = row_of("malloc-112");

	CHECK(row.limit == 17 && row.batchcount == 9 && row.sharedfactor == 3);
	char text[100];

	snprintf(text, sizeof text, "malloc-112 %u %u %u", before.limit, before.batchcount,
		 before.sharedfactor);
	CHECK(cpuslab_slabinfo_tune(text) == 0 && row_of("malloc-112").limit == before.limit);
}

enum { OBJECTS = 3000 };
static void *objects[OBJECTS];

static uint64_t misses_of_allocating(struct cpuslab_cache *cache)
{
	uint64_t before = check_counters().alloc_misses;

	for (unsigned i = 0; i < OBJECTS; i++) {
		objects[i] = cpuslab_cache_alloc(cache);
		CHECK(objects[i]);
	}
	return check_counters().alloc_misses - before;
}

static uint64_t misses_of_freeing(struct cpuslab_cache *cache)
{
	uint64_t before = check_counters().free_misses;

	for (unsigned i = 0; i < OBJECTS; i++)
		cpuslab_cache_free(cache, objects[i]);
	return check_counters().free_misses - before;
}

/* Each allocation that misses brings a batch, each free that misses makes room for a magazine. */
static void test_meaning(unsigned limit, unsigned batchcount)
{
	struct cpuslab_cache *cache = create("meaning", 64);
	uint64_t misses;

	/* Full magazines of the old size, some of them in the vCPU's words. */
	misses_of_allocating(cache);
	misses_of_freeing(cache);
	tune(cache, limit, batchcount, 0);
	CHECK(row_of("meaning").waiting == 0);
	/*
	 * A thread that migrates finds other magazines; and the first miss on a vCPU without an area has no
	 * counter.
	 */
	misses = misses_of_allocating(cache);
	CHECK(misses + 20 >= OBJECTS / batchcount && misses <= OBJECTS / batchcount + 20,
	      "%llu misses of %u by %u", (unsigned long long)misses, OBJECTS, batchcount);
	misses = misses_of_freeing(cache);
	CHECK(misses + 20 >= OBJECTS / limit && misses <= OBJECTS / limit + 20, "%llu misses of %u by %u",
	      (unsigned long long)misses, OBJECTS, limit);
	/* Nothing may wait. */
	CHECK(row_of("meaning").waiting == 0);

	/* Two batches may, in whole magazines. */
	tune(cache, limit, batchcount, 2);
	misses_of_allocating(cache);
	misses_of_freeing(cache);
	unsigned long most = (2ul * batchcount + limit - 1) / limit * limit;

	CHECK(row_of("meaning").waiting == most, "%lu wait, not %lu", row_of("meaning").waiting, most);
	tune(cache, limit, batchcount, 0);
	CHECK(row_of("meaning").waiting == 0);
	CHECK(cpuslab_cache_shrink(cache) == 0);
	destroy(cache);
}

/*
 * A thread alternates between its two magazines, which without restartable sequences nobody else can take:
 * they must leave at its next miss, and must not serve as each other's spare for ever.
 */
enum { RUN = 110, ROUNDS = 20 };
static pthread_barrier_t loaded, changed;
static uint64_t misses_after;

static void back_and_forth(struct cpuslab_cache *cache)
{
	void *run[2 * RUN];

	for (unsigned i = 0; i < 2 * RUN; i++)
		run[i] = cpuslab_cache_alloc(cache);
	for (unsigned i = 0; i < 2 * RUN; i++)
		cpuslab_cache_free(cache, run[i]);
}

static void *keep_magazines(void *argument)
{
	struct cpuslab_cache *cache = argument;

	back_and_forth(cache);
	pthread_barrier_wait(&loaded);
	pthread_barrier_wait(&changed);
	uint64_t before = check_counters().alloc_misses + check_counters().free_misses;

	for (unsigned i = 0; i < ROUNDS; i++)
		back_and_forth(cache);
	misses_after = check_counters().alloc_misses + check_counters().free_misses - before;
	return NULL;
}

static void test_out_of_reach(void)
{
	struct cpuslab_cache *cache = create("out of reach", 64);

	CHECK(pthread_barrier_init(&loaded, NULL, 2) == 0 && pthread_barrier_init(&changed, NULL, 2) == 0);
	pthread_t thread = check_thread(keep_magazines, cache);

	pthread_barrier_wait(&loaded);
	tune(cache, 1, 1, 0);
	pthread_barrier_wait(&changed);
	check_join(thread);
	/* Out of 8800 calls; an allocation may find what a free has just left. */
	CHECK(misses_after > 3 * RUN * ROUNDS, "%llu misses", (unsigned long long)misses_after);
	destroy(cache);
}

/* ---- races ------------------------------------------------------------------------------------------ */

enum { SHARED = 3, OWNED = 200, THREADS = 4 };
static const size_t sizes[SHARED] = {24, 200, 3000};
static struct cpuslab_cache *shared[SHARED];
static bool stop;

/* Handed from thread to thread, so that a magazine holds objects allocated on other vCPUs. */
static void *exchange[SHARED][64];

static void construct(void *object)
{
	memset(object, 0x5a, 8);
}

static void *allocate(unsigned which)
{
	void *object = cpuslab_cache_alloc(shared[which]);

	CHECK(object);
	check_stamp((char *)object + 8, sizes[which] - 8, (uint64_t)(uintptr_t)object);
	return object;
}

static void release(unsigned which, void *object)
{
	CHECK(*(uint64_t *)object == 0x5a5a5a5a5a5a5a5au, "the constructor's work is gone");
	CHECK_STAMP((char *)object + 8, sizes[which] - 8, (uint64_t)(uintptr_t)object);
	if ((uintptr_t)object & 512)
		free(object);
	else
		cpuslab_cache_free(shared[which], object);
}

static void *use(void *argument)
{
	uint64_t random = (uint64_t)(uintptr_t)argument;
	void *owned[SHARED][OWNED] = {{NULL}};

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		unsigned which = (unsigned)check_below(&random, SHARED);
		void **slot = &owned[which][check_below(&random, OWNED)];

		if (*slot && random % 4 == 0) {
			*slot = __atomic_exchange_n(&exchange[which][check_below(&random, 64)], *slot,
						    __ATOMIC_ACQ_REL);
		} else if (*slot) {
			release(which, *slot);
			*slot = NULL;
		} else {
			*slot = allocate(which);
		}
		if (random % 64 == 0) {
			void *many[40];

			CHECK(cpuslab_cache_alloc_bulk(shared[which], 40, many) == 40);
			cpuslab_cache_free_bulk(shared[which], 40, many);
		}
	}
	for (unsigned which = 0; which < SHARED; which++)
		for (unsigned i = 0; i < OWNED; i++)
			if (owned[which][i])
				release(which, owned[which][i]);
	return NULL;
}

/* Meanwhile other threads create and destroy caches, with magazines loaded. */
static void *come_and_go(void *argument)
{
	uint64_t random = 99;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct cpuslab_cache *cache = create("passing", 8 + 8 * check_below(&random, 100));
		void *many[100];

		CHECK(cpuslab_cache_alloc_bulk(cache, 100, many) == 100);
		tune(cache, 1 + (unsigned)check_below(&random, 500), 1, (unsigned)check_below(&random, 3));
		cpuslab_cache_free_bulk(cache, 100, many);
		destroy(cache);
	}
	return argument;
}

static void change(uint64_t *random)
{
	unsigned which = (unsigned)check_below(random, SHARED);
	unsigned limit = 1 + (unsigned)check_below(random, check_below(random, 2) ? 500 : 6);
	unsigned batchcount = 1 + (unsigned)check_below(random, limit);
	char text[64];

	switch (check_below(random, 4)) {
	case 0:
		cpuslab_cache_shrink(shared[which]);
		break;
	case 1:
		snprintf(text, sizeof text, "shared-%u %u %u %u", which, limit, batchcount, which);
		CHECK(cpuslab_slabinfo_tune(text) == 0);
		CHECK(tuned(shared[which], limit, batchcount, which));
		break;
	default:
		tune(shared[which], limit, batchcount, (unsigned)check_below(random, 4));
	}
}

static void test_races(void)
{
	pthread_t threads[THREADS + 1];
	uint64_t random = 17;
	char name[16];

	for (unsigned i = 0; i < SHARED; i++) {
		snprintf(name, sizeof name, "shared-%u", i);
		struct cpuslab_cache_args args = {.name = name, .size = sizes[i], .constructor = construct};

		shared[i] = cpuslab_cache_create(&args);
		CHECK(shared[i]);
	}
	for (uintptr_t i = 0; i < THREADS; i++)
		threads[i] = check_thread(use, (void *)(i + 1));
	threads[THREADS] = check_thread(come_and_go, NULL);
	for (unsigned long i = 0; i < check_rounds(50000, 3000000, 200); i++)
		change(&random);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i <= THREADS; i++)
		check_join(threads[i]);
	for (unsigned which = 0; which < SHARED; which++) {
		for (unsigned i = 0; i < 64; i++)
			if (exchange[which][i])
				release(which, exchange[which][i]);
		destroy(shared[which]);
	}
}

int main(void)
{
	check_watchdog(110);
	test_defaults();
	test_ranges();
	test_meaning(1, 1);
	test_meaning(10, 3);
	test_meaning(100, 100);
	test_out_of_reach();
	test_races();
	return 0;
}
