/* SPDX-License-Identifier: MIT */
/* program: a whole program under each allocator by turns, for the groups that measure such. */
#ifndef CPUSLAB_BENCH_PROGRAM_H
#define CPUSLAB_BENCH_PROGRAM_H

#include "bench.h"

#include "launch.h"

#include <limits.h>
#include <stdint.h>

/* Runs in a directory of its own, which `setup` (by sh, on the system's malloc) has filled. */
struct program {
	const char *name, *needs, *setup;
	const char *argv[12];
	bool indirect;  /* starts its server itself, with BENCH_PRELOAD */
	bool free_cpus; /* several processes or threads: not pinned */
};

/* A program's runs: one must print the same under every allocator. */
struct run {
	struct cell cell;
	struct launch launch;
	char output[PATH_MAX];
	uint64_t expected; /* hash of its output with nothing preloaded */
};

/* --reps, or as many however many allocators there are: the library is judged by these tables. */
unsigned program_rounds(const struct bench *bench);

/* Runs all rounds of what run->launch says; false if it does not run with nothing preloaded. */
bool program_run(struct bench *bench, struct run *run, unsigned rounds);

/* Prepares a program in a directory below `base` and runs all rounds of it; notes why where it cannot. */
void program_measure(struct bench *bench, const char *group, const char *test, const struct program *program,
		     const char *base);

#endif
