/* SPDX-License-Identifier: MIT */
/*
 * Random operations on several caches at once, against a plain list of what is allocated: every object has
 * one owner at a time, is aligned, and its bytes are untouched until it is freed; a destroyed cache leaves
 * nothing behind.  Then the same with many threads that also free each other's objects, while caches are
 * visited, shrunk, trimmed, created and destroyed.
 */
#include "check.h"

#include <cpuslab/cache.h>

#include "engine.h"

/* ---- one thread, a model --------------------------------------------------------------------------- */

enum { CACHES = 12, MOST = 4000, BULK = 64 };

static struct model {
	struct cpuslab_cache *cache;
	size_t size, align;
	unsigned count;
	struct {
		void *object;
		uint64_t seed;
	} live[MOST];
} models[CACHES];

static uint64_t random_state = 5, seeds;

static void create(struct model *model)
{
	static const size_t largest[] = {16, 64, 300, 2000, 9000, 70000};

	model->size = 1 + check_below(&random_state, largest[check_below(&random_state, 6)]);
	model->align = check_below(&random_state, 2) ? 0 : (size_t)1 << check_below(&random_state, 13);
	model->count = 0;
	struct cpuslab_cache_args args = {
		.name = "model",
		.size = model->size,
		.align = model->align,
		.engine = engine,
		.flags = check_below(&random_state, 2) ? CPUSLAB_CACHE_HWCACHE_ALIGN : 0,
		.magazine_capacity = (unsigned)check_below(&random_state, 3) * 7,
	};

	if (check_below(&random_state, 4) == 0)
		args.flags |= CPUSLAB_CACHE_TYPESAFE_BY_RCU;
	model->cache = cpuslab_cache_create(&args);
	CHECK(model->cache);
}

static unsigned most(const struct model *model)
{
	size_t fits = (8u << 20) / model->size;

	return fits < MOST ? (unsigned)fits : MOST;
}

static void enter(struct model *model, void *object)
{
	CHECK(object && (uintptr_t)object % (model->align ? model->align : 8) == 0);
	check_stamp(object, model->size, ++seeds);
	model->live[model->count].object = object;
	model->live[model->count++].seed = seeds;
}

static void *leave(struct model *model)
{
	size_t at = check_below(&random_state, model->count);
	void *object = model->live[at].object;

	CHECK_STAMP(object, model->size, model->live[at].seed);
	model->live[at] = model->live[--model->count];
	return object;
}

static void step(struct model *model)
{
	void *objects[BULK];
	size_t choice = check_below(&random_state, 1000), count = 1 + check_below(&random_state, BULK);

	if (choice < 400) {
		if (model->count < most(model))
			enter(model, cpuslab_cache_alloc(model->cache));
	} else if (choice < 780) {
		if (model->count)
			cpuslab_cache_free(model->cache, leave(model));
	} else if (choice < 800) {
		if (model->count)
			free(leave(model));
	} else if (choice < 820) {
		if (model->count < most(model)) {
			void *object = cpuslab_cache_zalloc(model->cache);

			CHECK(object && check_all_bytes(object, model->size, 0));
			enter(model, object);
		}
	} else if (choice < 900) {
		if (model->count + count <= most(model)) {
			CHECK(cpuslab_cache_alloc_bulk(model->cache, count, objects) == count);
			for (size_t i = 0; i < count; i++)
				enter(model, objects[i]);
		}
	} else if (choice < 990) {
		if (model->count >= count) {
			for (size_t i = 0; i < count; i++)
				objects[i] = leave(model);
			cpuslab_cache_free_bulk(model->cache, count, objects);
		}
	} else if (choice < 998) {
		cpuslab_cache_shrink(model->cache);
	} else {
		while (model->count)
			cpuslab_cache_free(model->cache, leave(model));
		CHECK(cpuslab_cache_destroy(model->cache) == 0);
		create(model);
	}
}

