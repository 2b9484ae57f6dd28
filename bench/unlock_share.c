/* SPDX-License-Identifier: MIT */
/*
 * The claim of seed 004, for an allocator: how much of the time of many short-lived shell scripts goes into
 * unlocking, with and without an unlock that reads the lock again.
 *
 * Three builds of the library (unlock_probe.h), whose locks are all page locks, are preloaded in turn; perf
 * samples CPU time.  Counted are the samples within the unlock function, over those within the library, and
 * over all of the load's, kernel included.
 */
#include "unlock_share.h"

#include "launch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char load[] = "i=0\n"
			   "while [ $i -lt 100 ]; do\n"
			   "	for word in alpha beta gamma; do\n"
			   "		echo \"$word $i\" | sed 's/a/b/' | tr a-z A-Z | cut -d' ' -f1\n"
			   "	done\n"
			   "	name=$(basename /one/two/$i)\n"
			   "	[ \"$name\" = $i ] && expr $i + 1\n"
			   "	printf '%s\\n' c b a $i | sort | head -n 2\n"
			   "	awk 'BEGIN { for (i = 0; i < 300; i++) a[i] = i \"x\"; print length(a) }'\n"
			   "	i=$((i + 1))\n"
			   "done\n";

struct profile {
	double all, allocator, unlock; /* samples */
};

static const struct form {
	const char *column, *library;
} forms[] = {{"pagelock", "libcpuslab-unlock-fused.so"},
	     {"two-step", "libcpuslab-unlock-two-step.so"},
	     {"two-step byte", "libcpuslab-unlock-two-step-byte.so"}};

enum { FORMS = sizeof(forms) / sizeof(forms[0]) };

/* Reads lines of "share ; samples ; file ; [.] function". */
static struct profile read_profile(const char *path, const char *library)
{
	struct profile profile = {0};
	char text[1024];
	FILE *file = fopen(path, "re");
	while (file && fgets(text, sizeof(text), file)) {
		char *samples = strchr(text, ';');
		if (text[0] == '#' || !samples)
			continue;
		double count = strtod(samples + 1, NULL);
		profile.all += count;
		if (strstr(text, library))
			profile.allocator += count;
		if (strstr(text, library) && strstr(text, "] cpuslab_unlock\n"))
			profile.unlock += count;
	}
	if (file)
		fclose(file);
	return profile;
}

static bool take_profile(const struct form *form, const char *folder, struct profile *profile)
{
	char library[PATH_MAX], preload[PATH_MAX + 16], data[PATH_MAX], report[PATH_MAX];
	if (!launch_beside(form->library, library))
		return false;
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", library);
	snprintf(data, sizeof(data), "%.3000s/data", folder);
	snprintf(report, sizeof(report), "%.3000s/report", folder);
	char *record[] = {"perf", "record", "-q",    "-F", "9999", "-e",         "cpu-clock", "-o",
			  data,   "env",    preload, "sh", "-c",   (char *)load, NULL};
	char *print[] = {"perf", "report", "-i", data, "--sort", "dso,sym", "--stdio", "-n", "-t", ";", NULL};
	struct usage usage;
	struct launch launch = {.argv = record, .quiet = true, .cpu = -1};
	if (!launch_run(&launch, &usage))
		return false;
	launch = (struct launch){.argv = print, .output = report, .quiet = true, .cpu = -1};
	bool well = launch_run(&launch, &usage);
	if (well)
		*profile = read_profile(report, form->library);
	unlink(data);
	unlink(report);
	return well && profile->unlock > 0;
}

static void add_shares(struct bench *bench, struct cell cell, const char *column,
		       const struct profile *profile)
{
	cell.metric = "share of the allocator";
	cell.unit = "%";
	results_add(&bench->results, &cell, column, ROLE_MEASURED,
		    100 * profile->unlock / profile->allocator);
	cell.metric = "share of all CPU time";
	cell.unit = "ppm";
	results_add(&bench->results, &cell, column, ROLE_MEASURED, 1e6 * profile->unlock / profile->all);
}

void unlock_share(struct bench *bench)
{
	struct cell cell = {"pagelock", "shell scripts", "unlocking", "share of the allocator",
			    "%",        BETTER_LOWER};
	unsigned rounds = bench->settings.rounds ? bench->settings.rounds : 9;
	char folder[PATH_MAX];
	if (results_have(&bench->results, cell.group, cell.test, cell.parameter, forms[0].column, rounds))
		return;
	results_drop(&bench->results, cell.group, cell.test, cell.parameter);
	if (!launch_make_folder(folder))
		return;
	bool well = true;
	/* The first round is warm-up. */
	for (unsigned round = 0; well && round <= rounds; round++) {
		struct profile profiles[FORMS];
		bench_progress(bench, cell.test, cell.parameter);
		for (unsigned turn = 0; well && turn < FORMS; turn++) {
			unsigned form = (turn + round) % FORMS;
			well = take_profile(&forms[form], folder, &profiles[form]);
		}
		for (unsigned form = 0; well && round > 0 && form < FORMS; form++)
			add_shares(bench, cell, forms[form].column, &profiles[form]);
	}
	launch_remove_folder(folder);
	if (!well)
		results_note(
			&bench->results, "share of unlock",
			"left out: it needs perf (Debian package linux-perf), allowed to sample, and the "
			"builds of the library beside this command");
	bench_save(bench);
}
