/* SPDX-License-Identifier: MIT */
/*
 * caches COUNT THREADS: object caches by the thousand and threads that use some of each; then prints a line
 * and sleeps.
 */
#include "check.h"

#include <cpuslab/cache.h>

static struct cpuslab_cache **cache;
static unsigned caches, threads;
static pthread_barrier_t used;

static void *use(void *argument)
{
	for (unsigned i = (unsigned)(uintptr_t)argument; i < caches; i += threads) {
		void *object = cpuslab_cache_alloc(cache[i]);

		CHECK(object);
		cpuslab_cache_free(cache[i], cpuslab_cache_alloc(cache[i]));
	}
	pthread_barrier_wait(&used);
	for (;;)
		pause();
	return NULL;
}

int main(int argc, char **argv)
{
	caches = argc > 1 ? (unsigned)atoi(argv[1]) : 10;
	threads = argc > 2 ? (unsigned)atoi(argv[2]) : 2;
	cache = calloc(caches, sizeof(*cache));
	CHECK(cache && !pthread_barrier_init(&used, NULL, threads + 1));
	for (unsigned i = 0; i < caches; i++) {
		char name[32];
		struct cpuslab_cache_args args = {.name = name,
						  .size = 40 + i % 50 * 8,
						  .flags = i % 2 ? CPUSLAB_CACHE_NO_MERGE : 0,
						  .engine = i % 10 == 5 ? CPUSLAB_ENGINE_LINKED
									: CPUSLAB_ENGINE_DEFAULT};

		snprintf(name, sizeof(name), "sort_%u", i);
		cache[i] = cpuslab_cache_create(&args);
		CHECK(cache[i]);
	}
	for (unsigned i = 0; i < threads; i++) {
		pthread_t thread;

		CHECK(!pthread_create(&thread, NULL, use, (void *)(uintptr_t)i));
	}
	pthread_barrier_wait(&used);
	dprintf(STDOUT_FILENO, "up\n");
	for (;;)
		pause();
}
