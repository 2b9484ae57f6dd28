/* SPDX-License-Identifier: MIT */
/*
 * calls: which functions of the library one call executes.  Linked to its objects, compiled with
 * -finstrument-functions.
 *
 * Makes many calls of each kind, sorts them by what the library's counters say has happened, and prints of
 * each kind the call with the fewest distinct functions: a line `= kind`, then a line for each entry of a
 * function
 * (+address) and for each return (-).  The fewest, so that the growth of the heap in the midst of a call
 * does not count.
 */
#include <cpuslab/cpuslab.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define APART __attribute__((no_instrument_function))

/*
 * More steps than any call takes, and than a hit does; more objects than magazines and depot keep; more
 * rounds than the growth of the heap spoils.
 */
enum {
	STEPS = 1 << 17,
	HIT_STEPS = 16,
	FUNCTIONS = 4096,
	OBJECTS = 1 << 17,
	SIZE = 64,
	LARGE = 256 << 10,
	ROUNDS = 8
};

/* A function entered, or NULL where one returns. */
struct trace {
	unsigned count, distinct;
	void *step[STEPS];
};

enum kind {
	MALLOC_HIT,
	MALLOC_DEPOT,
	MALLOC_REFILL,
	MALLOC_NEW_SLAB,
	MALLOC_LARGE,
	MALLOC_CHILD,
	FREE_HIT,
	FREE_DEPOT,
	FREE_SLAB,
	FREE_LARGE,
	KINDS
};

static const char *const names[KINDS] = {
	[MALLOC_HIT] = "malloc: a hit",
	[MALLOC_DEPOT] = "malloc: a magazine from the depot",
	[MALLOC_REFILL] = "malloc: a refill from slabs",
	[MALLOC_NEW_SLAB] = "malloc: a refill, with a new slab",
	[MALLOC_LARGE] = "malloc: 256 KiB",
	[MALLOC_CHILD] = "malloc: the first miss in a forked child",
	[FREE_HIT] = "free: a hit",
	[FREE_DEPOT] = "free: a magazine to the depot",
	[FREE_SLAB] = "free: a magazine to the slabs",
	[FREE_LARGE] = "free: 256 KiB",
};

/* Shared with the child.  volatile: malloc is declared as one that calls nothing of this file. */
static struct trace *best, *volatile now;
static void *objects[OBJECTS];

APART void __cyg_profile_func_enter(void *function, void *caller);
APART void __cyg_profile_func_exit(void *function, void *caller);

/* In place of the library's clock (--wrap), which stands still, so that no call has to do what is due by
 * time. */
APART uint64_t __wrap_os_milliseconds(void);

uint64_t __wrap_os_milliseconds(void)
{
	return 1;
}

static APART void note(void *function)
{
	struct trace *trace = now;

	if (trace && trace->count < STEPS)
		trace->step[trace->count++] = function;
}

void __cyg_profile_func_enter(void *function, void *caller)
{
	(void)caller;
	note(function);
}

void __cyg_profile_func_exit(void *function, void *caller)
{
	(void)function;
	(void)caller;
	note(NULL);
}

static APART unsigned count_distinct(const struct trace *trace)
{
	static void *functions[FUNCTIONS];
	unsigned distinct = 0;

	for (unsigned i = 0, j; i < trace->count; i++) {
		for (j = 0; j < distinct && functions[j] != trace->step[i]; j++)
			;
		if (trace->step[i] && j == distinct && distinct < FUNCTIONS)
			functions[distinct++] = trace->step[i];
	}
	return distinct;
}

static APART void keep(enum kind kind, struct trace *trace)
{
	trace->distinct = count_distinct(trace);
	if (trace->count < STEPS && (!best[kind].count || trace->distinct < best[kind].distinct))
		best[kind] = *trace;
}

static struct trace recorded;
static struct cpuslab_counters before, after;

static APART void record(void)
{
	recorded.count = 0;
	now = &recorded;
}

/* Returns whether the call was more than a hit.  Hits change no counter, and reading those takes long. */
static APART bool stop(void)
{
	now = NULL;
	if (recorded.count <= HIT_STEPS)
		return false;
	before = after;
	cpuslab_read_counters(&after);
	return true;
}

static APART void *allocate(size_t size)
{
	record();
	void *object = malloc(size);

	if (!stop())
		keep(MALLOC_HIT, &recorded);
	else if (size == LARGE)
		keep(MALLOC_LARGE, &recorded);
	else if (after.slabs_created != before.slabs_created)
		keep(MALLOC_NEW_SLAB, &recorded);
	else if (after.refills != before.refills)
		keep(MALLOC_REFILL, &recorded);
	else if (after.lock_acquires != before.lock_acquires)
		keep(MALLOC_DEPOT, &recorded);
	return object;
}

static APART void give_back(void *object, size_t size)
{
	record();
	free(object);
	if (!stop())
		keep(FREE_HIT, &recorded);
	else if (size == LARGE)
		keep(FREE_LARGE, &recorded);
	else if (after.drains != before.drains)
		keep(FREE_SLAB, &recorded);
	else if (after.lock_acquires != before.lock_acquires)
		keep(FREE_DEPOT, &recorded);
}

/* In random order, as slabs see it from most programs. */
static APART void shuffle(void)
{
	for (unsigned i = OBJECTS - 1; i; i--) {
		unsigned j = (unsigned)rand() % (i + 1);
		void *object = objects[i];

		objects[i] = objects[j];
		objects[j] = object;
	}
}

static APART void fork_and_allocate(void)
{
	pid_t child = fork();

	if (!child) {
		void *object;

		do {
			record();
			object = malloc(SIZE);
		} while (object && !stop());
		keep(MALLOC_CHILD, &recorded);
		_exit(!object);
	}
	(void)waitpid(child, NULL, 0);
}

static APART void print(enum kind kind)
{
	printf("= %s\n", names[kind]);
	for (unsigned i = 0; i < best[kind].count; i++)
		if (best[kind].step[i])
			printf("+%p\n", best[kind].step[i]);
		else
			puts("-");
}

APART int main(void)
{
	best = mmap(NULL, KINDS * sizeof *best, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (best == MAP_FAILED)
		return 1;
	for (unsigned i = 0; i < OBJECTS; i++)
		objects[i] = allocate(SIZE);
	for (unsigned round = 0; round < ROUNDS; round++) {
		shuffle();
		for (unsigned i = 0; i < OBJECTS; i += 2)
			give_back(objects[i], SIZE);
		for (unsigned i = 0; i < OBJECTS; i += 2)
			objects[i] = allocate(SIZE);
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		void *large = allocate(LARGE);

		give_back(large, LARGE);
		fork_and_allocate();
	}
	for (unsigned i = 0; i < OBJECTS; i++)
		give_back(objects[i], SIZE);
	for (enum kind kind = 0; kind < KINDS; kind++)
		print(kind);
	return 0;
}
