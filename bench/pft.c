/* SPDX-License-Identifier: MIT */
/*
 * pft: the page-fault test.  Threads touch fresh memory, one cache line in every page, and the table says
 * what a first touch costs:
 *
 *   mapping     in one mapping of the whole size: the kernel alone, without any allocator.  Once a round, and
 *               the floor of the next; the spread of its column is the machine's noise
 *   malloc      in blocks of 64 KiB, which an allocator must find, hand out and take back
 *   page runs   in runs of one page from this library's page-run layer (page_runs.h), which are freed in the
 *               end: its lock is taken once for each fault, as the kernel's was in seed 002; it is
 *               unlocked plainly or demoting
 */
#include "bench.h"

#include "launch.h"
#include "lock_kinds.h"
#include "machine.h"
#include "page_runs.h"
#include "ticks.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
	BLOCK = 64 << 10,
	THREADS_MAX = 64,
	LINES = 1,                   /* touched in each page */
	COLUMNS_MAX = PEERS_MAX + 1, /* with the kernel's */
};

struct report {
	double user, system, wall, pages;
};

/* ======== in the worker ======== */

struct share {
	pthread_t thread;
	char *start; /* of this thread's part of the mapping */
	size_t size, page;
};

static void touch(volatile char *start, size_t size, size_t page)
{
	for (size_t at = 0; at < size; at += page)
		start[at] = 1;
}

static void *touch_mapping(void *argument)
{
	const struct share *share = argument;
	touch(share->start, share->size, share->page);
	return NULL;
}

static void *touch_blocks(void *argument)
{
	const struct share *share = argument;
	size_t count = share->size / BLOCK;
	char **blocks = malloc(count * sizeof(*blocks));
	for (size_t i = 0; blocks && i < count; i++) {
		blocks[i] = malloc(BLOCK);
		if (!blocks[i])
			abort();
		touch(blocks[i], BLOCK, share->page);
	}
	for (size_t i = 0; blocks && i < count; i++)
		free(blocks[i]);
	free(blocks);
	return NULL;
}

static struct {
	page_runs_start_function *start;
	page_runs_allocate_function *allocate;
	page_runs_release_function *release;
} page_runs;

static bool load_page_runs(void)
{
	char path[PATH_MAX];
	void *library =
		launch_beside("libcpuslab-pages.so", path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!library)
		return false;
	page_runs.start = (page_runs_start_function *)dlsym(library, "page_runs_start");
	page_runs.allocate = (page_runs_allocate_function *)dlsym(library, "page_runs_allocate");
	page_runs.release = (page_runs_release_function *)dlsym(library, "page_runs_release");
	return page_runs.start && page_runs.allocate && page_runs.release;
}

/* The link to the previous run is the write that touches a run. */
static void *touch_runs(void *argument)
{
	const struct share *share = argument;
	void **held = NULL;
	for (size_t at = 0; at < share->size; at += share->page) {
		void **run = page_runs.allocate(share->page);
		if (!run)
			abort();
		*run = held;
		held = run;
	}
	while (held) {
		void **run = held;
		held = *run;
		page_runs.release(run, share->page);
	}
	return NULL;
}

/* Arguments: MODE MEBIBYTES THREADS; MODE is mapping, malloc, or the form of the page-run layer's unlock. */
int worker_pft(int argc, char **argv)
{
	static struct share shares[THREADS_MAX];
	if (argc != 4)
		return 2;
	bool mapping = strcmp(argv[1], "mapping") == 0, blocks = strcmp(argv[1], "malloc") == 0;
	size_t size = strtoul(argv[2], NULL, 10) << 20, page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned threads = (unsigned)strtoul(argv[3], NULL, 10);
	if (threads == 0 || threads > THREADS_MAX)
		return 2;
	if (!mapping && !blocks) {
		if (!load_page_runs()) {
			fputs("cpuslab bench: libcpuslab-pages.so is missing\n", stderr);
			return 1;
		}
		/* One fault per page is what is counted. */
		prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
		page_runs.start(strcmp(argv[1], "demoting") == 0);
	}
	size_t part = size / threads / BLOCK * BLOCK;
	size_t pages = part * threads / page;
	double start = seconds_now();
	struct cpu_time before = cpu_time();
	char *memory = NULL;
	if (mapping) {
		memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			      -1, 0);
		if (memory == MAP_FAILED)
			return 1;
		/* The same for this range. */
		madvise(memory, size, MADV_NOHUGEPAGE);
	}
	for (unsigned i = 0; i < threads; i++) {
		shares[i] = (struct share){
			.start = mapping ? memory + i * part : NULL, .size = part, .page = page};
		if (pthread_create(&shares[i].thread, NULL,
				   mapping  ? touch_mapping
				   : blocks ? touch_blocks
					    : touch_runs,
				   &shares[i]) != 0)
			abort();
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(shares[i].thread, NULL);
	struct cpu_time after = cpu_time();
	struct report report = {
		.user = after.user - before.user,
		.system = after.system - before.system,
		.wall = seconds_now() - start,
		.pages = (double)pages,
	};
	return session_reply(&report, sizeof(report)) ? 0 : 1;
}

