/* SPDX-License-Identifier: MIT */
/*
 * pft: the page-fault test.  Threads touch fresh memory, one cache line in every page, and the table says
 * what a first touch costs: in one mapping of the whole size ("mapping", the kernel alone, the same under
 * every allocator), and in blocks of 64 KiB from malloc, which an allocator must find, hand out and take
 * back.
 */
#include "bench.h"

#include "launch.h"
#include "machine.h"
#include "ticks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK = 64 << 10, THREADS_MAX = 64 };

struct report {
	double user, system, wall, pages;
};

/* ======== in the worker ======== */

struct share {
	pthread_t thread;
	char *start; /* NULL: blocks from malloc */
	size_t size, page;
};

static void touch(volatile char *start, size_t size, size_t page)
{
	for (size_t at = 0; at < size; at += page)
		start[at] = 1;
}

static void *touch_share(void *argument)
{
	const struct share *share = argument;
	if (share->start) {
		touch(share->start, share->size, share->page);
		return NULL;
	}
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

int worker_pft(int argc, char **argv)
{
	static struct share shares[THREADS_MAX];
	if (argc != 4)
		return 2;
	bool mapping = strcmp(argv[1], "mapping") == 0;
	size_t size = strtoul(argv[2], NULL, 10) << 20, page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned threads = (unsigned)strtoul(argv[3], NULL, 10);
	if (threads == 0 || threads > THREADS_MAX)
		return 2;
	size_t part = size / threads / BLOCK * BLOCK;
	double start = seconds_now();
	struct cpu_time before = cpu_time();
	char *memory = NULL;
	if (mapping) {
		memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			      -1, 0);
		if (memory == MAP_FAILED)
			return 1;
		/* One fault a page is what is counted. */
		madvise(memory, size, MADV_NOHUGEPAGE);
	}
	for (unsigned i = 0; i < threads; i++) {
		shares[i] = (struct share){
			.start = mapping ? memory + i * part : NULL, .size = part, .page = page};
		if (pthread_create(&shares[i].thread, NULL, touch_share, &shares[i]) != 0)
			abort();
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(shares[i].thread, NULL);
	struct cpu_time after = cpu_time();
	struct report report = {
		.user = after.user - before.user,
		.system = after.system - before.system,
		.wall = seconds_now() - start,
		.pages = (double)(part * threads / page),
	};
	return session_reply(&report, sizeof(report)) ? 0 : 1;
}

/* ======== in the command ======== */

struct context {
	struct cell cell;
	const char *mode;
	unsigned mebibytes, threads;
};

static bool measure_pft(struct bench *bench, unsigned peer, bool warm_up, void *context)
{
	struct context *c = context;
	char size[16], threads[16];
	char *argv[] = {launch_program, "bench", "worker", "pft", (char *)c->mode, size, threads, NULL};
	const char *name = bench->peers.list[peer].name;
	struct report r;
	snprintf(size, sizeof(size), "%u", c->mebibytes);
	snprintf(threads, sizeof(threads), "%u", c->threads);
	struct launch launch = {.argv = argv, .peer = &bench->peers.list[peer], .cpu = -1};
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
		c->cell.metric = rows[i].metric;
		c->cell.unit = rows[i].unit;
		c->cell.better = rows[i].better;
		results_add(&bench->results, &c->cell, name, ROLE_MEASURED, rows[i].value);
	}
	if (bench->settings.seed_lines)
		printf("%-11s %-8s Gb %.1f Rep 1 Thr %u CLine 1 User %.2fs System %.2fs Wall %.2fs %.3f "
		       "%.3f\n",
		       name, c->mode, c->mebibytes / 1024.0, c->threads, r.user, r.system, r.wall,
		       rows[3].value, rows[4].value);
	return true;
}

bool group_pft(struct bench *bench)
{
	static const char *const modes[] = {"mapping", "malloc"};
	unsigned many = bench->settings.threads ? bench->settings.threads : machine_cpus();
	size_t size = bench->settings.size_count ? bench->settings.sizes[0] : (size_t)1 << 30;
	size_t available = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
	/* Half of the free memory stays free. */
	unsigned mebibytes = (unsigned)((size < available / 2 ? size : available / 2) >> 20);
	for (unsigned mode = 0; mode < 2; mode++)
		for (unsigned threads = 1; threads <= many; threads += many > 1 ? many - 1 : 1) {
			char parameter[RESULTS_NAME];
			snprintf(parameter, sizeof(parameter), "%s, %u thread%s", modes[mode], threads,
				 threads > 1 ? "s" : "");
			struct context context = {
				.cell = {"pft", "first touch", parameter, "wall", "s", BETTER_LOWER},
				.mode = modes[mode],
				.mebibytes = mebibytes,
				.threads = threads > THREADS_MAX ? THREADS_MAX : threads,
			};
			bench_rounds_of(bench, &context.cell, bench_rounds(bench, 4), measure_pft, &context);
		}
	return true;
}
