/* SPDX-License-Identifier: MIT */
/*
 * vcpu_schedules: stops fast paths and slow paths at each of their instructions, while another thread on the
 * same CPU does something that conflicts (schedules.h).
 *
 *   vcpu_schedules malloc | magazine | linked     on malloc's own class, or on an object cache of either
 *                                                 engine
 *
 * After each such schedule nothing is under way, and everything must add up: each object has one owner and
 * its bytes, and the allocator's count of allocated objects equals those of program, words, spares and depot.
 */
#include "check.h"

#include "cache/cache.h"
#include "magazine/magazine.h"
#include "malloc/size_class.h"

#include "schedules.h"

#ifdef __x86_64__

enum operation { HIT_ALLOC, HIT_FREE, REFILL, DRAIN, EXCHANGE, BULK, SHRINK, OPERATIONS };
enum conflict { EXHAUST, FREE_REMOTE, SHRINK_ALL, CONFLICTS };
static const char *const operation_names[] = {
	"alloc that hits", "free that hits", "refill", "drain", "exchange", "bulk", "shrink",
};

/* ---- what is tested -------------------------------------------------------------------------------- */

enum { CAPACITY = 4, POOL = 11, OWN = 24, STAMPED = 96 };

/* Four objects fill a slab of the linked engine, so that some slabs are full. */
static size_t object_bytes = STAMPED;

static struct cpuslab_cache *cache; /* NULL: malloc's class */

static void *take(void)
{
	return cache ? cpuslab_cache_alloc(cache) : malloc(object_bytes);
}

static void give(void *object)
{
	if (cache)
		cpuslab_cache_free(cache, object);
	else
		free(object);
}

static void shrink(void)
{
	if (cache)
		(void)cpuslab_cache_shrink(cache);
	else
		magazine_shrink(size_class(size_class_index(object_bytes)));
}

/* Objects held by the program, as the allocator counts them. */
static uint64_t allocated(void)
{
	struct slab_statistics slabs;
	struct depot_statistics depot;
	if (cache && cache->memory->engine == CPUSLAB_ENGINE_LINKED) {
		struct linked_statistics linked;
		linked_statistics(cache_linked(cache->memory), &linked);
		return linked.allocated;
	}
	struct cache *magazines = cache ? &cache->memory->cache : size_class(size_class_index(object_bytes));
	slab_statistics(&magazines->depot.slabs, &slabs);
	depot_statistics(&magazines->depot, &depot);
	return slabs.allocated - depot.objects - magazine_objects_loaded(magazines);
}

/* ---- objects with stamps --------------------------------------------------------------------------- */

static void *pool[POOL]; /* objects for the other thread to free */
static void *own[OWN];
static uint64_t others; /* allocated objects that are not the test's */

static void fill(void **slot)
{
	*slot = take();
	CHECK(*slot);
	check_stamp(*slot, STAMPED, (uintptr_t)slot);
}

static void empty(void **slot)
{
	void *object = *slot;
	CHECK_STAMP(object, STAMPED, (uintptr_t)slot);
	memset(object, 0, STAMPED);
	*slot = NULL;
	give(object);
}

static void fill_own(size_t count)
{
	for (size_t i = 0; i < count; i++)
		fill(&own[i]);
}

static void empty_own(size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (own[i])
			empty(&own[i]);
}

static void check_everything(void)
{
	uint64_t live = 0;
	for (size_t i = 0; i < POOL + OWN; i++) {
		void **slot = i < POOL ? &pool[i] : &own[i - POOL];
		if (!*slot)
			continue;
		live++;
		CHECK_STAMP(*slot, STAMPED, (uintptr_t)slot);
	}
	CHECK(allocated() == live + others, "%s: %llu objects by count, and %llu are", traced_doing(),
	      (unsigned long long)(allocated() - others), (unsigned long long)live);
}

/* ---- the other thread ------------------------------------------------------------------------------ */

