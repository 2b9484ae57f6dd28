/* SPDX-License-Identifier: MIT */
/*
 * engines and pageless: the linked engine, by its ways to commit (seeds 000 and 001).
 *
 * One library contains every variant (variants/variants.h), each the whole engine on real slabs.  In each
 * round every variant has a process of its own, since pages that were used before are in another state; each
 * round begins with another variant.  N = 10000 objects, as in the kernel's module:
 *
 *   1  N allocations, each writing byte 0; then N frees
 *   2  N untouched pairs of an allocation and its free
 *   3  test 1 by a pinned thread on every CPU at once
 *
 * engines shows every variant; pageless the two that seed 001 compares, and how much less the second takes.
 */
#include "bench.h"

#include "launch.h"
#include "machine.h"
#include "pin.h"
#include "published.h"
#include "statistics.h"
#include "ticks.h"
#include "variants/variants.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { N = 10000, THREADS_MAX = 16, REPETITIONS_MAX = 100, VARIANTS_MAX = 16, NAME = 24 };

enum test { TEST_ALLOC_THEN_FREE, TEST_PAIR, TEST_PARALLEL };

struct request {
	enum test test;
	unsigned threads, variant; /* by its place, unless it has a name here */
	char name[NAME];
	size_t size;
	double seconds; /* to spend on each variant, at least three repetitions */
};

struct cost {
	double first, second; /* ticks per call: allocations, frees; or pairs and 0 */
};

struct reply {
	unsigned count; /* of variants */
	char name[NAME];
	struct cost cost;
};

/* One round, by variant; a variant that was not measured has no name. */
struct round {
	unsigned count;
	struct reply variant[VARIANTS_MAX];
};

/* ======== in the worker ======== */

/* noinline, with the variant by value: every variant meets the same instructions in these loops. */
__attribute__((noinline)) static void allocate_all(struct variant v, void *cache, void **objects)
{
	for (unsigned i = 0; i < N; i++) {
		char *object = v.allocate(cache);
		*object = 22;
		objects[i] = object;
	}
}

__attribute__((noinline)) static void release_all(struct variant v, void *cache, void **objects)
{
	for (unsigned i = 0; i < N; i++)
		v.release(cache, objects[i]);
}

__attribute__((noinline)) static void pairs(struct variant v, void *cache)
{
	for (unsigned i = 0; i < N; i++)
		v.release(cache, v.allocate(cache));
}

static struct cost single(struct variant v, void *cache, enum test test)
{
	static void *objects[N];
	uint64_t start = ticks();
	if (test == TEST_PAIR) {
		pairs(v, cache);
		return (struct cost){(double)(ticks() - start) / N, 0};
	}
	allocate_all(v, cache, objects);
	uint64_t between = ticks();
	release_all(v, cache, objects);
	return (struct cost){(double)(between - start) / N, (double)(ticks() - between) / N};
}

static struct parallel {
	struct variant variant;
	void *cache;
	pthread_barrier_t barrier;
} parallel;

static struct member {
	unsigned index;
	struct cost cost;
	void *objects[N];
} members[THREADS_MAX];

static void *member_main(void *argument)
{
	struct member *m = argument;
	pin_to_place(m->index);
	memset(m->objects, 0, sizeof(m->objects));
	pthread_barrier_wait(&parallel.barrier);
	uint64_t start = ticks();
	allocate_all(parallel.variant, parallel.cache, m->objects);
	m->cost.first = (double)(ticks() - start) / N;
	pthread_barrier_wait(&parallel.barrier);
	start = ticks();
	release_all(parallel.variant, parallel.cache, m->objects);
	m->cost.second = (double)(ticks() - start) / N;
	return NULL;
}

