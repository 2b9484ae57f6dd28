/* SPDX-License-Identifier: MIT */
/*
 * magazine_schedules: stops size_class_make(), which makes a size class when it is first needed, at each
 * instruction, while another thread on the same CPU needs the class as well, or the process forks
 * (schedules.h).
 *
 * After each such schedule the class has one cache, whoever made it: all objects come from its slabs, none
 * from others, and its count of them is what the program has.
 */
#include "check.h"

#include "magazine/magazine.h"
#include "malloc/size_class.h"
#include "page/page.h"
#include "slab/slab.h"

#include "schedules.h"

#ifdef __x86_64__

enum { SIZE = 5000, MORE = 20 };
enum operation { MAKE, MAKE_WITHOUT_WAITING, OPERATIONS };
enum conflict { ALSO_MAKE, ALSO_MAKE_WITHOUT_WAITING, FORK, CONFLICTS };
static const char *const operation_names[] = {"make", "make without waiting"};

static unsigned index_of_class;
static char *own, *theirs[MORE];

static void fill(char **slot, bool waits)
{
	char *object = waits ? malloc(SIZE) : cpuslab_aligned_alloc_nowait(16, SIZE);
	if (!object) {
		CHECK(!waits);
		return;
	}
	check_stamp(object, SIZE, (uintptr_t)slot);
	*slot = object;
}

static unsigned check_slot(char **slot)
{
	if (!*slot)
		return 0;
	CHECK_STAMP(*slot, SIZE, (uintptr_t)slot);
	CHECK(slab_cache_of(*slot) == &size_class_made[index_of_class]->depot.slabs,
	      "an object of a cache that is not the class's");
	return 1;
}

static void empty(char **slot)
{
	char *object = *slot;
	*slot = NULL;
	free(object);
}

static void check_class(unsigned objects)
{
	struct cache *cache = size_class_made[index_of_class];
	CHECK(cache && magazine_cache_number(cache->number) == cache);
	struct slab_statistics slabs;
	struct depot_statistics depot;
	slab_statistics(&cache->depot.slabs, &slabs);
	depot_statistics(&cache->depot, &depot);
	uint64_t allocated = slabs.allocated - depot.objects - magazine_objects_loaded(cache);
	CHECK(allocated == objects, "%llu objects by count, and %u are", (unsigned long long)allocated,
	      objects);
}

static void check_round(void)
{
	if (!size_class_made[index_of_class])
		return; /* no caller that may wait has made it */
	unsigned objects = check_slot(&own);
	for (size_t i = 0; i < MORE; i++)
		objects += check_slot(&theirs[i]);
	check_class(objects);
	empty(&own);
	for (size_t i = 0; i < MORE; i++)
		empty(&theirs[i]);
	check_class(0);
}

static void live_on(void)
{
	for (size_t i = 0; i < MORE; i++)
		fill(&theirs[i], true);
	for (size_t i = 0; i < MORE; i++)
		CHECK(check_slot(&theirs[i]));
	for (size_t i = 0; i < MORE; i++)
		empty(&theirs[i]);
	malloc_trim(0);
	fill(&theirs[0], true);
	CHECK(check_slot(&theirs[0]));
	_exit(0);
}

static void conflict(unsigned kind)
{
	switch ((enum conflict)kind) {
	case ALSO_MAKE:
	case ALSO_MAKE_WITHOUT_WAITING:
		for (size_t i = 0; i < MORE; i++)
			fill(&theirs[i], kind == ALSO_MAKE);
		for (size_t i = 0; i < MORE; i += 2)
			empty(&theirs[i]);
		break;
	case FORK: {
		pid_t forked = fork();
		CHECK(forked >= 0);
		if (forked == 0) {
			check_watchdog(60);
			live_on();
		}
		CHECK_EXITED(check_wait(forked), 0);
		break;
	}
	case CONFLICTS:
		break;
	}
}

/* Does what the library never does: makes the class unneeded again. */
static void unmake(void)
{
	struct cache *cache = size_class_made[index_of_class];
	if (!cache)
		return;
	CHECK(magazine_destroy(cache) == 0);
	size_class_made[index_of_class] = NULL;
	metadata_free(cache, sizeof *cache);
}

static void operate(unsigned operation)
{
	unmake();
	TRACED_TRAP();
	char *object = operation == MAKE ? malloc(SIZE) : cpuslab_aligned_alloc_nowait(16, SIZE);
	TRACED_TRAP();
	CHECK(object || operation != MAKE);
	if (object)
		check_stamp(object, SIZE, (uintptr_t)&own);
	own = object;
}

static void begin(void)
{
	index_of_class = size_class_index(SIZE);
}

int main(void)
{
	static const struct schedules test = {.operations = operation_names,
					      .conflicts = CONFLICTS,
					      .begin = begin,
					      .operate = operate,
					      .conflict = conflict,
					      .check = check_round};
	schedules_begin(&test);
	for (unsigned operation = 0; operation < OPERATIONS; operation++)
		CHECK(schedules_run(operation).stops >= 300);
	schedules_end();
	return 0;
}

#endif