static void test_model(void)
{
	for (int i = 0; i < CACHES; i++)
		create(&models[i]);
	for (unsigned long i = check_rounds(200000, 5000000, 4000); i; i--)
		step(&models[check_below(&random_state, CACHES)]);
	for (int i = 0; i < CACHES; i++) {
		while (models[i].count)
			cpuslab_cache_free(models[i].cache, leave(&models[i]));
		CHECK(cpuslab_cache_destroy(models[i].cache) == 0);
	}
}

/* ---- many threads ---------------------------------------------------------------------------------- */

enum { THREADS = 4, SHARED = 4, SLOTS = 256, SHARED_SIZE = 72 };

static struct cpuslab_cache *shared[SHARED];
static void *slots[SHARED][SLOTS]; /* objects on their way from one thread to another */
static bool over;

static void *exchange(void *argument)
{
	uint64_t random = (uintptr_t)argument * 77;

	for (unsigned long i = check_rounds(200000, 5000000, 4000); i; i--) {
		size_t c = check_below(&random, SHARED), at = check_below(&random, SLOTS);
		uint64_t seed = c * SLOTS + at;
		void *object = NULL;

		if (check_below(&random, 2)) {
			object = cpuslab_cache_alloc(shared[c]);
			CHECK(object);
			check_stamp(object, SHARED_SIZE, seed);
		}
		object = __atomic_exchange_n(&slots[c][at], object, __ATOMIC_ACQ_REL);
		if (object) {
			CHECK_STAMP(object, SHARED_SIZE, seed);
			cpuslab_cache_free(shared[c], object);
		}
	}
	return NULL;
}

static int look(struct cpuslab_cache *cache, void *argument)
{
	(void)argument;
	CHECK(cpuslab_cache_size(cache) && cpuslab_cache_name(cache)[0]);
	return 0;
}

/* Meanwhile caches come and go while others visit all caches. */
static void *disturb(void *argument)
{
	uint64_t random = (uintptr_t)argument * 99;

	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		struct cpuslab_cache_args args = {
			.name = "passing", .size = 1 + check_below(&random, 5000), .engine = engine};
		struct cpuslab_cache *cache = cpuslab_cache_create(&args);
		void *objects[40];

		CHECK(cache && cpuslab_cache_alloc_bulk(cache, 40, objects) == 40);
		for (int i = 0; i < 40; i++)
			memset(objects[i], i, args.size);
		cpuslab_cache_iterate(look, NULL);
		(void)mallinfo2();
		cpuslab_cache_free_bulk(cache, 40, objects);
		if (check_below(&random, 8) == 0)
			cpuslab_cache_shrink(shared[check_below(&random, SHARED)]);
		if (check_below(&random, 32) == 0)
			malloc_trim(0);
		CHECK(cpuslab_cache_destroy(cache) == 0);
	}
	return NULL;
}

static void test_threads(void)
{
	pthread_t exchangers[THREADS], disturbers[2];

	for (int c = 0; c < SHARED; c++) {
		struct cpuslab_cache_args args = {.name = "shared", .size = SHARED_SIZE, .engine = engine};

		CHECK((shared[c] = cpuslab_cache_create(&args)));
	}
	for (uintptr_t i = 0; i < 2; i++)
		disturbers[i] = check_thread(disturb, (void *)(i + 1));
	for (uintptr_t i = 0; i < THREADS; i++)
		exchangers[i] = check_thread(exchange, (void *)(i + 1));
	for (int i = 0; i < THREADS; i++)
		check_join(exchangers[i]);
	__atomic_store_n(&over, true, __ATOMIC_RELEASE);
	for (int i = 0; i < 2; i++)
		check_join(disturbers[i]);
	for (int c = 0; c < SHARED; c++) {
		for (int at = 0; at < SLOTS; at++)
			cpuslab_cache_free(shared[c], slots[c][at]);
		CHECK(cpuslab_cache_destroy(shared[c]) == 0);
	}
}

int main(int argc, char **argv)
{
	engine_choose(argc, argv);
	check_watchdog(100);
	test_model();
	test_threads();
	return 0;
}
