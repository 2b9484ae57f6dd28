/* SPDX-License-Identifier: MIT */
/*
 * malloc_impossible: a request for more than the process can ever have is refused without searching what
 * other vCPUs hoard, so that repeating it costs nobody their magazines.
 */
#include "check.h"

enum { TIMES = 200, OBJECTS = 500 };

/* Something to hoard. */
static void fill_magazines(void)
{
	static void *objects[OBJECTS];

	for (size_t i = 0; i < OBJECTS; i++)
		objects[i] = malloc(10 * i);
	for (size_t i = 0; i < OBJECTS; i++)
		free(objects[i]);
}

static void *ask(int kind, size_t size, void *object)
{
	switch (kind) {
	case 0:
		return malloc(size);
	case 1:
		return calloc(size / 16, 16);
	case 2:
		return realloc(object, size);
	case 3:
		return realloc(NULL, size);
	default:
		return memalign(4096, size);
	}
}

/* How often other vCPUs were closed meanwhile. */
static uint64_t fences_of(size_t size)
{
	struct cpuslab_counters before, after;
	void *object = malloc(100);

	cpuslab_read_counters(&before);
	for (int i = 0; i < TIMES; i++) {
		fill_magazines();
		errno = 0;
		CHECK(!ask(i % 5, size, object) && errno == ENOMEM, "%zu bytes, %d", size, i % 5);
	}
	cpuslab_read_counters(&after);
	free(object);
	return after.fences - before.fences;
}

int main(void)
{
	struct rlimit limit = {(rlim_t)16 << 40, RLIM_INFINITY};

	if (!check_cpuslab())
		check_skip("another malloc");
	fill_magazines();
	/* As time passes there may be a few for other reasons. */
	uint64_t beyond = fences_of((size_t)1 << 60);
	CHECK(beyond < TIMES / 4, "%llu fences", (unsigned long long)beyond);
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	uint64_t limited = fences_of((size_t)17 << 40);
	CHECK(limited < TIMES / 4, "%llu fences under a limit", (unsigned long long)limited);
	return 0;
}