/* ======== in the command ======== */

#define FIRST_TOUCH "first touch"
#define PAGE_RUNS   "page runs"

struct context {
	struct cell cell;
	unsigned mebibytes, threads;
	/* By column, over all repetitions: the values of the seed's lines. */
	struct total {
		const char *column;
		unsigned repetitions;
		struct report sum;
	} totals[COLUMNS_MAX];
};

static void add_to_total(struct total *total, const char *column, struct report r)
{
	total->column = column;
	total->repetitions++;
	total->sum.user += r.user;
	total->sum.system += r.system;
	total->sum.wall += r.wall;
	total->sum.pages += r.pages;
}

/* Runs one process; its figures go into `column` unless it is warm-up. */
static bool measure_process(struct bench *bench, struct context *c, const struct peer *peer, const char *mode,
			    const char *column, enum role role, struct total *total, bool warm_up)
{
	char size[16], threads[16];
	char *argv[] = {launch_program, "bench", "worker", "pft", (char *)mode, size, threads, NULL};
	struct report r;
	snprintf(size, sizeof(size), "%u", c->mebibytes);
	snprintf(threads, sizeof(threads), "%u", c->threads);
	struct launch launch = {.argv = argv, .peer = peer, .cpu = -1};
	if (!launch_report(launch, &r, sizeof(r)))
		return false;
	if (warm_up)
		return true;
	const struct {
		const char *metric, *unit;
		enum better better;
		double value;
	} rows[] = {
		{"user", "s", BETTER_LOWER, r.user},
		{"system", "s", BETTER_LOWER, r.system},
		{"wall", "s", BETTER_LOWER, r.wall},
		{"flt/cpu/s", "pages", BETTER_HIGHER, r.pages / (r.user + r.system)},
		{"fault/wsec", "pages", BETTER_HIGHER, r.pages / r.wall},
	};
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct cell cell = c->cell;
		cell.metric = rows[i].metric;
		cell.unit = rows[i].unit;
		cell.better = rows[i].better;
		results_add(&bench->results, &cell, column, role, rows[i].value);
	}
	add_to_total(total, column, r);
	return true;
}

/*
 * The first peer's turn begins with the kernel's.  All that a first process can warm up is the machine's
 * memory, which is then warm for all.
 */
static bool measure_pft(struct bench *bench, unsigned peer, bool warm_up, void *context)
{
	struct context *c = context;
	const struct peer *p = &bench->peers.list[peer];
	if (peer == 0 && !measure_process(bench, c, NULL, "mapping", "kernel", ROLE_FLOOR,
					  &c->totals[COLUMNS_MAX - 1], warm_up))
		return false;
	return warm_up ||
	       measure_process(bench, c, p, "malloc", p->name, ROLE_MEASURED, &c->totals[peer], false);
}

/* The layer is this library's, whatever the peers: its columns are the forms of its unlock. */
static void run_page_runs(struct bench *bench, struct context *c)
{
	static const char *const forms[] = {"plain", "demoting"};
	unsigned rounds = bench_rounds(bench, 4);
	const struct cell *cell = &c->cell;
	bool well = true;
	if (results_have(&bench->results, cell->group, cell->test, cell->parameter, forms[0], rounds))
		return;
	results_drop(&bench->results, cell->group, cell->test, cell->parameter);
	bench_progress(bench, cell->test, cell->parameter);
	/* Each round begins with the other form. */
	for (unsigned round = 0; well && round < rounds; round++)
		for (unsigned turn = 0; well && turn < 2; turn++) {
			unsigned form = (round + turn) % 2;
			well = measure_process(bench, c, NULL, forms[form], forms[form], ROLE_MEASURED,
					       &c->totals[form], false);
		}
	if (!well)
		results_note(&bench->results, PAGE_RUNS " failed", cell->parameter);
	bench_save(bench);
}

