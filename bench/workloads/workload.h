/* SPDX-License-Identifier: MIT */
/*
 * workload: allocation-heavy programs small enough to read, each the core of a program that people run.
 *
 * A workload allocates through heap.h, uses what it allocates, frees everything before it returns, and
 * returns a checksum that depends on all of its work and on nothing else: it must be the same under every
 * allocator.  `scale` is proportional to the work; 100 takes about a second.
 */
#ifndef CPUSLAB_BENCH_WORKLOAD_H
#define CPUSLAB_BENCH_WORKLOAD_H

#include "heap.h"

#include <stdint.h>

#define WORKLOAD(name, threads, text) uint64_t workload_##name(unsigned scale);
#include "workloads.def"
#undef WORKLOAD

/* splitmix64: each workload (and each of its threads) has its own, seeded by a constant. */
static inline uint64_t random_next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static inline unsigned random_under(uint64_t *state, unsigned bound)
{
	return (unsigned)(((random_next(state) >> 32) * bound) >> 32);
}

/*
 * Sizes as servers see them: most are small, some are not.  Chooses a power of two with falling odds from
 * `smallest`, and then any size up to it.
 */
static inline size_t random_size(uint64_t *state, size_t smallest, unsigned doublings)
{
	uint64_t r = random_next(state);
	unsigned power = (unsigned)__builtin_ctzll(r | (UINT64_C(1) << doublings));
	size_t ceiling = smallest << power;
	return ceiling / 2 + (r >> 32) % (ceiling / 2) + 1;
}

static inline uint64_t mix(uint64_t checksum, uint64_t value)
{
	return (checksum ^ value) * 0x100000001b3u;
}

/*
 * Runs `count` threads of `body`, each with its index, waits for them, and returns the sum of their results.
 */
uint64_t threads_run(unsigned count, uint64_t (*body)(unsigned index, void *context), void *context);

/* Returns the number of CPUs that this process may use, but at least two. */
unsigned threads_usual(void);

#endif
