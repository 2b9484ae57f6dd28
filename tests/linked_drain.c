/* SPDX-License-Identifier: MIT */
/*
 * linked_drain: shrink and reclaim take lists off the words of threads that are using them, as fast as
 * possible.  Every object has one owner at a time; and in the end all memory goes back, so that none was
 * lost.
 */
#include "check.h"

#include <sched.h>

#include "linked/linked.h"
#include "os/os.h"

enum { SIZE = 64, HELD = 24, USERS = 2 };

static struct linked_cache cache;
static bool over;

struct object {
	uint64_t link; /* used by the engine while the object is free */
	uint64_t second_link;
	uint32_t taken;
};

static void *use(void *argument)
{
	uint64_t random = (uintptr_t)argument;
	struct object *held[HELD] = {0};

	while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
		for (unsigned i = 0; i < 1000; i++) {
			struct object **slot = &held[check_below(&random, HELD)];

			if (*slot) {
				CHECK(__atomic_exchange_n(&(*slot)->taken, 0, __ATOMIC_RELAXED) == 1);
				if (!linked_free(&cache, *slot))
					linked_free_missed(&cache, *slot);
				*slot = NULL;
			} else {
				*slot = linked_alloc(&cache);
				if (!*slot)
					*slot = linked_alloc_missed(&cache);
				CHECK(*slot && __atomic_exchange_n(&(*slot)->taken, 1, __ATOMIC_RELAXED) == 0,
				      "%p has two owners", (void *)*slot);
			}
		}
	for (unsigned i = 0; i < HELD; i++)
		if (held[i]) {
			held[i]->taken = 0;
			linked_free_missed(&cache, held[i]);
		}
	return NULL;
}

int main(void)
{
	struct linked_traits traits = {.name = "drained", .size = SIZE, .alignment = 8, .link = UINT32_MAX};
	pthread_t users[USERS];

	check_watchdog(60);
	free(malloc(1));
	/* Fresh memory is zero: without an owner. */
	CHECK(linked_create(&cache, &traits, NULL));
	cache.type_stable = true;
	for (uintptr_t i = 0; i < USERS; i++)
		users[i] = check_thread(use, (void *)(i + 1));
	for (unsigned long i = check_rounds(20000, 1000000, 500); i; i--) {
		if (i % 4)
			linked_reclaim(true);
		else
			linked_shrink(&cache);
		if (i % 64 == 0)
			sched_yield();
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (int i = 0; i < USERS; i++)
		check_join(users[i]);

	struct linked_statistics now;

	linked_statistics(&cache, &now);
	CHECK(now.allocated == 0, "%llu objects are lost", (unsigned long long)now.allocated);
	CHECK(linked_destroy(&cache));
	return 0;
}
