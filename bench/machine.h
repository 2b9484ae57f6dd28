/* SPDX-License-Identifier: MIT */
/* machine: what the figures were measured on, and whether it was quiet enough to believe them. */
#ifndef CPUSLAB_BENCH_MACHINE_H
#define CPUSLAB_BENCH_MACHINE_H

#include "results.h"

/* CPU, cores, kernel, libc, huge pages, both clocks, date. */
void machine_describe(struct results *results);

/* Jiffies of the whole machine since boot. */
struct machine_time {
	unsigned long long total, idle, stolen;
};
struct machine_time machine_time(void);

/* Adds a note if time was stolen since `start`, or if the samples were too far apart. */
void machine_judge(struct results *results, struct machine_time start);

/*
 * Returns the CPU that single-threaded tests are pinned to: the last one allowed, as the first takes most
 * interrupts.
 */
int machine_pinned_cpu(void);
unsigned machine_cpus(void);

#endif