static struct cost all_cpus(struct variant v, void *cache, unsigned threads)
{
	pthread_t thread[THREADS_MAX];
	struct cost mean = {0};
	parallel.variant = v;
	parallel.cache = cache;
	pthread_barrier_init(&parallel.barrier, NULL, threads);
	for (unsigned i = 0; i < threads; i++) {
		members[i].index = i;
		if (pthread_create(&thread[i], NULL, member_main, &members[i]) != 0)
			abort();
	}
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(thread[i], NULL);
		mean.first += members[i].cost.first / threads;
		mean.second += members[i].cost.second / threads;
	}
	pthread_barrier_destroy(&parallel.barrier);
	return mean;
}

/* Returns false if the variant fails: no memory, or objects are left at the end. */
static bool clock_variant(struct variant v, const struct request *request, struct cost *cost)
{
	static double samples[2][REPETITIONS_MAX];
	void *cache = v.create(request->size);
	double start = seconds_now();
	unsigned count = 0;
	if (!cache)
		return false;
	/* The first repetition warms up. */
	for (int i = -1; i < REPETITIONS_MAX && (i < 3 || seconds_now() - start < request->seconds); i++) {
		struct cost once = request->test == TEST_PARALLEL ? all_cpus(v, cache, request->threads)
								  : single(v, cache, request->test);
		if (i < 0)
			continue;
		samples[0][count] = once.first;
		samples[1][count++] = once.second;
	}
	*cost = (struct cost){median_of(samples[0], count), median_of(samples[1], count)};
	return v.destroy(cache);
}

