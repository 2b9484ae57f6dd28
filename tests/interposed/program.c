/* SPDX-License-Identifier: MIT */
/*
 * A program that comes through most slow paths: threads, forks, objects that change threads, all sizes,
 * calloc and realloc, memory that runs out, time that passes, statistics, a handler that is asked for.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                     \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			printf("%s:%d: %s failed\n", __FILE__, __LINE__, #condition);                        \
			fflush(stdout);                                                                      \
			_exit(1);                                                                            \
		}                                                                                            \
	} while (0)

enum { LIVE = 4000, THREADS = 3, FORKS = 2, ROUNDS = 1 };
static void *volatile shared[LIVE];

static unsigned next(unsigned *state)
{
	return *state = *state * 1103515245u + 12345u;
}

static size_t size_of(unsigned dice)
{
	size_t small = dice % 1000;

	return dice % 7 ? small : dice % 11 ? small * 40 : small * 3000;
}

static void *churn(void *seed)
{
	unsigned state = (unsigned)(uintptr_t)seed;

	for (int i = 0; i < 10000; i++) {
		unsigned dice = next(&state) >> 8;
		size_t size = size_of(dice);
		unsigned char *object = dice % 5 ? malloc(size) : calloc(1, size);

		CHECK(object);
		if (!(dice % 5))
			for (size_t at = 0; at < size; at += 97)
				CHECK(!object[at]);
		if (size)
			object[0] = object[size - 1] = (unsigned char)size;
		if (!(dice % 13)) {
			object = realloc(object, size * 2 + 1);
			CHECK(object && (!size || object[size - 1] == (unsigned char)size));
		}
		free(__atomic_exchange_n(&shared[dice % LIVE], object, __ATOMIC_ACQ_REL));
	}
	free(aligned_alloc(4096, 8192));
	CHECK(strlen(strdup("never freed")) == 11);
	return NULL;
}

static void run_out(void)
{
	volatile size_t half = SIZE_MAX / 2;

	errno = 0;
	CHECK(!malloc((size_t)PTRDIFF_MAX) && errno == ENOMEM);
	CHECK(!calloc(half, 3) && !reallocarray(NULL, half, 3));
	struct rlimit little = {64 << 20, 64 << 20};

	CHECK(setrlimit(RLIMIT_DATA, &little) == 0);
	unsigned count = 0;
	void **list = NULL, **object;

	while ((object = malloc(100000)) && count++ < 100000) {
		*object = list;
		list = object;
	}
	CHECK(count < 100000 && errno == ENOMEM);
	for (; list; list = object) {
		object = *list;
		free(list);
	}
}

static void in_child(void (*work)(void))
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		work();
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void churn_in_child(void)
{
	churn((void *)77);
}

int main(void)
{
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t threads[THREADS];

		for (uintptr_t i = 0; i < THREADS; i++)
			CHECK(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
		for (int i = 0; i < FORKS; i++)
			in_child(churn_in_child);
		for (int i = 0; i < THREADS; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
		for (int i = 0; i < LIVE; i++)
			free(__atomic_exchange_n(&shared[i], NULL, __ATOMIC_ACQ_REL));
		usleep(150000); /* a tick is due */
		churn((void *)5);
	}
	in_child(run_out);
	malloc_trim(0);
	FILE *nowhere = fopen("/dev/null", "w");

	CHECK(nowhere && malloc_info(0, nowhere) == 0 && fclose(nowhere) == 0);
	puts("ok");
	return 0;
}
