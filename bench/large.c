/* SPDX-License-Identifier: MIT */
/*
 * large: blocks of 256 KiB to 64 MiB, vectors that grow by realloc, images, and matrices.
 *
 * A step is what a program repeats: a block allocated and freed, the oldest block of a ring replaced, a
 * vector grown to its last size and dropped, a frame of images written and freed, matrices added.  One thread
 * does so, or two that share nothing but the allocator.  For each test and size: CPU time and page faults of
 * a step, once the first steps have warmed up the allocator, and the peak of the resident memory.  Then, for
 * tests that leave much behind, the resident memory two seconds after everything was freed.
 */
#include "bench.h"

#include "heap.h"
#include "launch.h"
#include "machine.h"
#include "statistics.h"
#include "workloads/workload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* ======== in the worker ======== */

enum {
	PAGE = 4096,
	RING = 4,
	REPETITIONS = 3,
	REPETITION_BYTES = 128 << 20,
	REPETITION_STEPS = 4096, /* of steps that touch nothing, at most */
	DEAR_STEPS = 16,         /* of those, at least */
	WARM_STEPS = 512,
	CREW = 2,       /* threads */
	CREW_TIMES = 16 /* times as many steps each, so that the cost of waking them is negligible */
};

/* CPU time after which a worker stops warming up, and begins no further repetition. */
static const double WARM = 0.1, ENOUGH = 0.2;
/* CPU time of a repetition that needs no more steps. */
static const double LONG_ENOUGH = 0.05;

/* Touches one cache line in every page. */
static void touch(char *block, size_t from, size_t to)
{
	for (size_t at = from; at < to; at += PAGE)
		((volatile char *)block)[at] = 1;
}

static void untouched(size_t size)
{
	heap_release(heap_allocate(size));
}

static void first_page(size_t size)
{
	char *block = heap_allocate(size);
	touch(block, 0, PAGE);
	heap_release(block);
}

static void all_pages(size_t size)
{
	char *block = heap_allocate(size);
	touch(block, 0, size);
	heap_release(block);
}

static _Thread_local char *ring[RING];
static _Thread_local uint64_t random_sizes = 1;

static void replace(unsigned place, size_t size)
{
	heap_release(ring[place]);
	ring[place] = heap_allocate(size);
	touch(ring[place], 0, size);
}

static void ring_of_blocks(size_t size)
{
	static unsigned oldest;
	replace(oldest++ % RING, size);
}

static void mixed_sizes(size_t size)
{
	replace(random_under(&random_sizes, RING), size / 2 + random_under(&random_sizes, (unsigned)size));
}

static void release_ring(void)
{
	for (unsigned place = 0; place < RING; place++) {
		heap_release(ring[place]);
		ring[place] = NULL;
	}
}

/*
 * Grows a vector from one page to `size`, writing as it grows, each time by the share `by` of its length.
 * With `neighbours`, allocates a block after each growth, which keeps the vector from growing in place.
 */
static void grow(size_t size, double by, bool neighbours)
{
	enum { NEIGHBOURS = 256, NEIGHBOUR_BYTES = 16 << 10 };
	char *beside[NEIGHBOURS], *vector = NULL;
	unsigned count = 0;
	for (size_t length = 0, next = PAGE; length < size;) {
		vector = heap_resize(vector, next);
		touch(vector, length / PAGE * PAGE, next);
		length = next;
		next = (size_t)((double)length * (1 + by));
		next = next < size ? next : size;
		if (neighbours && count < NEIGHBOURS) {
			beside[count] = heap_allocate(NEIGHBOUR_BYTES);
			touch(beside[count++], 0, PAGE);
		}
	}
	heap_release(vector);
	while (count > 0)
		heap_release(beside[--count]);
}

static void doubling(size_t size)
{
	grow(size, 1, false);
}

static void doubling_beside(size_t size)
{
	grow(size, 1, true);
}

static void by_tenths(size_t size)
{
	grow(size, 0.1, false);
}

static void by_tenths_beside(size_t size)
{
	grow(size, 0.1, true);
}

