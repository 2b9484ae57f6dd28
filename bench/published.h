/* SPDX-License-Identifier: MIT */
/*
 * published: the seeds' figures, from other machines and in another unit of work.  They stand beside what is
 * measured here to compare shapes, never levels.
 */
#ifndef CPUSLAB_BENCH_PUBLISHED_H
#define CPUSLAB_BENCH_PUBLISHED_H

#include "results.h"

#include <stddef.h>

enum published { PUBLISHED_PER_CPU, PUBLISHED_EMULATED, PUBLISHED_BEFORE, PUBLISHED_AFTER };

/*
 * Returns the cycles of "alloc", "free" or "pair" in test 1, 2 or 3 of the kernel's module; 0 if they are not
 * published.
 */
double published_cycles(enum published kernel, unsigned test, const char *metric, size_t size);

/* Adds them as the named column of the cell's table, if they are published. */
void published_add(struct results *results, struct cell cell, enum published kernel, unsigned test,
		   size_t size, const char *column);

#endif
