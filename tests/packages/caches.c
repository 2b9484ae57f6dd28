/* SPDX-License-Identifier: MIT */
/*
 * caches FILE: a program with caches and locks of cpuslab and another malloc, that of a file whose name
 * contains FILE.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <cpuslab/cache.h>
#include <cpuslab/cpuslab.h>
#include <cpuslab/lock.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 20000, THREADS = 4 };

static struct cpuslab_cache *cache;
static struct cpuslab_pagelock lock = CPUSLAB_PAGELOCK_INITIALIZER;
static unsigned long total;

#define CHECK(condition)                                                                                     \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                              \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

static void *work(void *unused)
{
	static __thread void *objects[COUNT];

	for (int i = 0; i < COUNT; i++) {
		CHECK((objects[i] = cpuslab_cache_alloc(cache)));
		memset(objects[i], i, 56);
		char *block = malloc(100);
		CHECK(block && cpuslab_object_of(block) == NULL); /* the other's */
		free(block);
	}
	for (int i = 0; i < COUNT; i++) {
		CHECK(((char *)objects[i])[55] == (char)i);
		cpuslab_cache_free(cache, objects[i]);
	}
	cpuslab_pagelock_lock(&lock);
	total += COUNT;
	cpuslab_pagelock_unlock(&lock);
	return unused;
}

static void run_threads(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

static void check_malloc(const char *file)
{
	char line[4096];
	FILE *maps = fopen("/proc/self/maps", "r");
	int found = 0;

	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long from, to, address = (unsigned long)(void *)malloc;

		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= address && address < to)
			found = strstr(line, file) != NULL;
	}
	fclose(maps);
	CHECK(found);
}

int main(int count, char **arguments)
{
	int status;
	pid_t child;

	CHECK(count == 2);
	check_malloc(arguments[1]);
	CHECK((cache = cpuslab_cache_create(&(struct cpuslab_cache_args){.name = "cells", .size = 56})));
	run_threads();
	child = fork();
	if (child == 0) {
		run_threads();
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	CHECK(total == THREADS * COUNT);
	CHECK(cpuslab_cache_destroy(cache) == 0);
	printf("cpuslab %s beside another malloc\n", cpuslab_version());
	return 0;
}
