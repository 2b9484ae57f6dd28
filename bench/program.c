/* SPDX-License-Identifier: MIT */
#include "program.h"

#include "heap.h"
#include "machine.h"
#include "workloads/workload.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t hash_file(const char *path)
{
	uint64_t hash = 0xcbf29ce484222325u;
	FILE *file = fopen(path, "re");
	for (int c; file && (c = getc_unlocked(file)) != EOF;)
		hash = mix(hash, (uint64_t)c);
	if (file)
		fclose(file);
	return hash;
}

static bool measure_run(struct bench *bench, unsigned peer, bool warm_up, void *context)
{
	struct run *run = context;
	/* Only the program's files need warming up, and program_run has run it. */
	if (warm_up)
		return true;
	run->launch.peer = &bench->peers.list[peer];
	if (!bench_measure_process(bench, peer, warm_up, &run->cell, &run->launch)) {
		fprintf(stderr, "cpuslab bench: %s failed under %s\n", run->cell.parameter,
			run->launch.peer->name);
		return false;
	}
	if (hash_file(run->output) == run->expected)
		return true;
	fprintf(stderr, "cpuslab bench: %s under %s printed something else than without it\n",
		run->cell.parameter, run->launch.peer->name);
	return false;
}

bool program_run(struct bench *bench, struct run *run, unsigned rounds)
{
	struct usage usage;
	run->launch.peer = NULL;
	bool well = launch_run(&run->launch, &usage);
	run->expected = hash_file(run->output);
	if (well)
		bench_rounds_of(bench, &run->cell, rounds, measure_run, run);
	return well;
}

static bool in_path(const char *program)
{
	const char *path = getenv("PATH");
	while (path && *path) {
		char candidate[PATH_MAX];
		int length = (int)strcspn(path, ":");
		snprintf(candidate, sizeof(candidate), "%.*s/%s", length, path, program);
		if (access(candidate, X_OK) == 0)
			return true;
		path += length + (path[length] == ':');
	}
	return false;
}

static bool make_directory(const struct program *program, const char *base, char directory[static PATH_MAX])
{
	char *argv[] = {"sh", "-ec", (char *)program->setup, NULL};
	char name[RESULTS_NAME], command[2 * PATH_MAX];
	char *make[] = {"mkdir", command, NULL};
	struct usage usage;
	snprintf(name, sizeof(name), "%s", program->name);
	for (char *c = name; *c; c++)
		*c = *c == ' ' ? '-' : *c;
	snprintf(directory, PATH_MAX, "%.3000s/%s", base, name);
	snprintf(command, sizeof(command), "%s", directory);
	struct launch launch = {.argv = make, .cpu = -1};
	if (!launch_run(&launch, &usage))
		return false;
	launch = (struct launch){.argv = argv, .directory = directory, .quiet = true, .cpu = -1};
	return launch_run(&launch, &usage);
}

unsigned program_rounds(const struct bench *bench)
{
	const struct settings *s = &bench->settings;
	return s->rounds ? s->rounds : s->quick ? 4 : 7;
}

void program_measure(struct bench *bench, const char *group, const char *test, const struct program *program,
		     const char *base)
{
	struct run run = {.cell = {group, test, program->name, "wall", "s", BETTER_LOWER}};
	char directory[PATH_MAX], note[RESULTS_NAME];
	snprintf(note, sizeof(note), "program %.16s", program->name);
	if (!in_path(program->needs)) {
		results_note(&bench->results, note, "not found, skipped");
		return;
	}
	bench_progress(bench, "preparing", program->name);
	if (!make_directory(program, base, directory)) {
		results_note(&bench->results, note, "its input could not be made, skipped");
		return;
	}
	snprintf(run.output, sizeof(run.output), "%.3000s/output", base);
	run.launch = (struct launch){.argv = (char *const *)program->argv,
				     .directory = directory,
				     .output = run.output,
				     .quiet = true,
				     .indirect = program->indirect,
				     .cpu = program->free_cpus ? -1 : machine_pinned_cpu()};
	if (!program_run(bench, &run, program_rounds(bench)))
		results_note(&bench->results, note, "fails without any library preloaded, skipped");
}
