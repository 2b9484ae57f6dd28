/* SPDX-License-Identifier: MIT */
/*
 * bench: `cpuslab bench`, measures a machine's allocators side by side.
 *
 * Method, everywhere:
 *   - one process for each allocator, preloaded (peers.h says why)
 *   - rounds: every allocator in turn, then again; each round begins with another one, so that no allocator
 *     always runs first or after the same neighbour
 *   - each round starts a new process, and the first round is warm-up (for the micro tests: the first
 *     repetitions of each process)
 *   - figures are medians over the rounds; ratios are taken within a round (statistics.h)
 */
#ifndef CPUSLAB_BENCH_BENCH_H
#define CPUSLAB_BENCH_BENCH_H

#include "peers.h"
#include "results.h"

#include <stddef.h>

enum { SIZES_MAX = 32, LOAD_MAX = 1000000 };

/* The options that only some groups read; TAKES_ORIGINAL: `--threads 2000`, the original test's size. */
enum group_option {
	TAKES_PEERS = 1,
	TAKES_SIZES = 2,
	TAKES_THREADS = 4,
	TAKES_LOAD = 8,
	TAKES_SEED_LINES = 16,
	TAKES_ORIGINAL = 32,
};

struct settings {
	size_t sizes[SIZES_MAX];
	unsigned size_count; /* 0: the group's own */
	unsigned threads;    /* 0: one for each CPU */
	unsigned rounds;     /* 0: the group's own */
	bool load_given;     /* locks: use this work inside and outside; else the group's own */
	unsigned inside, outside;
	bool quick;       /* the two-minute subset */
	bool peers_named; /* --peers names allocators */
	bool seed_lines;  /* kmalloc, pft: also in the seeds' own line format */
	const char *only; /* of a group's tests, only those whose names contain this */
	const char *format, *directory;
};

struct bench {
	struct settings settings;
	struct peers peers;
	struct results results;
	const char *progress_group;
	bool without_bounds;  /* peers.def's BOUND entries take no part in the tests that follow */
	bool unwritten;       /* a file of --out could not be written */
	bool selected;        /* --only has selected a test */
	double counted_until; /* when the group's time was last added up */
	bool terminal;
};

#define GROUP(name, minutes, options, text) bool group_##name(struct bench *bench);
#include "groups.def"
#undef GROUP

#define WORKER(name) int worker_##name(int argc, char **argv);
#include "workers.def"
#undef WORKER

/* Shows on a terminal what is being measured. */
void bench_progress(struct bench *bench, const char *test, const char *parameter);

/* Saves the results so far, so that an interrupted run can be resumed from --out. */
void bench_save(struct bench *bench);

/* Returns whether --only selects this test.  Every group asks before it runs a test. */
bool bench_asked_for(struct bench *bench, const char *test);

/* Returns --threads, else the number of CPUs; at most `most`, with a note if more were asked for. */
unsigned bench_threads(struct bench *bench, unsigned most);

/*
 * Returns --reps if given; else the usual number, or fewer where many allocators would exceed the run's time.
 */
unsigned bench_rounds(const struct bench *bench, unsigned usual);

/*
 * Runs one test for every allocator, round by round.  `take_sample` takes one sample for the allocator and
 * returns false on failure; a failing allocator is named in a note and left out of the test.  Skips a test
 * that the results of an earlier, interrupted run contain already.
 */
typedef bool measure(struct bench *bench, unsigned peer, bool warm_up, void *context);
void bench_rounds_of(struct bench *bench, const struct cell *cell, unsigned rounds, measure *take_sample,
		     void *context);

/*
 * The same for samples that end in idle time: `begin` returns when its worker only has to wait, and `finish`
 * takes the sample after the wait.  Meanwhile the next allocators begin; each has at most one sample under
 * way.
 */
void bench_rounds_overlapped(struct bench *bench, const struct cell *cell, unsigned rounds, measure *begin,
			     measure *finish, void *context);

/* One sample of a whole process: wall time, CPU time, peak resident memory, page faults. */
struct launch;
bool bench_measure_process(struct bench *bench, unsigned peer, bool warm_up, struct cell *cell,
			   const struct launch *launch);

/* Prints in words where cpuslab wins, where it loses, and by how much. */
void verdict_print(const struct results *results, FILE *to);

int command_bench(int argc, char **argv);
int bench_compare(int argc, char **argv);
int bench_repeat(int argc, char **argv);

#endif
