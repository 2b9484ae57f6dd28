/* SPDX-License-Identifier: MIT */
/*
 * Constructors run once for each object, when its slab is made, and never again while the slab lives; what
 * they built is intact at every allocation, since nothing is written into a free object.  With many threads,
 * too.  And type-stable memory keeps its type until its cache is destroyed.
 */
#include "check.h"

#include <cpuslab/cache.h>

#include "engine.h"

enum { SIZE = 120, THREADS = 4, MAGIC = 0x6f626a31 };

struct object {
	uint32_t magic;
	uint32_t constructions;
	void *self;
	void *memory; /* allocated by the constructor */
	char rest[SIZE - 24];
};

static uint64_t constructed;
static struct cpuslab_cache *cache;

static void construct(void *memory)
{
	struct object *object = memory;

	/* Fresh pages or recycled memory: a constructor cannot tell. */
	object->constructions =
		object->magic == MAGIC && object->self == object ? object->constructions + 1 : 1;
	object->magic = MAGIC;
	object->self = object;
	memset(object->rest, 0xa5, sizeof object->rest);
	free(malloc(48));
	__atomic_fetch_add(&constructed, 1, __ATOMIC_RELAXED);
}

static void check_object(const struct object *object)
{
	CHECK(object && object->magic == MAGIC && object->self == object, "%p", (const void *)object);
	CHECK(check_all_bytes(object->rest, sizeof object->rest, 0xa5));
}

static struct cpuslab_cache *create(unsigned flags)
{
	struct cpuslab_cache_args args = {.name = "constructed",
					  .size = SIZE,
					  .engine = engine,
					  .constructor = construct,
					  .flags = flags};
	struct cpuslab_cache *made = cpuslab_cache_create(&args);

	CHECK(made);
	return made;
}

static void test_once(void)
{
	enum { MOST = 2000 };
	static struct object *objects[MOST];

	constructed = 0;
	cache = create(0);
	CHECK(constructed == 0);
	check_object(objects[0] = cpuslab_cache_alloc(cache));

	/* The whole slab is constructed, not just the objects asked for. */
	uint64_t slab = constructed;

	CHECK(slab > 1 && slab <= 255, "%llu", (unsigned long long)slab);
	for (unsigned i = 1; i < MOST; i++)
		check_object(objects[i] = cpuslab_cache_alloc(cache));
	CHECK(constructed % slab == 0 && constructed >= MOST && constructed < MOST + 2 * slab, "%llu",
	      (unsigned long long)constructed);

	/* What the program leaves in an object is what it finds again. */
	uint64_t all = constructed;

	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < MOST; i++) {
			objects[i]->memory = objects[i];
			cpuslab_cache_free(cache, objects[i]);
			CHECK(objects[i]->memory == objects[i]);
		}
		unsigned found = 0;

		for (unsigned i = 0; i < MOST; i++) {
			check_object(objects[i] = cpuslab_cache_alloc(cache));
			found += objects[i]->memory == objects[i];
		}
		/*
		 * Slabs that became empty went back meanwhile, and new ones were constructed.  In hardened
		 * mode, some of the objects found have never been handed out.
		 */
		CHECK(found > 0 && (check_hardened() || found + (constructed - all) >= MOST), "%u found",
		      found);
	}
	cpuslab_cache_free_bulk(cache, MOST, (void *const *)objects);
	CHECK(cpuslab_cache_shrink(cache) == 0);
	all = constructed;
	check_object(objects[0] = cpuslab_cache_alloc(cache));
	CHECK(constructed == all + slab);
	cpuslab_cache_free(cache, objects[0]);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static void *churn(void *argument)
{
	enum { MINE = 300 };
	uint64_t random = (uintptr_t)argument;
	struct object *mine[MINE] = {0};

	for (unsigned long i = check_rounds(150000, 3000000, 5000); i; i--) {
		size_t at = check_below(&random, MINE);

		if (mine[at]) {
			CHECK(mine[at]->memory == mine);
			check_object(mine[at]);
			cpuslab_cache_free(cache, mine[at]);
			mine[at] = NULL;
		} else {
			check_object(mine[at] = cpuslab_cache_alloc(cache));
			mine[at]->memory = mine;
		}
		if (i % 20000 == 0)
			cpuslab_cache_shrink(cache);
	}
	for (unsigned i = 0; i < MINE; i++)
		cpuslab_cache_free(cache, mine[i]);
	return NULL;
}

static void test_threads(unsigned flags)
{
	pthread_t threads[THREADS];

	cache = create(flags);
	for (uintptr_t i = 0; i < THREADS; i++)
		threads[i] = check_thread(churn, (void *)(i + 1));
	for (int i = 0; i < THREADS; i++)
		check_join(threads[i]);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

/* Memory of a type-stable cache is never used for anything else, whatever is allocated meanwhile. */
static void test_type_stable(void)
{
	enum { MOST = 3000 };
	static struct object *objects[MOST];
	static void *others[MOST];

	constructed = 0;
	cache = create(CPUSLAB_CACHE_TYPESAFE_BY_RCU);
	for (unsigned i = 0; i < MOST; i++)
		check_object(objects[i] = cpuslab_cache_alloc(cache));
	uint64_t all = constructed;

	cpuslab_cache_free_bulk(cache, MOST, (void *const *)objects);
	CHECK(cpuslab_cache_shrink(cache) == 1);
	malloc_trim(0);
	for (unsigned i = 0; i < MOST; i++)
		memset(others[i] = malloc(SIZE), 0xee, SIZE);
	for (unsigned i = 0; i < MOST; i++)
		check_object(objects[i]);
	for (unsigned i = 0; i < MOST; i++)
		free(others[i]);
	for (unsigned i = 0; i < MOST; i++)
		check_object(objects[i] = cpuslab_cache_alloc(cache));
	CHECK(constructed == all);
	cpuslab_cache_free_bulk(cache, MOST, (void *const *)objects);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

int main(int argc, char **argv)
{
	engine_choose(argc, argv);
	check_watchdog(100);
	CHECK(sizeof(struct object) == SIZE);
	test_once();
	test_type_stable();
	test_threads(0);
	test_threads(CPUSLAB_CACHE_TYPESAFE_BY_RCU);
	return 0;
}