/* Prints seed 002's format: sums over the repetitions, and the rates derived from them. */
static void print_seed_lines(const struct context *c)
{
	bool headed = false;
	for (unsigned i = 0; i < COLUMNS_MAX; i++) {
		const struct total *t = &c->totals[i];
		const struct report *r = &t->sum;
		if (t->repetitions == 0)
			continue;
		if (!headed)
			printf("%s:\n Gb Rep Thr CLine  User      System   Wall  flt/cpu/s fault/wsec\n",
			       c->cell.test);
		headed = true;
		printf("%3g %2u %4u %3u %7.2fs %9.2fs %6.2fs %9.3f %10.3f  %s\n", c->mebibytes / 1024.0,
		       t->repetitions, c->threads, LINES, r->user, r->system, r->wall,
		       r->pages / (r->user + r->system), r->pages / r->wall, t->column);
	}
}

/* Returns how much memory the system can give without swapping, in MiB; 0 if it does not tell. */
static size_t mebibytes_available(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128];
	size_t kibibytes = 0;
	while (file && kibibytes == 0 && fgets(line, sizeof(line), file))
		if (strncmp(line, "MemAvailable:", 13) == 0)
			kibibytes = strtoul(line + 13, NULL, 10);
	if (file)
		fclose(file);
	return kibibytes >> 10;
}

/* Chooses `bytes`, at least a MiB; halved until as much again stays available. */
static unsigned choose_mebibytes(struct bench *bench, size_t bytes)
{
	size_t wanted = bytes >> 20;
	size_t available = mebibytes_available(), size = wanted ? wanted : 1;
	char text[120];
	while (size > 1 && size > available / 2)
		size /= 2;
	if (size < wanted) {
		snprintf(text, sizeof(text),
			 "%zu MiB instead of %zu: %zu are available, and half of them stay so", size, wanted,
			 available);
		results_note(&bench->results, "page-fault test", text);
	}
	return (unsigned)size;
}

static void run_cell(struct bench *bench, bool runs, unsigned mebibytes, unsigned threads)
{
	char parameter[RESULTS_NAME];
	struct context context = {
		.cell = {"pft", runs ? PAGE_RUNS : FIRST_TOUCH, parameter, "wall", "s", BETTER_LOWER},
		.mebibytes = mebibytes,
		.threads = threads,
	};
	snprintf(parameter, sizeof(parameter), "%g GB, %u thr", mebibytes / 1024.0, threads);
	if (runs)
		run_page_runs(bench, &context);
	else
		bench_rounds_of(bench, &context.cell, bench_rounds(bench, 4), measure_pft, &context);
	if (bench->settings.seed_lines)
		print_seed_lines(&context);
}

bool group_pft(struct bench *bench)
{
	const struct settings *s = &bench->settings;
	const size_t usual = (size_t)(s->quick ? 256 : 4096) << 20; /* the seed's 4 GB */
	const size_t *sizes = s->size_count ? s->sizes : &usual;
	unsigned count = s->size_count ? s->size_count : 1, many = bench_threads(bench, THREADS_MAX);
	for (int runs = 0; runs < 2; runs++) {
		if (!bench_asked_for(bench, runs ? PAGE_RUNS : FIRST_TOUCH))
			continue;
		if (runs && !lock_kinds_demote())
			results_note(&bench->results, PAGE_RUNS,
				     "this processor has no CLDEMOTE: the demoting unlock is a call for "
				     "nothing, and cannot win here");
		for (unsigned i = 0; i < count; i++) {
			unsigned mebibytes = choose_mebibytes(bench, sizes[i]);
			run_cell(bench, runs, mebibytes, 1);
			if (many > 1)
				run_cell(bench, runs, mebibytes, many);
		}
	}
	return true;
}
