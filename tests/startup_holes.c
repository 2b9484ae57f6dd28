/* SPDX-License-Identifier: MIT */
/*
 * startup_holes: where others have all addresses but a few holes, the library starts in the largest one,
 * wherever it lies, and serves most of it; objects of pages and more use the others as well.  All that
 * programs do with memory works there: resize, align, zero, free in other threads and in children.
 */
#include "check.h"

#include <sys/mman.h>

enum { OBJECTS = 800, THREADS = 2, STACK = 128 << 10 };

static const size_t MIB = 1 << 20;

static const struct scene {
	const char *options;
	size_t holes[3];     /* in MiB */
	size_t small, large; /* MiB that objects of 1000 and of a million bytes get at least */
} scenes[] = {
	{"reserve:0", {2048, 64, 8}, 0, 1800}, {"", {2048, 64, 8}, 0, 1800},
	{"reserve:0", {64, 64, 8}, 25, 80},    {"", {64, 8, 8}, 25, 35},
	{"reserve:0", {40, 0, 0}, 7, 13},      {"reserve:0,vcpu:slot,decay:0", {128, 128, 0}, 80, 190},
};

static char stacks[THREADS][STACK] __attribute__((aligned(4096)));

static void *take(size_t bytes)
{
	void *address = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return address == MAP_FAILED ? NULL : address;
}

static void leave_holes(const size_t holes[static 3])
{
	char *hole[3] = {0};

	for (int i = 0; i < 3; i++) {
		size_t bytes = holes[i] * MIB;

		/* What is not the same kind of mapping on both sides keeps the holes apart. */
		if (bytes) {
			hole[i] = take(bytes + 8192);
			CHECK(hole[i]);
		}
	}
	for (size_t bytes = (size_t)1 << 46; bytes >= 4096; bytes /= 2)
		while (take(bytes))
			;
	for (int i = 0; i < 3; i++)
		if (hole[i])
			CHECK(munmap(hole[i] + 4096, holes[i] * MIB) == 0);
}

/* Allocates until there is no more, or `most` bytes; returns the bytes, and frees all. */
static size_t fill(size_t size, size_t most)
{
	void **last = NULL;
	size_t bytes = 0;

	for (void **object; bytes < most && (object = malloc(size)); last = object, bytes += size)
		*object = last;
	while (last) {
		void **next = *last;

		free(last);
		last = next;
	}
	return bytes;
}

static void *use(void *seed)
{
	char *objects[OBJECTS] = {0};
	size_t sizes[OBJECTS] = {0};

	for (unsigned i = 0; i < 4 * OBJECTS; i++) {
		unsigned k = (unsigned)((i * 2654435761u + (uintptr_t)seed) % OBJECTS);
		size_t size = i % 7 ? 1 + i % 1500 : 1 + i % 20000;

		if (objects[k])
			CHECK_STAMP(objects[k], sizes[k], k);
		if (i % 3 == 0) {
			objects[k] = realloc(objects[k], size);
		} else {
			CHECK(!objects[k] || malloc_usable_size(objects[k]) >= sizes[k]);
			free(objects[k]);
			objects[k] = i % 5 ? malloc(size) : aligned_alloc(64, size);
		}
		CHECK(objects[k], "object %u of %zu bytes", i, size);
		sizes[k] = size;
		check_stamp(objects[k], size, k);
	}
	for (unsigned k = 0; k < OBJECTS; k++)
		free(objects[k]);
	return NULL;
}

static void use_in_threads(void)
{
	pthread_t threads[THREADS];
	pthread_attr_t attributes;

	CHECK(pthread_attr_init(&attributes) == 0);
	for (int i = 0; i < THREADS; i++) {
		CHECK(pthread_attr_setstack(&attributes, stacks[i], STACK) == 0);
		CHECK(pthread_create(&threads[i], &attributes, use, (void *)(uintptr_t)i) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

/* By the runtime of a sanitizer, for example. */
static bool has_started(void)
{
	struct rlimit was, none;

	CHECK(getrlimit(RLIMIT_AS, &was) == 0);
	none = was;
	none.rlim_cur = 1 << 20; /* less than is already mapped */
	CHECK(setrlimit(RLIMIT_AS, &none) == 0);
	void *volatile object = malloc(100);

	CHECK(setrlimit(RLIMIT_AS, &was) == 0);
	return object;
}

static void play(const struct scene *scene)
{
	if (has_started())
		check_skip("the library has started before main");
	leave_holes(scene->holes);
	void *volatile first = malloc(100);

	CHECK(first, "nothing in holes of %zu, %zu and %zu MiB", scene->holes[0], scene->holes[1],
	      scene->holes[2]);
	for (int round = 0; round < 2; round++) {
		size_t small = fill(1000, scene->small * MIB), large = fill(1000000, scene->large * MIB);

		CHECK(small >= scene->small * MIB && large >= scene->large * MIB,
		      "round %d, holes of %zu MiB: %zu and %zu MiB", round, scene->holes[0], small / MIB,
		      large / MIB);
		use(NULL);
		use_in_threads();
	}
	pid_t child = fork();
	int status;

	if (child == 0) {
		use(NULL);
		use_in_threads();
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK_EXITED(status, 0);
	free(first);
}

int main(int count, char **arguments)
{
	if (!check_cpuslab())
		check_skip("another malloc");
	if (count > 1) {
		play(&scenes[atoi(arguments[1])]);
		return 0;
	}
	for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
		char number[8];
		int status;
		pid_t child = fork();

		if (child == 0) {
			snprintf(number, sizeof number, "%zu", i);
			setenv("CPUSLAB_OPTIONS", scenes[i].options, 1);
			execl("/proc/self/exe", arguments[0], number, NULL);
			_exit(3);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child);
		if (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_SKIPPED)
			return CHECK_SKIPPED;
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "scene %zu: %#x", i, (unsigned)status);
	}
	return 0;
}