static void conflict(unsigned kind)
{
	enum { MORE = 3 * CAPACITY };
	static void *more[MORE];
	switch ((enum conflict)kind) {
	case EXHAUST:
		for (size_t i = 0; i < MORE; i++)
			fill(&more[i]);
		for (size_t i = 0; i < MORE; i++)
			empty(&more[i]);
		break;
	case FREE_REMOTE:
		for (size_t i = 0; i < POOL; i++)
			empty(&pool[i]);
		for (size_t i = 0; i < POOL; i++)
			fill(&pool[i]);
		break;
	case SHRINK_ALL:
		shrink();
		fill(&more[0]);
		empty(&more[0]);
		shrink();
		break;
	case CONFLICTS:
		break;
	}
}

/* ---- the stopped thread ---------------------------------------------------------------------------- */

static void operate(unsigned operation)
{
	switch ((enum operation)operation) {
	case HIT_ALLOC:
		fill_own(1);
		empty_own(1);
		TRACED_TRAP();
		own[0] = take();
		TRACED_TRAP();
		check_stamp(own[0], STAMPED, (uintptr_t)&own[0]);
		break;
	case HIT_FREE:
		fill_own(1);
		TRACED_TRAP();
		empty_own(1);
		TRACED_TRAP();
		break;
	case REFILL:
		shrink();
		TRACED_TRAP();
		own[0] = take();
		TRACED_TRAP();
		check_stamp(own[0], STAMPED, (uintptr_t)&own[0]);
		break;
	case DRAIN:
		/* The first free finds no magazine, or another slab. */
		fill_own(OWN);
		shrink();
		TRACED_TRAP();
		empty_own(2);
		TRACED_TRAP();
		break;
	case EXCHANGE:
		TRACED_TRAP();
		fill_own(OWN);
		empty_own(OWN);
		TRACED_TRAP();
		break;
	case BULK:
		TRACED_TRAP();
		if (cache) {
			CHECK(cpuslab_cache_alloc_bulk(cache, OWN, own) == OWN);
			for (size_t i = 0; i < OWN; i++)
				check_stamp(own[i], STAMPED, (uintptr_t)&own[i]);
			cpuslab_cache_free_bulk(cache, OWN, own);
			memset(own, 0, sizeof own);
		}
		TRACED_TRAP();
		break;
	case SHRINK:
		fill_own(OWN);
		empty_own(OWN - 3);
		TRACED_TRAP();
		shrink();
		TRACED_TRAP();
		break;
	case OPERATIONS:
		break;
	}
}

static void begin(void)
{
	for (size_t i = 0; i < POOL; i++)
		fill(&pool[i]);
	others = 0;
	others = allocated() - POOL;
}

static void check_round(void)
{
	check_everything();
	empty_own(OWN);
	check_everything();
}

int main(int argc, char **argv)
{
	static const struct schedules test = {.operations = operation_names,
					      .conflicts = CONFLICTS,
					      .begin = begin,
					      .operate = operate,
					      .conflict = conflict,
					      .check = check_round};
	const char *variant = argc > 1 ? argv[1] : "malloc";
	struct cpuslab_cache_args args = {.name = "schedules",
					  .size = object_bytes,
					  .flags = CPUSLAB_CACHE_NO_MERGE,
					  .magazine_capacity = CAPACITY};
	if (strcmp(variant, "malloc") != 0) {
		bool linked = strcmp(variant, "linked") == 0;
		CHECK(linked || strcmp(variant, "magazine") == 0, "no variant '%s'", variant);
		if (linked)
			args.size = object_bytes = 8192;
		args.engine = linked ? CPUSLAB_ENGINE_LINKED : CPUSLAB_ENGINE_MAGAZINE;
		CHECK((cache = cpuslab_cache_create(&args)));
	}
	schedules_begin(&test);
	for (unsigned operation = 0; operation < OPERATIONS; operation++) {
		struct schedules_count count = schedules_run(operation);
		/* malloc has no bulk calls. */
		CHECK(count.stops >= 4 &&
		      (count.in_sections || (operation == BULK && !cache) || operation == SHRINK));
	}
	schedules_end();
	return 0;
}

#endif