static const struct variant *load_variants(unsigned *count)
{
	char path[PATH_MAX];
	void *library =
		launch_beside("libcpuslab-variants.so", path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	variants_function *list = library ? (variants_function *)dlsym(library, "variants_list") : NULL;
	return list ? list(count) : NULL;
}

static unsigned place_of(const struct variant *variants, unsigned count, const struct request *request)
{
	for (unsigned i = 0; request->name[0] && i < count; i++)
		if (strcmp(variants[i].name, request->name) == 0)
			return i;
	return request->variant % count;
}

int worker_engines(int argc, char **argv)
{
	struct request request;
	struct reply reply;
	(void)argc;
	(void)argv;
	const struct variant *variants = load_variants(&reply.count);
	if (!variants || reply.count == 0 || reply.count > VARIANTS_MAX) {
		fputs("cpuslab bench: libcpuslab-variants.so is missing\n", stderr);
		return 1;
	}
	if (!session_receive(&request, sizeof(request)) || request.threads > THREADS_MAX)
		return 1;
	pin_begin();
	if (request.test != TEST_PARALLEL)
		pin_to_cpu(machine_pinned_cpu());
	struct variant variant = variants[place_of(variants, reply.count, &request)];
	snprintf(reply.name, NAME, "%s", variant.name);
	if (!clock_variant(variant, &request, &reply.cost)) {
		fprintf(stderr, "cpuslab bench: %s failed\n", variant.name);
		return 1;
	}
	return session_reply(&reply, sizeof(reply)) ? 0 : 1;
}

/* ======== in the command ======== */

static const struct description {
	const char *name, *first, *second;
} descriptions[] = {
	[TEST_ALLOC_THEN_FREE] = {"1 alloc, then free", "alloc", "free"},
	[TEST_PAIR] = {"2 pair", "pair", NULL},
	[TEST_PARALLEL] = {"3 all CPUs: alloc, then free", "alloc", "free"},
};

/* Records one round for a group. */
typedef void record(struct bench *bench, struct cell cell, const struct description *test,
		    const struct round *round);

/* A group: the variants it measures (NULL: all), and the column that is always there. */
struct subject {
	const char *group;
	const char *const *wanted;
	unsigned wanted_count;
	record *take;
	const char *always;
};

/* Returns whether every variant was measured. */
static bool measure_round(const struct subject *subject, struct request request, unsigned begin_with,
			  struct round *round)
{
	*round = (struct round){.count = subject->wanted ? subject->wanted_count : 1};
	for (unsigned turn = 0; turn < round->count; turn++) {
		struct session session;
		struct reply reply;
		request.variant = turn + begin_with;
		if (subject->wanted)
			snprintf(request.name, NAME, "%s", subject->wanted[request.variant % round->count]);
		bool well = session_open(&session, NULL, "engines") &&
			    session_ask(&session, &request, sizeof(request), &reply, sizeof(reply));
		session_close(&session);
		if (!well || reply.count > VARIANTS_MAX)
			return false;
		if (!subject->wanted)
			round->count = reply.count;
		round->variant[request.variant % round->count] = reply;
	}
	return true;
}

static void run_rounds(struct bench *bench, const struct subject *subject, enum test test, size_t size,
		       unsigned threads)
{
	const struct description *d = &descriptions[test];
	/* The columns are variants: the number of allocators does not matter. */
	unsigned rounds = bench->settings.rounds ? bench->settings.rounds : 9, failures = 0;
	char parameter[RESULTS_NAME];
	snprintf(parameter, sizeof(parameter), "%zu", size);
	struct cell cell = {subject->group, d->name, parameter, d->first, TICKS_UNIT, BETTER_LOWER};
	if (results_have(&bench->results, cell.group, d->name, parameter, subject->always, rounds))
		return;
	results_drop(&bench->results, cell.group, d->name, parameter);
	bench_progress(bench, d->name, parameter);
	struct request request = {.test = test, .threads = threads, .size = size, .seconds = 0.005};
	for (unsigned i = 0; i < rounds; i++) {
		struct round round;
		if (measure_round(subject, request, i, &round))
			subject->take(bench, cell, d, &round);
		else
			failures++;
	}
	if (failures)
		results_note(&bench->results, "a round failed", d->name);
	bench_save(bench);
}

static unsigned sizes_of(const struct bench *bench, const size_t **sizes)
{
	static const size_t usual[] = {8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384},
			    few[] = {16, 256, 4096};
	const struct settings *s = &bench->settings;
	*sizes = s->size_count ? s->sizes : s->quick ? few : usual;
	return s->size_count ? s->size_count
	       : s->quick    ? sizeof(few) / sizeof(few[0])
			     : sizeof(usual) / sizeof(usual[0]);
}

/* Adds the columns: one metric of each variant, and the other if the test has two. */
static void add_cost(struct bench *bench, struct cell cell, const struct description *test,
		     const char *column, enum role role, struct cost cost)
{
	cell.metric = test->first;
	results_add(&bench->results, &cell, column, role, cost.first);
	if (!test->second)
		return;
	cell.metric = test->second;
	results_add(&bench->results, &cell, column, role, cost.second);
}

/* ---- engines ---- */

/* Seed 000's two kernels, beside tests 2 and 3. */
static void add_seed_000(struct bench *bench, struct cell cell, const struct description *test, size_t size)
{
	const char *const metrics[] = {test->first, test->second};
	unsigned number = 1 + (unsigned)(test - descriptions);
	for (unsigned m = 0; m < 2 && metrics[m]; m++) {
		cell.metric = metrics[m];
		published_add(&bench->results, cell, PUBLISHED_PER_CPU, number, size, "seed: per cpu");
		published_add(&bench->results, cell, PUBLISHED_EMULATED, number, size, "seed: emul.");
	}
}

static void record_engines(struct bench *bench, struct cell cell, const struct description *test,
			   const struct round *round)
{
	for (unsigned i = 0; i < round->count; i++) {
		const char *name = round->variant[i].name;
		enum role role = strcmp(name, "floor") == 0 ? ROLE_FLOOR : ROLE_MEASURED;
		add_cost(bench, cell, test, name, role, round->variant[i].cost);
	}
}

bool group_engines(struct bench *bench)
{
	static const struct subject subject = {"engines", NULL, 0, record_engines, "cache linked"};
	const size_t *sizes;
	unsigned count = sizes_of(bench, &sizes);
	unsigned threads = bench_threads(bench, THREADS_MAX);
	for (enum test test = 0; test <= TEST_PARALLEL; test++) {
		if (!bench_asked_for(bench, descriptions[test].name))
			continue;
		if (test == TEST_PARALLEL && threads < 2) {
			results_note(&bench->results, "engines test 3", "left out: it needs two CPUs");
			break;
		}
		for (unsigned i = 0; i < count; i++) {
			char parameter[RESULTS_NAME];
			snprintf(parameter, sizeof(parameter), "%zu", sizes[i]);
			run_rounds(bench, &subject, test, sizes[i], threads);
			struct cell cell = {"engines",   descriptions[test].name, parameter, "", TICKS_UNIT,
					    BETTER_LOWER};
			add_seed_000(bench, cell, &descriptions[test], sizes[i]);
		}
	}
	return true;
}

/* ---- pageless ---- */

/* By how much less the metric of `cell` is after than before. */
static void add_improvement(struct bench *bench, struct cell cell, const char *column, enum role role,
			    double before, double after)
{
	char improvement[RESULTS_NAME];
	snprintf(improvement, sizeof(improvement), "%s: improvement", cell.metric);
	cell.metric = improvement;
	cell.unit = "%";
	cell.better = BETTER_HIGHER;
	results_add(&bench->results, &cell, column, role, 100 * (1 - after / before));
}

static void add_seed_001(struct bench *bench, struct cell cell, const struct description *test, size_t size)
{
	const char *const metrics[] = {test->first, test->second};
	unsigned number = 1 + (unsigned)(test - descriptions);
	for (unsigned m = 0; m < 2 && metrics[m]; m++) {
		double before = published_cycles(PUBLISHED_BEFORE, number, metrics[m], size),
		       after = published_cycles(PUBLISHED_AFTER, number, metrics[m], size);
		cell.metric = metrics[m];
		published_add(&bench->results, cell, PUBLISHED_BEFORE, number, size, "seed before");
		published_add(&bench->results, cell, PUBLISHED_AFTER, number, size, "seed after");
		if (after > 0)
			add_improvement(bench, cell, "seed", ROLE_PUBLISHED, before, after);
	}
}

static const struct cost *cost_of(const struct round *round, const char *name)
{
	for (unsigned i = 0; i < round->count; i++)
		if (strcmp(round->variant[i].name, name) == 0)
			return &round->variant[i].cost;
	return NULL;
}

static const char *const pageless_variants[] = {"rseq", "field, guard", "floor"};

static void record_pageless(struct bench *bench, struct cell cell, const struct description *test,
			    const struct round *round)
{
	const struct cost *after = cost_of(round, pageless_variants[0]),
			  *before = cost_of(round, pageless_variants[1]),
			  *lowest = cost_of(round, pageless_variants[2]);
	if (!before || !after || !lowest)
		return;
	add_cost(bench, cell, test, "after", ROLE_MEASURED, *after);
	add_cost(bench, cell, test, "before", ROLE_MEASURED, *before);
	add_cost(bench, cell, test, "floor", ROLE_FLOOR, *lowest);
	cell.metric = test->first;
	add_improvement(bench, cell, "here", ROLE_MEASURED, before->first, after->first);
	cell.metric = test->second;
	if (test->second)
		add_improvement(bench, cell, "here", ROLE_MEASURED, before->second, after->second);
}

bool group_pageless(struct bench *bench)
{
	static const struct subject subject = {"pageless", pageless_variants,
					       sizeof(pageless_variants) / sizeof(pageless_variants[0]),
					       record_pageless, "after"};
	const size_t *sizes;
	unsigned count = sizes_of(bench, &sizes);
	for (enum test test = 0; test <= TEST_PAIR; test++)
		for (unsigned i = 0; i < count && bench_asked_for(bench, descriptions[test].name); i++) {
			char parameter[RESULTS_NAME];
			snprintf(parameter, sizeof(parameter), "%zu", sizes[i]);
			run_rounds(bench, &subject, test, sizes[i], 1);
			struct cell cell = {"pageless", descriptions[test].name,
					    parameter,  descriptions[test].first,
					    TICKS_UNIT, BETTER_LOWER};
			if (!results_find(&bench->results, &cell, "seed before"))
				add_seed_001(bench, cell, &descriptions[test], sizes[i]);
		}
	return true;
}
