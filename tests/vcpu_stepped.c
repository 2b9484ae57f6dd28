/* SPDX-License-Identifier: MIT */
/*
 * vcpu_stepped: calls end although the thread is single-stepped all the time, as under a debugger's software
 * watchpoint: each step aborts the section that it is in.  A thread steps through calls of each kind, by a
 * SIGTRAP after each instruction.
 *
 *   vcpu_stepped alone     in a process with one thread
 *   vcpu_stepped beside    while other threads use the same classes and caches
 *
 * Every object is stamped, the allocator's count of objects in use ends where it began, and when the steps
 * are over so is the way around the sections.
 */
#include "check.h"

#include <cpuslab/cache.h>

#include "arch/arch.h"
#include "single_step.h"
#include "vcpu/vcpu.h"

#ifndef __x86_64__

int main(void)
{
	check_skip("the trap flag is known here for x86-64 only");
}

#else

enum { OBJECTS = 4, OTHERS = 2, AFTERWARDS = 20000 };
static const size_t sizes[] = {24, 700, 40000};
enum { SIZES = sizeof sizes / sizeof *sizes };

static struct cpuslab_cache *caches[2];
static volatile unsigned long steps;
static bool stop;

static void on_step(int number)
{
	(void)number;
	steps++;
}

static void stamp(uint64_t *object, size_t bytes, uint64_t value)
{
	object[0] = object[bytes / 8 - 1] = value ^ (uintptr_t)object;
}

static void verify(const uint64_t *object, size_t bytes, uint64_t value)
{
	CHECK(object[0] == (value ^ (uintptr_t)object) && object[bytes / 8 - 1] == object[0],
	      "%p has two owners", (const void *)object);
}

/* Objects of a size: more than one, so that they come to lie on words, in spares and in the depot. */
static void use_malloc(size_t bytes, uint64_t value)
{
	uint64_t *object[OBJECTS];

	for (size_t i = 0; i < OBJECTS; i++) {
		object[i] = i % 3 || bytes > 1000 ? malloc(bytes) : calloc(1, bytes);
		CHECK(object[i]);
		stamp(object[i], bytes, value + i);
	}
	for (size_t i = 0; i < OBJECTS; i++)
		verify(object[i], bytes, value + i);
	object[0] = realloc(object[0], bytes < 1000 ? 2 * bytes : bytes + 1);
	CHECK(object[0]);
	for (size_t i = 0; i < OBJECTS; i++)
		free(object[i]);
}

static void use_cache(struct cpuslab_cache *cache, uint64_t value)
{
	enum { BYTES = 96 };
	uint64_t *object[OBJECTS];
	void *several[OBJECTS];

	for (size_t i = 0; i < OBJECTS; i++) {
		object[i] = i % 3 ? cpuslab_cache_alloc(cache) : cpuslab_cache_alloc_nowait(cache);
		if (!object[i])
			object[i] = cpuslab_cache_alloc(cache);
		CHECK(object[i]);
		stamp(object[i], BYTES, value + i);
	}
	CHECK(cpuslab_cache_alloc_bulk(cache, OBJECTS, several) == OBJECTS);
	for (size_t i = 0; i < OBJECTS; i++)
		stamp(several[i], BYTES, value);
	for (size_t i = 0; i < OBJECTS; i++) {
		verify(object[i], BYTES, value + i);
		verify(several[i], BYTES, value);
		cpuslab_cache_free(cache, object[i]);
	}
	cpuslab_cache_free_bulk(cache, OBJECTS, several);
}

static void use_all(uint64_t value)
{
	for (size_t i = 0; i < SIZES; i++)
		use_malloc(sizes[i], value);
	for (size_t i = 0; i < 2; i++)
		use_cache(caches[i], value);
}

static void *be_other(void *number)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		use_all((uintptr_t)number << 32);
	return NULL;
}

static size_t in_use(void)
{
	malloc_trim(0);
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static void make_caches(void)
{
	struct cpuslab_cache_args args = {.name = "stepped", .size = 96, .flags = CPUSLAB_CACHE_NO_MERGE};

	CHECK((caches[0] = cpuslab_cache_create(&args)));
	args.engine = CPUSLAB_ENGINE_LINKED;
	CHECK((caches[1] = cpuslab_cache_create(&args)));
}

/* Once with words that hold objects, once with void ones. */
static void step_through(void)
{
	use_all(1);
	step_from_here();
	use_all(2);
	step_to_here();
	CHECK(steps && (!check_rseq() || arch_is_hindered()), "%lu steps", steps);
	malloc_trim(0);
	step_from_here();
	use_all(3);
	step_to_here();
}

/* Hits alone never tell; the next miss does. */
static void must_recover(void)
{
	malloc_trim(0);
	free(malloc(24));
	CHECK(!arch_is_hindered());

	struct cpuslab_counters before = check_counters();

	for (int i = 0; i < AFTERWARDS; i++)
		free(malloc(24));

	struct cpuslab_counters after = check_counters();

	CHECK(after.alloc_misses - before.alloc_misses < AFTERWARDS / 10);
}

int main(int argc, char **argv)
{
	bool beside = argc > 1 && strcmp(argv[1], "beside") == 0;
	struct sigaction action = {.sa_handler = on_step};
	pthread_t others[OTHERS];

	check_watchdog(60);
	CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
	make_caches();
	use_all(0);

	size_t before = in_use();

	for (uintptr_t i = 0; beside && i < OTHERS; i++)
		others[i] = check_thread(be_other, (void *)(i + 1));
	step_through();
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; beside && i < OTHERS; i++)
		check_join(others[i]);
	must_recover();
	if (!beside)
		CHECK(in_use() == before, "%zu bytes in use, and %zu before", in_use(), before);
	for (int i = 0; i < 2; i++)
		CHECK(cpuslab_cache_destroy(caches[i]) == 0);
	printf("%s: %lu steps\n", check_mode(), steps);
	return 0;
}

#endif