/* Pictures of four bytes a pixel, the largest of `size`: written row by row, freed in another order. */
static void images(size_t size)
{
	static const struct picture {
		unsigned width, height; /* of 3840 x 2160 */
	} pictures[] = {{3840, 2160}, {1920, 1080}, {2560, 1440}, {640, 480}, {1280, 720}, {1024, 768}};
	static const unsigned freed[] = {2, 0, 5, 1, 4, 3};
	enum { PICTURES = sizeof(pictures) / sizeof(pictures[0]) };
	char *image[PICTURES];
	size_t part = 3840 * 2160 * 4 / size;
	for (unsigned i = 0; i < PICTURES; i++) {
		size_t row = (size_t)pictures[i].width * 4, rows = pictures[i].height / part;
		image[i] = heap_allocate(row * rows);
		for (size_t y = 0; y < rows; y++)
			memset(image[i] + y * row, (int)y, row);
	}
	for (unsigned i = 0; i < PICTURES; i++)
		heap_release(image[freed[i]]);
}

/* Three square matrices of doubles, written, and two added to the third column by column. */
static void columns(size_t size)
{
	enum { MATRICES = 3, TIMES = 4 };
	double *matrix[MATRICES];
	size_t rows = 1;
	while ((rows + 1) * (rows + 1) * sizeof(double) <= size)
		rows++;
	for (unsigned i = 0; i < MATRICES; i++) {
		matrix[i] = heap_allocate(size);
		memset(matrix[i], 0, size);
	}
	for (unsigned times = 0; times < TIMES; times++)
		for (size_t x = 0; x < rows; x++)
			for (size_t y = 0; y < rows; y++)
				matrix[2][y * rows + x] += matrix[0][y * rows + x] + matrix[1][y * rows + x];
	for (unsigned i = 0; i < MATRICES; i++)
		heap_release(matrix[i]);
}

/* Properties of a script. */
enum {
	TOUCHES = 1, /* touches pages, so that few steps take long enough to be timed */
	RESTS = 2,   /* leaves much behind, at its largest */
	BY_CREW = 4, /* by threads that share nothing but the allocator */
};

/* In the order of the report. */
static const struct script {
	const char *name;
	void (*step)(size_t size);
	unsigned flags;
	size_t sizes[5];
} scripts[] = {
#define BLOCKS                                                                                               \
	{                                                                                                    \
		256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20                                              \
	}
#define VECTORS                                                                                              \
	{                                                                                                    \
		1 << 20, 64 << 20                                                                            \
	}
	{"alloc, free", untouched, 0, BLOCKS},
	{"first page touched", first_page, 0, BLOCKS},
	{"all pages touched", all_pages, TOUCHES, BLOCKS},
	{"ring of four", ring_of_blocks, TOUCHES, BLOCKS},
	{"mixed sizes, ring of four", mixed_sizes, TOUCHES | RESTS, BLOCKS},
	{"mixed sizes, two threads", mixed_sizes, TOUCHES | BY_CREW, {256 << 10, 1 << 20, 4 << 20}},
	{"vector that doubles", doubling, TOUCHES, VECTORS},
	{"vector that doubles, with neighbours", doubling_beside, TOUCHES, VECTORS},
	{"vector that grows by tenths", by_tenths, TOUCHES, {1 << 20}},
	{"vector by tenths, with neighbours", by_tenths_beside, TOUCHES | RESTS, VECTORS},
	{"six images", images, TOUCHES | RESTS, {3840 * 2160 * 4 / 4, 3840 * 2160 * 4}},
	{"three matrices by columns", columns, TOUCHES, {256 << 10, 512 << 10, 1 << 20, 2 << 20}},
#undef VECTORS
#undef BLOCKS
};

enum { SCRIPTS = sizeof(scripts) / sizeof(scripts[0]), SIZES = sizeof(scripts[0].sizes) / sizeof(size_t) };

struct report {
	double seconds, faults, peak_bytes;
};

/* For each repetition, the CPU time and page faults of a step. */
struct repetitions {
	double seconds[REPETITIONS], faults[REPETITIONS];
	unsigned count;
};

/* What the process has used so far. */
struct used {
	double seconds, faults;
};

static struct used used_now(void)
{
	struct cpu_time time = cpu_time();
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (struct used){time.user + time.system, (double)usage.ru_minflt};
}

static void add_repetition(struct repetitions *all, struct used before, unsigned steps)
{
	struct used now = used_now();
	all->seconds[all->count] = (now.seconds - before.seconds) / steps;
	all->faults[all->count++] = (now.faults - before.faults) / steps;
}

static struct report report_of(struct repetitions *all)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (struct report){median_of(all->seconds, all->count), median_of(all->faults, all->count),
			       1024.0 * (double)usage.ru_maxrss};
}

