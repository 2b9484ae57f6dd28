/* SPDX-License-Identifier: MIT */
/*
 * Caches by the thousand: ten thousand with one object each take little memory, the words of those beyond the
 * first bank work like any others, a forked child inherits them all, and numbers and memory are reused.
 */
#include "check.h"

#include <cpuslab/cache.h>

#include "engine.h"

enum { CACHES = 10000, LATER = 6000, SIZE = 96, BYTES_EACH = 24 << 10 };

static struct cpuslab_cache *caches[CACHES];
static void *objects[CACHES];

static void create(unsigned i)
{
	char name[32];
	struct cpuslab_cache_args args = {
		.name = name, .size = SIZE, .engine = engine, .flags = CPUSLAB_CACHE_NO_MERGE};

	snprintf(name, sizeof name, "cache-%u", i);
	caches[i] = cpuslab_cache_create(&args);
	CHECK(caches[i], "cache %u", i);
	CHECK(strcmp(cpuslab_cache_name(caches[i]), name) == 0);
}

static void take(unsigned i)
{
	objects[i] = cpuslab_cache_alloc(caches[i]);
	CHECK(objects[i]);
	check_stamp(objects[i], SIZE, i);
}

static void give(unsigned i)
{
	CHECK_STAMP(objects[i], SIZE, i);
	if (i % 2)
		free(objects[i]);
	else
		cpuslab_cache_free(caches[i], objects[i]);
	objects[i] = NULL;
}

static int count(struct cpuslab_cache *cache, void *argument)
{
	(void)cache;
	++*(unsigned *)argument;
	return 0;
}

static void in_child(void *argument)
{
	(void)argument;
	for (unsigned i = 0; i < CACHES; i += 7) {
		give(i);
		take(i);
		give(i);
		CHECK(cpuslab_cache_destroy(caches[i]) == 0);
		create(i);
	}
}

/* Many objects through one word of a later bank, so that every slow path is taken. */
static void fill(struct cpuslab_cache *cache)
{
	enum { MOST = 2000 };
	void *many[MOST];

	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < MOST; i++)
			check_stamp(many[i] = cpuslab_cache_alloc(cache), SIZE, i);
		for (unsigned i = 0; i < MOST; i++) {
			CHECK_STAMP(many[i], SIZE, i);
			if (i % 3 == 0)
				free(many[i]);
			else
				cpuslab_cache_free(cache, many[i]);
		}
	}
	CHECK(cpuslab_cache_alloc_bulk(cache, MOST, many) == MOST);
	cpuslab_cache_free_bulk(cache, MOST, many);
}

static void *fill_later(void *argument)
{
	for (unsigned i = LATER; i < CACHES; i += 500)
		fill(caches[i]);
	return argument;
}

static void free_wrong(void *argument)
{
	(void)argument;
	/* Two caches of a later bank: the page alone does not tell one from the other. */
	cpuslab_cache_free(caches[LATER], objects[LATER + 1]);
	CHECK(cpuslab_cache_destroy(caches[LATER]) == 0);
}

int main(int argc, char **argv)
{
	engine_choose(argc, argv);
	char text[512];
	unsigned visited = 0;

	check_watchdog(100);
	free(malloc(1));
	size_t before = check_resident();

	for (unsigned i = 0; i < CACHES; i++)
		create(i);
	for (unsigned i = 0; i < CACHES; i++)
		take(i);
	if (!check_valgrind()) {
		size_t each = (check_resident() - before) / CACHES;

		CHECK(each < BYTES_EACH, "%zu bytes for a cache", each);
		printf("%zu resident bytes for a cache with one object\n", each);
	}
	CHECK(cpuslab_cache_iterate(count, &visited) == 0 && visited == CACHES);
	CHECK_EXITED(check_child(in_child, NULL, text, sizeof text), 0);
	/* At once, or when the magazine that received it is emptied. */
	int status = check_child(free_wrong, NULL, text, sizeof text);

	CHECK(WIFSIGNALED(status) && (strstr(text, "another cache") || strstr(text, "of this cache")),
	      "%#x, said: %s", (unsigned)status, text);

	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		threads[i] = check_thread(fill_later, NULL);
	for (int i = 0; i < 3; i++)
		check_join(threads[i]);
	CHECK(cpuslab_cache_destroy(caches[LATER]) == -1 && errno == EBUSY);
	malloc_trim(0);
	for (unsigned i = 0; i < CACHES; i++)
		give(i);
	for (unsigned i = 0; i < CACHES; i++)
		CHECK(cpuslab_cache_destroy(caches[i]) == 0, "cache %u", i);

	/* Again and again: nothing accumulates. */
	malloc_trim(0);
	size_t after = check_resident();

	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < CACHES; i++) {
			create(i);
			take(i);
		}
		for (unsigned i = 0; i < CACHES; i++) {
			give(i);
			CHECK(cpuslab_cache_destroy(caches[i]) == 0);
		}
	}
	malloc_trim(0);
	CHECK(check_valgrind() || check_resident() < after + (size_t)CACHES * 1024, "%zu bytes more",
	      check_resident() - after);
	visited = 0;
	CHECK(cpuslab_cache_iterate(count, &visited) == 0 && visited == 0);
	return 0;
}
