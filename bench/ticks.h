/* SPDX-License-Identifier: MIT */
/*
 * ticks: the finest clock that a thread can read without a call.
 *
 * On x86 the TSC, which runs at a constant rate and not at the core's clock: ticks are comparable within a
 * run, and the report gives both clocks.  Elsewhere nanoseconds.
 */
#ifndef CPUSLAB_BENCH_TICKS_H
#define CPUSLAB_BENCH_TICKS_H

#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#define TICKS_UNIT "cycles"
static inline uint64_t ticks(void)
{
	return __rdtsc();
}

/*
 * Reads it after all earlier instructions: else the processor reads it while waiting for another CPU's line.
 */
static inline uint64_t ticks_in_order(void)
{
	_mm_lfence();
	return __rdtsc();
}
#else
#define TICKS_UNIT "ns"
static inline uint64_t ticks(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t ticks_in_order(void)
{
	return ticks();
}
#endif

static inline double seconds_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Measures ticks per second against the system's clock over `seconds`. */
double ticks_per_second(double seconds);

/* Returns the core's clock in Hz: one dependent addition takes one cycle.  0 if unknown. */
double core_hertz(void);

#endif
