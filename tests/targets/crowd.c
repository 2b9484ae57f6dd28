/* SPDX-License-Identifier: MIT */
/*
 * crowd THREADS OBJECTS: threads that free and allocate objects of many sizes at random, each holding OBJECTS
 * of them at every instant except between a free and the next allocation.  Before that, allocates an object
 * of a size whose class then has no slab.  Writes one line when it is up.  On SIGUSR1 the threads stop where
 * they are and stay; a second line says so.
 */
#include "check.h"

#include <malloc.h>

static volatile sig_atomic_t stop;
static unsigned objects;
static pthread_barrier_t filled;

static void on_signal(int signal)
{
	(void)signal;
	stop = 1;
}

static void *churn(void *argument)
{
	uint64_t random = (uintptr_t)argument * 7919 + 1;
	void **object = calloc(objects, sizeof(*object));

	CHECK(object);
	for (unsigned i = 0; i < objects; i++)
		object[i] = calloc(1, 16 + check_below(&random, 4000));
	pthread_barrier_wait(&filled);
	for (unsigned round = 0; !stop; round++) {
		size_t i = check_below(&random, objects), size = 16 + check_below(&random, 4000);

		free(object[i]);
		object[i] = malloc(size);
		CHECK(object[i]);
		memset(object[i], 1, size);
		if (round % 1024 == 0)
			usleep(200);
	}
	return object;
}

int main(int argc, char **argv)
{
	unsigned threads = argc > 1 ? (unsigned)atoi(argv[1]) : 4;
	pthread_t thread[256];

	void *once = malloc(120000);

	CHECK(once);
	free(once);
	malloc_trim(0);
	objects = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
	CHECK(threads <= 256 && !pthread_barrier_init(&filled, NULL, threads + 1));
	signal(SIGUSR1, on_signal);
	for (unsigned i = 0; i < threads; i++)
		CHECK(!pthread_create(&thread[i], NULL, churn, (void *)(uintptr_t)(i + 1)));
	pthread_barrier_wait(&filled);
	dprintf(STDOUT_FILENO, "up\n");
	for (unsigned i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	dprintf(STDOUT_FILENO, "stopped\n");
	for (;;)
		pause();
}
