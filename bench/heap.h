/* SPDX-License-Identifier: MIT */
/*
 * heap: malloc as the workloads call it.
 *
 * Calls go through pointers, at the cost of a call through the linker's table.  In a timing pass they are
 * malloc's own addresses; in the latency pass they are wrappers that record the time of each call in a
 * histogram.  One binary serves both, and the timing pass does not pay for the other.
 */
#ifndef CPUSLAB_BENCH_HEAP_H
#define CPUSLAB_BENCH_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap {
	void *(*allocate)(size_t size);
	void *(*resize)(void *object, size_t size);
	void (*release)(void *object);
};

/* Set once, before any workload begins. */
extern struct heap heap;

/* Stops the process when memory is short: a workload cannot go on, and its figures would be worthless. */
__attribute__((malloc)) static inline void *heap_allocate(size_t size)
{
	void *object = heap.allocate(size);
	if (__builtin_expect(!object, 0))
		__builtin_trap();
	return object;
}

static inline void *heap_resize(void *object, size_t size)
{
	void *moved = heap.resize(object, size);
	if (__builtin_expect(!moved, 0))
		__builtin_trap();
	return moved;
}

static inline void heap_release(void *object)
{
	heap.release(object);
}

/* `latency`: time every call. */
void heap_init(bool latency);

/* Adds the calling thread's histogram to the process's; every thread of a workload must end with this. */
void heap_thread_end(void);

enum heap_call { HEAP_ALLOCATE, HEAP_RELEASE, HEAP_CALLS };

/* Returns the latency, in ticks, that a `share` of all calls did not exceed; 1 gives the longest. */
double heap_latency(enum heap_call call, double share);

#endif
