/* SPDX-License-Identifier: MIT */
/*
 * heap: malloc as the workloads call it.
 *
 * Through pointers, which cost what a call through the linker's table costs.  In a timing pass they are
 * malloc's own addresses; in the latency pass they are wrappers that clock each call into a histogram.  One
 * binary serves both, and the timing pass pays nothing for the other.
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

/* A workload cannot go on without memory, and its figures would be worthless: it stops. */
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

/* Whether to clock every call. */
void heap_init(bool latency);

/* Adds the calling thread's histogram to the process's; every thread of a workload ends with this. */
void heap_thread_end(void);

enum heap_call { HEAP_ALLOCATE, HEAP_RELEASE, HEAP_CALLS };

/* The latency that `share` of all calls stayed within, in ticks; 1 gives the longest. */
double heap_latency(enum heap_call call, double share);

#endif
