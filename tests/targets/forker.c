/* SPDX-License-Identifier: MIT */
/*
 * forker THREADS OBJECTS: threads that free and allocate, while the process forks all the time; each child,
 * and every other one's own child, allocates as many objects, stays for some milliseconds and exits.  Readers
 * must cope with that, in the parent and in children forked at any instant.  Writes one line when it is up.
 */
#include "check.h"

enum { CHILDREN = 4 };

static unsigned objects;
static pthread_barrier_t filled;

static void fill(void **object, uint64_t *random)
{
	for (unsigned i = 0; i < objects; i++) {
		object[i] = calloc(1, 16 + check_below(random, 4000));
		CHECK(object[i]);
	}
}

static void *churn(void *argument)
{
	uint64_t random = (uintptr_t)argument * 7919 + 1;
	void **object = calloc(objects, sizeof(*object));

	CHECK(object);
	fill(object, &random);
	pthread_barrier_wait(&filled);
	for (;;) {
		size_t i = check_below(&random, objects);

		free(object[i]);
		object[i] = malloc(16 + check_below(&random, 4000));
		CHECK(object[i]);
		if (i % 256 == 0)
			usleep(200);
	}
	return NULL;
}

static _Noreturn void live_and_exit(uint64_t random)
{
	void **object = calloc(objects, sizeof(*object));

	CHECK(object);
	fill(object, &random);
	usleep(30000);
	for (unsigned i = 0; i < objects; i++)
		free(object[i]);
	_exit(0);
}

static pid_t fork_child(unsigned number)
{
	pid_t child = fork();

	CHECK(child >= 0);
	if (child)
		return child;
	pid_t grandchild = number % 2 ? fork() : -1;

	if (grandchild == 0)
		live_and_exit(number);
	if (grandchild > 0)
		CHECK(check_wait(grandchild) == 0);
	live_and_exit(number + 1);
}

int main(int argc, char **argv)
{
	unsigned threads = argc > 1 ? (unsigned)atoi(argv[1]) : 4;
	pthread_t thread;
	pid_t children[CHILDREN] = {0};

	objects = argc > 2 ? (unsigned)atoi(argv[2]) : 500;
	CHECK(!pthread_barrier_init(&filled, NULL, threads + 1));
	for (unsigned i = 0; i < threads; i++)
		CHECK(!pthread_create(&thread, NULL, churn, (void *)(uintptr_t)(i + 1)));
	pthread_barrier_wait(&filled);
	dprintf(STDOUT_FILENO, "up\n");
	for (unsigned number = 0;; number++) {
		pid_t *child = &children[number % CHILDREN];

		if (*child)
			CHECK(check_wait(*child) == 0);
		*child = fork_child(number);
	}
}
