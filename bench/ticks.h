/* SPDX-License-Identifier: MIT */
/*
 * ticks: the finest clock that a thread can read without a call.
 *
 * On x86 the TSC, which runs at one constant rate and not at the core's own clock: ticks compare within a
 * run, and the report says what both clocks were.  Elsewhere nanoseconds.
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

/* Once all before it is done: else the processor reads the clock while it waits for a line of another CPU. */
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

/* Ticks per second, measured against the system's clock over `seconds`. */
double ticks_per_second(double seconds);

/* The core's own clock in Hz: one dependent addition is one cycle of it.  0 where that is not known. */
double core_hertz(void);

#endif