static void repeat(void (*step)(size_t size), size_t size, unsigned steps)
{
	for (unsigned n = 0; n < steps; n++)
		step(size);
}

/* For few steps: the same sizes in each, so that all of them measure the same. */
static void repeat_the_same(void (*step)(size_t size), size_t size, unsigned steps)
{
	random_sizes = 1;
	repeat(step, size, steps);
}

/* Threads that warm up, and begin and end each repetition, together. */
struct crew {
	void (*step)(size_t size);
	size_t size;
	unsigned steps;
	pthread_barrier_t together;
};

static void *crew_steps(void *argument)
{
	static unsigned threads;
	struct crew *crew = argument;
	random_sizes = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
	repeat(crew->step, crew->size, crew->steps);
	pthread_barrier_wait(&crew->together);
	for (unsigned count = 0; count < REPETITIONS; count++) {
		pthread_barrier_wait(&crew->together);
		repeat(crew->step, crew->size, crew->steps);
		pthread_barrier_wait(&crew->together);
	}
	release_ring();
	return NULL;
}

static struct report run_crew(const struct script *script, size_t size)
{
	unsigned steps = (unsigned)(REPETITION_BYTES / size * CREW_TIMES);
	struct crew crew = {.step = script->step, .size = size, .steps = steps};
	struct repetitions all = {.count = 0};
	pthread_t threads[CREW];
	pthread_barrier_init(&crew.together, NULL, CREW + 1);
	for (unsigned i = 0; i < CREW; i++)
		if (pthread_create(&threads[i], NULL, crew_steps, &crew) != 0)
			exit(1);
	pthread_barrier_wait(&crew.together);
	while (all.count < REPETITIONS) {
		struct used before = used_now();
		pthread_barrier_wait(&crew.together);
		pthread_barrier_wait(&crew.together);
		add_repetition(&all, before, CREW * steps);
	}
	for (unsigned i = 0; i < CREW; i++)
		pthread_join(threads[i], NULL);
	return report_of(&all);
}

/*
 * Returns how many steps make a repetition.  To allocate and free a block takes some allocators nanoseconds,
 * others milliseconds.
 */
static unsigned steps_of(const struct script *script, size_t size)
{
	unsigned steps = DEAR_STEPS;
	if (script->flags & TOUCHES)
		return size < REPETITION_BYTES ? (unsigned)(REPETITION_BYTES / size) : 1;
	for (; steps < REPETITION_STEPS; steps *= 2) {
		double start = used_now().seconds;
		repeat_the_same(script->step, size, steps);
		if (used_now().seconds - start >= LONG_ENOUGH)
			break;
	}
	return steps;
}

static struct report run_steps(const struct script *script, size_t size)
{
	unsigned steps = steps_of(script, size);
	struct repetitions all = {.count = 0};
	double start = used_now().seconds, limit = start + WARM;
	/*
	 * Until the ring is full; and, where steps are quick, until whatever an allocator adapts to the
	 * number of large objects it has seen, above all huge pages for them, has settled.
	 */
	for (unsigned i = 0; i <= RING || (i < WARM_STEPS && used_now().seconds < limit); i += steps)
		repeat_the_same(script->step, size, steps);
	limit = used_now().seconds + ENOUGH;
	while (all.count == 0 || (all.count < REPETITIONS && start < limit)) {
		struct used before = used_now();
		start = before.seconds;
		repeat_the_same(script->step, size, steps);
		add_repetition(&all, before, steps);
	}
	release_ring();
	return report_of(&all);
}

/* Arguments: SCRIPT SIZE [rest], by number and in bytes. */
int worker_large(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	unsigned number = (unsigned)strtoul(argv[1], NULL, 10);
	if (number >= SCRIPTS)
		return 2;
	heap_init(false);
	const struct script *script = &scripts[number];
	size_t size = strtoul(argv[2], NULL, 10);
	struct report report = script->flags & BY_CREW ? run_crew(script, size) : run_steps(script, size);
	if (!session_reply(&report, sizeof(report)))
		return 1;
	if (argc < 4)
		return 0;
	rest();
	double final_bytes = resident_bytes();
	return session_reply(&final_bytes, sizeof(final_bytes)) ? 0 : 1;
}

/* ======== in the command ======== */

#define RESTING "2 s after the last free"

struct run {
	struct cell cell;
	char script[8], size[24];
	bool crew;
	struct reporter workers[PEERS_MAX]; /* of workers at rest */
};

