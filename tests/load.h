/* SPDX-License-Identifier: MIT */
/*
 * load: threads that allocate, stamp, verify and free for as long as a test forks beside them.
 *
 * They rest while the test waits for a child: the child has its copy of what they were in the middle of, and
 * their later work does not reach it.
 */
#ifndef CPUSLAB_TESTS_LOAD_H
#define CPUSLAB_TESTS_LOAD_H

#include "check.h"

#include <linux/futex.h>
#include <sys/syscall.h>

enum { LOAD_OWNED = 300, LOAD_THREADS = 8 };

struct load {
	pthread_t threads[LOAD_THREADS];
	unsigned count;
	bool stop;
	uint32_t rest;       /* futex that they sleep on */
	unsigned long turns; /* sum over all threads */
};

struct load_objects {
	void *memory[LOAD_OWNED];
	size_t sizes[LOAD_OWNED];
};

/* One step of a program's life: verifies and frees an object, allocates one, or resizes it. */
static inline void load_step(struct load_objects *objects, uint64_t *random)
{
	size_t i = check_below(random, LOAD_OWNED), dice = check_below(random, 200);
	size_t size = 1 + check_below(random, dice < 160 ? 700 : dice < 198 ? 20000 : 400000);
	if (objects->memory[i]) {
		CHECK_STAMP(objects->memory[i], objects->sizes[i], i);
		if (dice % 4) {
			free(objects->memory[i]);
			objects->memory[i] = NULL;
			return;
		}
		objects->memory[i] = realloc(objects->memory[i], size);
	} else {
		objects->memory[i] = dice % 16 ? malloc(size) : aligned_alloc(256, size);
	}
	CHECK(objects->memory[i], "%zu bytes", size);
	objects->sizes[i] = size;
	check_stamp(objects->memory[i], size, i);
}

static inline void load_release(struct load_objects *objects)
{
	for (size_t i = 0; i < LOAD_OWNED; i++) {
		if (objects->memory[i])
			CHECK_STAMP(objects->memory[i], objects->sizes[i], i);
		free(objects->memory[i]);
		objects->memory[i] = NULL;
	}
}

/* Called by each thread of a load between two turns, with nothing under way. */
static inline void load_turn(struct load *load)
{
	__atomic_fetch_add(&load->turns, 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(&load->rest, __ATOMIC_RELAXED))
		syscall(SYS_futex, &load->rest, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
}

static inline void load_go_on(struct load *load)
{
	__atomic_store_n(&load->rest, 0, __ATOMIC_RELAXED);
	syscall(SYS_futex, &load->rest, FUTEX_WAKE_PRIVATE, LOAD_THREADS, NULL, NULL, 0);
}

/* Waits for a child while the threads rest. */
static inline int load_wait(struct load *load, pid_t child)
{
	__atomic_store_n(&load->rest, 1, __ATOMIC_RELAXED);
	int status = check_wait(child);
	load_go_on(load);
	return status;
}

/* Resumes the threads; when it returns they are in the middle of something. */
static inline void load_let_work(struct load *load, uint64_t *random)
{
	unsigned long until = __atomic_load_n(&load->turns, __ATOMIC_RELAXED) + 2 * load->count +
			      check_below(random, 4 * load->count);
	while (__atomic_load_n(&load->turns, __ATOMIC_RELAXED) < until)
		sched_yield();
}

static inline void *load_run(void *argument)
{
	struct load *load = (struct load *)argument;
	struct load_objects objects = {{NULL}, {0}};
	uint64_t random = 0x5bd1e995 + (uint64_t)pthread_self();
	while (!__atomic_load_n(&load->stop, __ATOMIC_RELAXED)) {
		for (int i = 0; i < 50; i++)
			load_step(&objects, &random);
		load_turn(load);
	}
	load_release(&objects);
	return NULL;
}

static inline void load_add(struct load *load, unsigned threads, void *(*function)(void *))
{
	CHECK(load->count + threads <= LOAD_THREADS);
	for (; threads; threads--)
		load->threads[load->count++] = check_thread(function, load);
}

static inline void load_start(struct load *load, unsigned threads, void *(*function)(void *))
{
	memset(load, 0, sizeof *load);
	load_add(load, threads, function);
}

static inline void load_stop(struct load *load)
{
	__atomic_store_n(&load->stop, true, __ATOMIC_RELAXED);
	while (load->count)
		check_join(load->threads[--load->count]);
}

#endif
