/* SPDX-License-Identifier: MIT */
/*
 * malloc_classes: which sizes there are; and size classes are made when they are first needed: by several
 * threads at once, all of which then use the same class; and in a child forked while classes were being made.
 */
#include "check.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpuslab/cpuslab.h"

enum { THREADS = 4, MOST = 256 << 10, OBJECTS = 24 };

static pthread_barrier_t together;

/*
 * A power of two, or three times one: serves sizes up to 1 KiB as long as the program has few objects of the
 * size.
 */
static size_t largest_for(size_t size)
{
	size_t power = 16;
	if (size > 1024)
		return cpuslab_malloc_size(size);
	while (power < size)
		power *= 2;
	return power >= 64 && size <= power / 4 * 3 ? power / 4 * 3 : power;
}

/* A request above 128 KiB takes as many pages as it needs, not an object of a class. */
static void use_pages(void)
{
	static const size_t sizes[] = {(128 << 10) + 1, 150000, 200000, MOST - 1, MOST, MOST + 1};
	CHECK(cpuslab_malloc_size((120 << 10) + 1) == 128 << 10);
	for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		char *object = malloc(sizes[i]);
		CHECK(object && (uintptr_t)object % 64 == 0);
		size_t usable = malloc_usable_size(object);
		CHECK(usable >= sizes[i] && usable < sizes[i] + 4096 &&
			      usable == cpuslab_malloc_size(sizes[i]),
		      "%zu bytes for %zu", usable, sizes[i]);
		free(object);
	}
}

/* Steps from class to class, by cpuslab_malloc_size. */
static void use_each_class(unsigned thread, bool waits)
{
	static unsigned char *objects[THREADS][OBJECTS];
	unsigned char **own = objects[thread];
	for (size_t size = 1; size <= MOST; size = cpuslab_malloc_size(size) + 1) {
		if (waits)
			pthread_barrier_wait(&together);
		for (unsigned i = 0; i < OBJECTS; i++) {
			CHECK((own[i] = malloc(size)));
			size_t usable = malloc_usable_size(own[i]);
			CHECK(usable >= cpuslab_malloc_size(size) && usable <= largest_for(size),
			      "%zu bytes for %zu", usable, size);
			memset(own[i], (int)(thread + 1), size);
		}
		for (unsigned i = 0; i < OBJECTS; i++)
			CHECK(own[i][0] == thread + 1 && own[i][size - 1] == thread + 1,
			      "%zu bytes that two threads have", size);
		/*
		 * Waits for the other threads, so that objects are freed by the maker of the class and by
		 * others.
		 */
		if (waits)
			pthread_barrier_wait(&together);
		own = objects[waits ? (thread + 1) % THREADS : thread];
		for (unsigned i = 0; i < OBJECTS; i++)
			free(own[i]);
		if (waits)
			pthread_barrier_wait(&together);
		own = objects[thread];
	}
}

static void *run(void *thread)
{
	use_each_class((unsigned)(uintptr_t)thread, true);
	return NULL;
}

/* Forks children as long as classes are being made. */
static void *fork_on(void *done)
{
	while (!__atomic_load_n((bool *)done, __ATOMIC_ACQUIRE)) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (!child) {
			use_each_class(0, false);
			malloc_trim(0);
			_exit(0);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0, "a child: %x", status);
	}
	return NULL;
}

/* The overhead of each class; a header added to 1, 2 or 4 KiB must not cost an eighth. */
static void check_sizes(void)
{
	for (size_t size = 129; size <= MOST; size++) {
		size_t granted = cpuslab_malloc_size(size);
		CHECK(granted >= size && granted - size <= size / 8, "%zu bytes for %zu", granted, size);
	}
	CHECK(cpuslab_malloc_size(1024 + 1) == 1040 && cpuslab_malloc_size(1040 + 1) == 1152);
	CHECK(cpuslab_malloc_size(2048 + 1) == 2112 && cpuslab_malloc_size(2112 + 1) == 2304);
	CHECK(cpuslab_malloc_size(4096 + 1) == 4368 && cpuslab_malloc_size(4368 + 1) == 4608);
}

int main(void)
{
	static bool done;
	pthread_t threads[THREADS];
	check_sizes();
	use_pages();
	CHECK(pthread_barrier_init(&together, NULL, THREADS) == 0);
	pthread_t forking = check_thread(fork_on, &done);
	for (unsigned i = 0; i < THREADS; i++)
		threads[i] = check_thread(run, (void *)(uintptr_t)i);
	for (unsigned i = 0; i < THREADS; i++)
		check_join(threads[i]);
	__atomic_store_n(&done, true, __ATOMIC_RELEASE);
	check_join(forking);
	/* Every object goes back to its slab, which knows its class. */
	malloc_trim(0);
	return 0;
}