static struct launch launch_of(const struct bench *bench, unsigned peer, const struct run *run, char **argv)
{
	return (struct launch){
		.argv = argv, .peer = &bench->peers.list[peer], .cpu = run->crew ? -1 : machine_pinned_cpu()};
}

static void add(struct bench *bench, const struct run *run, unsigned peer, const char *metric,
		const char *unit, double sample)
{
	struct cell cell = run->cell;
	cell.metric = metric;
	cell.unit = unit;
	results_add(&bench->results, &cell, bench->peers.list[peer].name, ROLE_MEASURED, sample);
}

static bool measure_steps(struct bench *bench, unsigned peer, bool warm_up, void *context)
{
	struct run *run = context;
	char *argv[] = {launch_program, "bench", "worker", "large", run->script, run->size, NULL};
	struct report report;
	/* A worker warms itself up. */
	if (warm_up)
		return true;
	if (!launch_report(launch_of(bench, peer, run, argv), &report, sizeof(report)))
		return false;
	add(bench, run, peer, "CPU time", "us", 1e6 * report.seconds);
	add(bench, run, peer, "page faults", "faults", report.faults);
	add(bench, run, peer, "peak resident", "B", report.peak_bytes);
	return true;
}

static bool begin_rest(struct bench *bench, unsigned peer, bool warm_up, void *context)
{
	struct run *run = context;
	struct reporter *worker = &run->workers[peer];
	char *argv[] = {launch_program, "bench", "worker", "large", run->script, run->size, "rest", NULL};
	struct report report;
	if (warm_up)
		return true;
	if (reporter_start(worker, launch_of(bench, peer, run, argv)) &&
	    reporter_read(worker, &report, sizeof(report)))
		return true;
	reporter_end(worker);
	return false;
}

static bool finish_rest(struct bench *bench, unsigned peer, bool warm_up, void *context)
{
	struct run *run = context;
	double final_bytes;
	if (warm_up)
		return true;
	bool well = reporter_read(&run->workers[peer], &final_bytes, sizeof(final_bytes));
	if (!reporter_end(&run->workers[peer]) || !well)
		return false;
	add(bench, run, peer, "final resident", "B", final_bytes);
	return true;
}

static void run_script(struct bench *bench, unsigned number, size_t size)
{
	const struct script *script = &scripts[number];
	char parameter[RESULTS_NAME];
	struct run run = {.cell = {"large", script->name, parameter, "CPU time", "us", BETTER_LOWER},
			  .crew = script->flags & BY_CREW};
	/* The library is judged by these rows, however many allocators there are. */
	unsigned rounds = bench->settings.rounds ? bench->settings.rounds : 7;
	snprintf(run.script, sizeof(run.script), "%u", number);
	snprintf(run.size, sizeof(run.size), "%zu", size);
	if (size < 1 << 20)
		snprintf(parameter, sizeof(parameter), "%zu KiB", size >> 10);
	else
		snprintf(parameter, sizeof(parameter), "%.3g MiB", (double)size / (1 << 20));
	bench_rounds_of(bench, &run.cell, rounds, measure_steps, &run);
}

/* Measures what is left of the script at its largest size. */
static void run_to_rest(struct bench *bench, unsigned number, size_t size)
{
	struct run run = {
		.cell = {"large", RESTING, scripts[number].name, "final resident", "B", BETTER_LOWER}};
	unsigned rounds = bench->settings.rounds && bench->settings.rounds < 3 ? bench->settings.rounds : 3;
	snprintf(run.script, sizeof(run.script), "%u", number);
	snprintf(run.size, sizeof(run.size), "%zu", size);
	bench_rounds_overlapped(bench, &run.cell, rounds, begin_rest, finish_rest, &run);
}

bool group_large(struct bench *bench)
{
	const struct settings *s = &bench->settings;
	for (unsigned i = 0; i < SCRIPTS; i++) {
		const size_t *sizes = s->size_count ? s->sizes : scripts[i].sizes;
		unsigned count = s->size_count ? s->size_count : SIZES, run = 0;
		if (!bench_asked_for(bench, scripts[i].name))
			continue;
		while (run < count && sizes[run])
			run_script(bench, i, sizes[run++]);
		if ((scripts[i].flags & RESTS) && run > 0)
			run_to_rest(bench, i, sizes[run - 1]);
	}
	return true;
}
