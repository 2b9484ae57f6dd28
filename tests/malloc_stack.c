/* SPDX-License-Identifier: MIT */
/*
 * malloc_stack: how deep calls go on the caller's stack, which may be a coroutine's of a few pages or the
 * smallest that a thread can have, with a signal handler on top.  Measured as the part of a painted stack
 * that a thread has overwritten, over all paths through the allocator that a program can take.
 */
#include "check.h"

#include <cpuslab/cache.h>
#include <sys/mman.h>

/* A third of PTHREAD_STACK_MIN; libc and a signal frame may take as much each. */
enum { STACK = 256 << 10, MOST = 5 << 10, OBJECTS = 4000, PAINT = 0xa7 };

static void *objects[OBJECTS];

static void allocate_and_free(size_t size, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		CHECK(objects[i] = malloc(size));
	for (unsigned i = 0; i < count; i++)
		CHECK(objects[i] = realloc(objects[i], size + size / 8));
	for (unsigned i = 0; i < count; i += 2)
		free(objects[i]);
	for (unsigned i = 1; i < count; i += 2)
		free(objects[i]);
}

static void use_cache(enum cpuslab_engine engine, size_t size)
{
	struct cpuslab_cache_args wanted = {.name = "stack", .size = size, .engine = engine};
	struct cpuslab_cache *cache = cpuslab_cache_create(&wanted);

	CHECK(cache);
	for (unsigned i = 0; i < OBJECTS; i++)
		CHECK(objects[i] = cpuslab_cache_alloc(cache));
	for (unsigned i = 0; i < OBJECTS; i++)
		cpuslab_cache_free(cache, objects[i]);
	CHECK(cpuslab_cache_alloc_bulk(cache, OBJECTS, objects) == OBJECTS);
	cpuslab_cache_free_bulk(cache, OBJECTS, objects);
	(void)cpuslab_cache_shrink(cache);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static void *nothing(void *argument)
{
	return argument;
}

static void *everything(void *argument)
{
	for (size_t size = 16; size <= 4 << 20; size *= 3)
		allocate_and_free(size, size < 4096 ? OBJECTS : (unsigned)((16 << 20) / size));
	for (size_t size = 16; size <= 4096; size *= 4) {
		use_cache(CPUSLAB_ENGINE_MAGAZINE, size);
		use_cache(CPUSLAB_ENGINE_LINKED, size);
	}
	malloc_trim(0);
	return argument;
}

/* Bytes of the stack that a thread writes to. */
static size_t depth(void *(*function)(void *), unsigned char *stack)
{
	pthread_attr_t attributes;
	pthread_t thread;
	size_t untouched = 0;

	memset(stack, PAINT, STACK);
	CHECK(pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setstack(&attributes, stack, STACK) == 0);
	CHECK(pthread_create(&thread, &attributes, function, NULL) == 0);
	CHECK(pthread_attr_destroy(&attributes) == 0);
	check_join(thread);
	while (stack[untouched] == PAINT)
		untouched++;
	return STACK - untouched;
}

int main(void)
{
	unsigned char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check_watchdog(60);
	CHECK(stack != MAP_FAILED);
	/* Warm-up: first calls may run the dynamic linker's symbol lookup. */
	everything(NULL);

	size_t least = depth(nothing, stack), most = depth(everything, stack);

	CHECK(most - least <= MOST, "%zu bytes, of which %zu are not the allocator's", most, least);
	dprintf(STDOUT_FILENO, "%zu bytes\n", most - least);
	return 0;
}
