/* SPDX-License-Identifier: MIT */
/*
 * startup_dlclose: a program with another malloc opens the library, uses it in several threads, and closes
 * it.  For each of these threads the kernel keeps an address inside the library, and one of its destructors
 * runs as they end; so the library must stay mapped.  Opened again it goes on as before.
 */
#include "check.h"

#include <cpuslab/cache.h>
#include <dlfcn.h>
#include <limits.h>
#include <sched.h>

enum { THREADS = 4, OBJECTS = 1000, TURNS = 200 };
static pthread_barrier_t closed;
static void *library;

static void use(struct cpuslab_cache *cache)
{
	void *(*alloc)(struct cpuslab_cache *) =
		(void *(*)(struct cpuslab_cache *))dlsym(library, "cpuslab_cache_alloc");
	void (*give)(struct cpuslab_cache *, void *) =
		(void (*)(struct cpuslab_cache *, void *))dlsym(library, "cpuslab_cache_free");
	void *mine[OBJECTS];
	CHECK(alloc && give);
	for (int i = 0; i < OBJECTS; i++) {
		mine[i] = alloc(cache);
		CHECK(mine[i]);
	}
	for (int i = 0; i < OBJECTS; i++)
		give(cache, mine[i]);
}

/* Yields the CPU: on return the kernel examines the thread's position. */
static void linger(void)
{
	for (int i = 0; i < TURNS; i++) {
		sched_yield();
		usleep(100);
	}
}

static void *thread(void *cache)
{
	use(cache);
	pthread_barrier_wait(&closed);
	pthread_barrier_wait(&closed);
	linger();
	return NULL;
}

static void open_library(void)
{
	char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
	CHECK(length > 0);
	path[length] = '\0';
	for (int i = 0; i < 2; i++)
		*strrchr(path, '/') = '\0';
	CHECK(strlen(path) + sizeof "/libcpuslab.so" <= sizeof path);
	strcat(path, "/libcpuslab.so");
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	CHECK(library, "%s", dlerror());
}

/* The library's own dlopen passes calls on to libc's, which precedes the library here. */
static void open_by_library(void)
{
	void *(*opener)(const char *, int) = (void *(*)(const char *, int))dlsym(library, "dlopen");

	CHECK(opener && opener != dlopen);

	void *opened = opener("libm.so.6", RTLD_NOW | RTLD_DEEPBIND);

	CHECK(opened, "%s", dlerror());
	CHECK(dlclose(opened) == 0);
}

int main(void)
{
	const struct cpuslab_cache_args args = {.name = "closed", .size = 40};
	pthread_t threads[THREADS];
	check_watchdog(60);
	if (dlsym(RTLD_DEFAULT, "cpuslab_cache_create"))
		check_skip("this program has the library from its start");
	open_library();
	open_by_library();
	struct cpuslab_cache *(*create)(const struct cpuslab_cache_args *) =
		(struct cpuslab_cache * (*)(const struct cpuslab_cache_args *))
			dlsym(library, "cpuslab_cache_create");
	CHECK(create);
	struct cpuslab_cache *cache = create(&args);
	CHECK(cache);
	CHECK(pthread_barrier_init(&closed, NULL, THREADS + 1) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, thread, cache) == 0);
	use(cache);
	pthread_barrier_wait(&closed);
	CHECK(dlclose(library) == 0);
	pthread_barrier_wait(&closed);
	linger();
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	open_library();
	use(cache);
	return 0;
}
