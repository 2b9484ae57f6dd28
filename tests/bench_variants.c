/* SPDX-License-Identifier: MIT */
/*
 * Every variant of the linked engine that `cpuslab bench engines` compares is a complete allocator: each
 * object has one owner at a time and keeps its bytes, with one thread checked against a plain list, and with
 * more threads than CPUs that free each other's objects; and a cache whose objects are all free leaves
 * nothing behind.
 */
#include "check.h"

#include <dlfcn.h>
#include <limits.h>

#include "../bench/variants/variants.h"

enum { MOST = 3000, THREADS = 3, SLOTS = 64 };

static const struct variant *variant;
static void *cache;
static size_t size;

static void test_model(void)
{
	static struct {
		void *object;
		uint64_t seed;
	} live[MOST];
	uint64_t random = size, seeds = 0;
	unsigned count = 0;

	for (unsigned long i = check_rounds(30000, 2000000, 4000); i; i--) {
		/* Grow and shrink by turns, so that lists, slabs and the cache run full and empty. */
		bool up = check_below(&random, 100) < (i / 5000 % 2 ? 60 : 40);

		if (up && count < MOST) {
			void *object = variant->allocate(cache);

			CHECK(object && (uintptr_t)object % 8 == 0);
			check_stamp(object, size, ++seeds);
			live[count].object = object;
			live[count++].seed = seeds;
		} else if (!up && count) {
			size_t at = check_below(&random, count);
			void *object = live[at].object;

			CHECK_STAMP(object, size, live[at].seed);
			live[at] = live[--count];
			variant->release(cache, object);
		}
	}
	while (count) {
		CHECK_STAMP(live[count - 1].object, size, live[count - 1].seed);
		variant->release(cache, live[--count].object);
	}
}

static void *slots[SLOTS]; /* objects on their way from one thread to another */

static void *exchange(void *argument)
{
	uint64_t random = (uintptr_t)argument * 77;

	for (unsigned long i = check_rounds(5000, 500000, 2000); i; i--) {
		size_t at = check_below(&random, SLOTS);
		void *object = NULL;

		if (check_below(&random, 2)) {
			object = variant->allocate(cache);
			CHECK(object);
			check_stamp(object, size, at);
		}
		object = __atomic_exchange_n(&slots[at], object, __ATOMIC_ACQ_REL);
		if (object) {
			CHECK_STAMP(object, size, at);
			variant->release(cache, object);
		}
	}
	return NULL;
}

static void test_threads(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		threads[i] = check_thread(exchange, (void *)(i + 1));
	for (int i = 0; i < THREADS; i++)
		check_join(threads[i]);
	for (int at = 0; at < SLOTS; at++)
		if (slots[at]) {
			variant->release(cache, slots[at]);
			slots[at] = NULL;
		}
}

int main(void)
{
	static const size_t sizes[] = {8, 200, 9000};
	char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
	unsigned count;

	check_watchdog(100);
	CHECK(length > 0);
	path[length] = 0;
	strcpy(strrchr(path, '/'), "/../libcpuslab-variants.so");
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	CHECK(library, "%s", dlerror());
	variants_function *list = (variants_function *)dlsym(library, "variants_list");

	CHECK(list);
	const struct variant *variants = list(&count);

	CHECK(count >= 4);
	/* The last one is the floor, which does nothing. */
	CHECK(strcmp(variants[--count].name, "floor") == 0);
	for (unsigned i = 0; i < count; i++)
		for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++) {
			variant = &variants[i];
			size = sizes[s];
			cache = variant->create(size);
			CHECK(cache, "%s", variant->name);
			test_model();
			test_threads();
			CHECK(variant->destroy(cache), "%s, %zu bytes: objects are left", variant->name,
			      size);
		}
	return 0;
}
