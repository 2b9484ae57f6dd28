/* SPDX-License-Identifier: MIT */
#include "heap.h"

#include "ticks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

struct heap heap;

/*
 * Buckets of an eighth of a power of two: percentiles are right within 12 %, and a thread's histogram is
 * small enough to stay in its cache.
 */
enum { SUB_BITS = 3, SUB = 1 << SUB_BITS, BUCKETS = 44 * SUB };

static _Thread_local uint64_t own[HEAP_CALLS][BUCKETS];
static _Thread_local uint64_t own_longest[HEAP_CALLS];
static uint64_t total[HEAP_CALLS][BUCKETS], longest[HEAP_CALLS];
static pthread_mutex_t total_lock = PTHREAD_MUTEX_INITIALIZER;

static struct heap system_heap;

static unsigned bucket_of(uint64_t t)
{
	if (t < SUB)
		return (unsigned)t;
	unsigned power = 63u - (unsigned)__builtin_clzll(t);
	unsigned bucket = (power - SUB_BITS + 1) * SUB + (unsigned)((t >> (power - SUB_BITS)) % SUB);
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* Returns the largest time that falls into the bucket. */
static double bucket_end(unsigned bucket)
{
	if (bucket < SUB)
		return bucket;
	unsigned power = bucket / SUB + SUB_BITS - 1;
	return (double)((UINT64_C(1) << power) + ((bucket % SUB + UINT64_C(1)) << (power - SUB_BITS))) - 1;
}

static void count(enum heap_call call, uint64_t time)
{
	own[call][bucket_of(time)]++;
	if (time > own_longest[call])
		own_longest[call] = time;
}

static void *clocked_allocate(size_t size)
{
	uint64_t start = ticks();
	void *object = system_heap.allocate(size);
	count(HEAP_ALLOCATE, ticks() - start);
	return object;
}

static void *clocked_resize(void *object, size_t size)
{
	uint64_t start = ticks();
	object = system_heap.resize(object, size);
	count(HEAP_ALLOCATE, ticks() - start);
	return object;
}

static void clocked_release(void *object)
{
	uint64_t start = ticks();
	system_heap.release(object);
	count(HEAP_RELEASE, ticks() - start);
}

void heap_init(bool latency)
{
	system_heap.allocate = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "malloc");
	system_heap.resize = (void *(*)(void *, size_t))dlsym(RTLD_DEFAULT, "realloc");
	system_heap.release = (void (*)(void *))dlsym(RTLD_DEFAULT, "free");
	heap = latency ? (struct heap){clocked_allocate, clocked_resize, clocked_release} : system_heap;
}

void heap_thread_end(void)
{
	pthread_mutex_lock(&total_lock);
	for (unsigned call = 0; call < HEAP_CALLS; call++) {
		for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
			total[call][bucket] += own[call][bucket];
			own[call][bucket] = 0;
		}
		if (own_longest[call] > longest[call])
			longest[call] = own_longest[call];
		own_longest[call] = 0;
	}
	pthread_mutex_unlock(&total_lock);
}

double heap_latency(enum heap_call call, double share)
{
	uint64_t calls = 0, seen = 0;
	if (share >= 1)
		return (double)longest[call];
	for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
		calls += total[call][bucket];
	for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
		if ((double)(seen += total[call][bucket]) >= share * (double)calls)
			return bucket_end(bucket);
	return (double)longest[call];
}
