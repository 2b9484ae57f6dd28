/* SPDX-License-Identifier: MIT */
/*
 * Debugged caches under load: threads allocate, resize and free each other's objects while another validates
 * everything, and the process forks children that allocate and validate too.  Nothing may be reported, and no
 * content may change.
 *
 *   debug_stress threads     a debugged malloc and an object cache
 *   debug_stress fork        the same with a fork every now and then
 */
#include "check.h"

#include <cpuslab/cache.h>

enum { THREADS = 4, SHARED = 256, MOST = 3000 };

struct object {
	size_t size;
	uint64_t seed;
	struct cpuslab_cache *cache; /* NULL: malloc's */
};

static struct object *shared[SHARED];
static struct cpuslab_cache *cache;
static bool stop;
static unsigned long rounds;

static struct object *make(uint64_t *random)
{
	size_t size = sizeof(struct object) + check_below(random, MOST);
	bool cached = check_below(random, 4) == 0;
	struct object *object = cached ? cpuslab_cache_alloc(cache) : malloc(size);

	if (cached)
		size = cpuslab_cache_size(cache);
	CHECK(object);
	*object = (struct object){size, check_random(random), cached ? cache : NULL};
	check_stamp(object + 1, size - sizeof *object, object->seed);
	return object;
}

static struct object *resize(struct object *object, uint64_t *random)
{
	size_t size = sizeof *object + check_below(random, MOST);

	if (object->cache)
		return object;
	object = realloc(object, size);
	CHECK(object);
	object->size = size;
	check_stamp(object + 1, size - sizeof *object, object->seed);
	return object;
}

static void release(struct object *object)
{
	CHECK_STAMP(object + 1, object->size - sizeof *object, object->seed);
	if (object->cache)
		cpuslab_cache_free(object->cache, object);
	else
		free(object);
}

static void *work(void *argument)
{
	uint64_t random = (uintptr_t)argument * 77 + 1;

	for (unsigned long round = 0; round < rounds; round++) {
		struct object *object = make(&random);

		if (round % 3 == 0)
			object = resize(object, &random);
		object = __atomic_exchange_n(&shared[check_below(&random, SHARED)], object, __ATOMIC_ACQ_REL);
		if (object)
			release(object);
	}
	return NULL;
}

static void *validate(void *unused)
{
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
		CHECK(cpuslab_validate(NULL) == 0);
	return unused;
}

/* In the child every thread but this one is gone, wherever it was. */
static void live_on(void)
{
	uint64_t random = 5;

	check_watchdog(30);
	CHECK(cpuslab_validate(NULL) == 0);
	for (int i = 0; i < 300; i++)
		release(resize(make(&random), &random));
	CHECK(cpuslab_validate(NULL) == 0);
	_exit(0);
}

static void fork_meanwhile(void)
{
	unsigned long forks = check_rounds(60, 2000, 10);

	for (unsigned long i = 0; i < forks; i++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (!child)
			live_on();
		int status = check_wait(child);

		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child %lu: %#x", i, (unsigned)status);
	}
}

int main(int count, char **arguments)
{
	struct cpuslab_cache_args args = {.name = "stress", .size = 500};
	pthread_t thread[THREADS], validator;

	check_watchdog(100);
	if (!getenv("CPUSLAB_DEBUG")) {
		setenv("CPUSLAB_DEBUG", "FZPU", 1);
		execv("/proc/self/exe", arguments);
	}
	CHECK(count == 2 && cpuslab_validate("malloc-*") == 0);
	cache = cpuslab_cache_create(&args);
	CHECK(cache);
	rounds = check_rounds(30000, 1000000, 1000);
	CHECK(pthread_create(&validator, NULL, validate, NULL) == 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&thread[i], NULL, work, (void *)i) == 0);
	if (strcmp(arguments[1], "fork") == 0)
		fork_meanwhile();
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	CHECK(pthread_join(validator, NULL) == 0);
	for (int i = 0; i < SHARED; i++)
		if (shared[i])
			release(shared[i]);
	CHECK(cpuslab_validate(NULL) == 0);
	CHECK(cpuslab_cache_destroy(cache) == 0);
	return 0;
}
