/* SPDX-License-Identifier: MIT */
/*
 * A program that uses caches, for tools that watch its memory: correctly, or with one error.
 * sanitized_caches.sh builds it with each sanitizer, and runs it under memcheck.
 */
#include <cpuslab/cache.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 100, THREADS = 4, ROUNDS = 1100, HELD = 16 };

struct object {
	long number;
	char text[SIZE - sizeof(long)];
};

static volatile long sink;

static struct cpuslab_cache *create(const char *name, void (*constructor)(void *), unsigned flags,
				    enum cpuslab_engine engine)
{
	struct cpuslab_cache_args args = {.name = name,
					  .size = sizeof(struct object),
					  .constructor = constructor,
					  .flags = flags,
					  .engine = engine};
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);

	if (!cache)
		abort();
	return cache;
}

static void construct(void *object)
{
	*(struct object *)object = (struct object){.number = 7};
}

/* ---- errors ---------------------------------------------------------------------------------------- */

static int use_after_free(struct cpuslab_cache *cache)
{
	struct object *object = cpuslab_cache_alloc(cache);

	object->number = 1;
	cpuslab_cache_free(cache, object);
	sink = object->number;
	return 0;
}

static int uninitialised(struct cpuslab_cache *cache)
{
	struct object *object = cpuslab_cache_alloc(cache);

	memset(object, 0, sizeof *object);
	cpuslab_cache_free(cache, object);
	object = cpuslab_cache_alloc(cache);
	if (object->number == 1)
		puts("one");
	cpuslab_cache_free(cache, object);
	return 0;
}

static struct object *shared;

static void *write_shared(void *unused)
{
	shared->number++;
	return unused;
}

static int race(struct cpuslab_cache *cache)
{
	pthread_t thread[2];

	shared = cpuslab_cache_zalloc(cache);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&thread[i], NULL, write_shared, NULL))
			abort();
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	cpuslab_cache_free(cache, shared);
	return 0;
}

/* ---- no error -------------------------------------------------------------------------------------- */

struct worker {
	pthread_t thread;
	struct cpuslab_cache *caches[4];
};

/* Objects pass from thread to thread through the caches alone. */
static void *work(void *argument)
{
	const struct worker *worker = argument;
	struct object *held[HELD] = {0};
	struct cpuslab_cache *from[HELD];

	for (int i = 0; i < ROUNDS; i++) {
		int at = i % HELD;

		if (held[at])
			cpuslab_cache_free(from[at], held[at]);
		from[at] = worker->caches[i % 7 % 4];
		held[at] = cpuslab_cache_alloc(from[at]);
		if (from[at] == worker->caches[2] && held[at]->number != 7)
			abort();
		memset(held[at]->text, i, sizeof held[at]->text);
		if (from[at] != worker->caches[2])
			held[at]->number = i;
		/* Caches come and go, and others get their memory. */
		if (i % 500 == 0) {
			struct cpuslab_cache *own =
				create("own", NULL, CPUSLAB_CACHE_NO_MERGE, CPUSLAB_ENGINE_MAGAZINE);
			struct object *object = cpuslab_cache_zalloc(own);

			if (object->number)
				abort();
			object->number = i;
			cpuslab_cache_free(own, object);
			if (cpuslab_cache_destroy(own))
				abort();
		}
	}
	for (int at = 0; at < HELD; at++)
		cpuslab_cache_free(from[at], held[at]);
	return NULL;
}

static int no_error(struct cpuslab_cache *cache)
{
	static struct worker worker[THREADS];
	struct cpuslab_cache *caches[4] = {
		cache,
		create("linked", NULL, 0, CPUSLAB_ENGINE_LINKED),
		create("constructed", construct, 0, CPUSLAB_ENGINE_MAGAZINE),
		create("stable", NULL, CPUSLAB_CACHE_TYPESAFE_BY_RCU, CPUSLAB_ENGINE_MAGAZINE),
	};
	struct object *object = cpuslab_cache_alloc(caches[3]);

	/* This one may be read. */
	object->number = 3;
	cpuslab_cache_free(caches[3], object);
	sink = object->number;
	for (int i = 0; i < THREADS; i++) {
		memcpy(worker[i].caches, caches, sizeof caches);
		if (pthread_create(&worker[i].thread, NULL, work, &worker[i]))
			abort();
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(worker[i].thread, NULL);
	for (int i = 0; i < 4; i++)
		if (cpuslab_cache_destroy(caches[i]))
			abort();
	puts("all is well");
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*function)(struct cpuslab_cache *cache);
	} all[] = {
		{"none", no_error},
		{"use-after-free", use_after_free},
		{"uninitialised", uninitialised},
		{"race", race},
	};
	struct cpuslab_cache *cache = create("objects", NULL, 0, CPUSLAB_ENGINE_MAGAZINE);

	for (size_t i = 0; argc > 1 && i < sizeof all / sizeof *all; i++)
		if (strcmp(argv[1], all[i].name) == 0)
			return all[i].function(cache);
	return 2;
}
