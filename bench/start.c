/* SPDX-License-Identifier: MIT */
/*
 * start: what an allocator costs a process that only starts and ends.
 *
 * Time: /bin/true, thirty times a round.  Memory: this command as a worker that allocates once and then sums
 * up its page tables; the command's own pages are the same under every allocator.
 */
#include "bench.h"

#include "launch.h"
#include "machine.h"

#include <stdlib.h>

enum { STARTS = 30 };

int worker_start(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	free(malloc(16));
	double bytes = resident_bytes();
	return session_reply(&bytes, sizeof(bytes)) ? 0 : 1;
}

static bool read_resident(const struct peer *peer, double *bytes)
{
	char *argv[] = {launch_program, "bench", "worker", "start", NULL};
	struct launch launch = {.argv = argv, .peer = peer, .cpu = machine_pinned_cpu()};
	return launch_report(launch, bytes, sizeof(*bytes));
}

static bool measure_start(struct bench *bench, unsigned peer, bool warm_up, void *context)
{
	const struct peer *p = &bench->peers.list[peer];
	struct cell *cell = context;
	char *argv[] = {"true", NULL};
	struct launch launch = {.argv = argv, .peer = p, .cpu = machine_pinned_cpu()};
	double wall = 0, bytes = 0;
	for (unsigned i = 0; i < STARTS; i++) {
		struct usage usage;
		if (!launch_run(&launch, &usage))
			return false;
		wall += usage.wall;
	}
	if (!read_resident(p, &bytes))
		return false;
	if (warm_up)
		return true;
	cell->metric = "start to end";
	cell->unit = "ms";
	results_add(&bench->results, cell, p->name, ROLE_MEASURED, 1000 * wall / STARTS);
	cell->metric = "resident";
	cell->unit = "B";
	results_add(&bench->results, cell, p->name, ROLE_MEASURED, bytes);
	return true;
}

bool group_start(struct bench *bench)
{
	struct cell cell = {"start", "start and end", "process", "start to end", "ms", BETTER_LOWER};
	if (bench_asked_for(bench, cell.test))
		bench_rounds_of(bench, &cell, bench_rounds(bench, bench->settings.quick ? 9 : 15),
				measure_start, &cell);
	return true;
}
