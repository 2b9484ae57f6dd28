/* SPDX-License-Identifier: MIT */
/*
 * bench: `cpuslab bench`, the allocators of a machine measured side by side.
 *
 * How it measures, everywhere:
 *   - one process for each allocator, preloaded (peers.h says why)
 *   - rounds: every allocator in turn, then again, and each round begins with another one, so that no
 * allocator always runs first or after the same neighbour
 *   - each round starts a new process, and the first one is warm-up (for the micro tests: the first
 * repetitions of each process)
 *   - figures are medians over the rounds; ratios are taken within a round (statistics.h)
 */
#ifndef CPUSLAB_BENCH_BENCH_H
#define CPUSLAB_BENCH_BENCH_H

#include "peers.h"
#include "results.h"

#include <stddef.h>

enum { SIZES_MAX = 32, LOAD_MAX = 1000000 };

struct settings {
	size_t sizes[SIZES_MAX];
	unsigned size_count; /* 0: the group's own */
	unsigned threads;    /* 0: as many as CPUs */
	unsigned rounds;     /* 0: the group's own */
	bool load_given;     /* locks: this work inside and outside; else the group's own */
	unsigned inside, outside;
	bool quick;       /* the two-minute subset */
	bool seed_lines;  /* kmalloc, pft: also in the seeds' own line format */
	const char *only; /* tests of a group: these alone, by a part of their names */
	const char *format, *directory;
};

struct bench {
	struct settings settings;
	struct peers peers;
	struct results results;
	const char *progress_group;
	bool without_bounds;  /* those of peers.def take no part in the tests that come */
	double counted_until; /* the clock, when the group's time was last added up */
	bool terminal;
};

#define GROUP(name, minutes, text) bool group_##name(struct bench *bench);
#include "groups.def"
#undef GROUP

#define WORKER(name) int worker_##name(int argc, char **argv);
#include "workers.def"
#undef WORKER

/* Shows on a terminal what is being measured now. */
void bench_progress(struct bench *bench, const char *test, const char *parameter);

/* Saves what there is, so that an interrupted run can be resumed from --out. */
void bench_save(struct bench *bench);

/* Whether --only leaves this test in. */
bool bench_asked_for(const struct bench *bench, const char *test);

/* What --reps asks for; else as usual, but fewer where many allocators would take the run beyond its time. */
unsigned bench_rounds(const struct bench *bench, unsigned usual);

/*
 * Runs one test for every allocator, round by round.  `take_sample` takes one sample for the allocator and
 * returns false when it failed; a failing allocator is named in a note and left out of the test.  Skipped
 * when the results of an earlier, interrupted run hold it already.
 */
typedef bool measure(struct bench *bench, unsigned peer, bool warm_up, void *context);
void bench_rounds_of(struct bench *bench, const struct cell *cell, unsigned rounds, measure *take_sample,
		     void *context);

/*
 * The same for samples that end in idle time: `begin` returns when its worker has nothing to do but wait, and
 * `finish` takes the sample once it has waited.  The next allocators begin meanwhile; of each, one sample is
 * under way at most.
 */
void bench_rounds_overlapped(struct bench *bench, const struct cell *cell, unsigned rounds, measure *begin,
			     measure *finish, void *context);

/* One sample of a whole process, started once: wall time, CPU time, peak resident memory, page faults. */
struct launch;
bool bench_measure_process(struct bench *bench, unsigned peer, bool warm_up, struct cell *cell,
			   const struct launch *launch);

/* Ends in words: where cpuslab wins, where it loses, by how much. */
void verdict_print(const struct results *results, FILE *to);

int command_bench(int argc, char **argv);
int bench_compare(int argc, char **argv);
int bench_repeat(int argc, char **argv);

#endif
