/* SPDX-License-Identifier: MIT */
/*
 * odd: what an outside reader may get wrong: magazines with any number of objects in them, and of an outdated
 * size; slabs of the linked engine; and names that are not valid text.
 */
#include "check.h"

#include <sys/prctl.h>

#include <cpuslab/cache.h>

enum { MAGAZINE = 20, CACHES = 2 * MAGAZINE + 1, LINKED = 4000, LOWERED = 5 };

static pthread_barrier_t loaded;

static void *load(void *cache)
{
	for (unsigned i = 0; i < LOWERED; i++)
		CHECK(cpuslab_cache_alloc(cache));
	pthread_barrier_wait(&loaded);
	pause();
	return NULL;
}

/* Nobody reaches the magazine of another thread's slot (vcpu:slot). */
static void lower_limit(void)
{
	struct cpuslab_cache *cache = cpuslab_cache_create(
		&(struct cpuslab_cache_args){.name = "lowered", .size = 40, .magazine_capacity = 400});
	pthread_t thread;

	CHECK(!pthread_barrier_init(&loaded, NULL, 2) && !pthread_create(&thread, NULL, load, cache));
	pthread_barrier_wait(&loaded);
	CHECK(cpuslab_cache_set_tunables(cache, &(struct cpuslab_cache_tunables){2, 1, 0}) == 0);
}

int main(void)
{
	struct cpuslab_cache_args args = {
		.size = 200, .magazine_capacity = MAGAZINE, .flags = CPUSLAB_CACHE_NO_MERGE};
	char name[32];

	/*
	 * Ends in the middle of a character, as the kernel truncates names; and contains a sequence that
	 * clears a terminal.
	 */
	prctl(PR_SET_NAME, "odd \xc3\x28\x1b[2J\xe2\x82");
	args.name = "odd_\xff\x1b[2J";
	CHECK(cpuslab_cache_alloc(cpuslab_cache_create(&args)));
	/* Right-to-left override, isolate and mark, line separator; a letter beyond ASCII. */
	args.name = "turned_\xe2\x80\xae\xe2\x81\xa7\xe2\x80\x8f_\xe2\x80\xa8\xc3\xa9";
	CHECK(cpuslab_cache_alloc(cpuslab_cache_create(&args)));
	/* The cache held_N has N objects in use. */
	args.name = name;
	for (unsigned held = 1; held <= CACHES; held++) {
		snprintf(name, sizeof name, "held_%u", held);
		struct cpuslab_cache *cache = cpuslab_cache_create(&args);

		for (unsigned i = 0; i < held; i++)
			CHECK(cpuslab_cache_alloc(cache));
	}
	struct cpuslab_cache *linked = cpuslab_cache_create(&(struct cpuslab_cache_args){
		.name = "chained", .size = 1000, .engine = CPUSLAB_ENGINE_LINKED});

	for (unsigned i = 0; i < LINKED; i++)
		memset(cpuslab_cache_alloc(linked), 1, 1000);
	lower_limit();
	dprintf(STDOUT_FILENO, "up\n");
	pause();
	return 0;
}
