/* SPDX-License-Identifier: MIT */
/*
 * foreign: programs that nobody here had a hand in, on inputs generated here.  The list was made before
 * anything of it was measured, and whatever is in it stays, whatever it shows.
 *
 * Each is a script of foreign/, whose comments say what is needed and what to run, and whose rest prepares
 * the input.
 */
#include "program.h"

#include "foreign.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 512 };

/* Copies what follows "# NAME: " at the start of a line; returns false where there is no such line. */
static bool header(const char *script, const char *name, char text[static LINE])
{
	char wanted[32];

	snprintf(wanted, sizeof wanted, "# %s: ", name);
	for (const char *line = script; line && *line == '#'; line = strchr(line, '\n') + 1)
		if (strncmp(line, wanted, strlen(wanted)) == 0) {
			line += strlen(wanted);
			snprintf(text, LINE, "%.*s", (int)strcspn(line, "\n"), line);
			return true;
		}
	return false;
}

static void run_script(struct bench *bench, const struct foreign *foreign, const char *base)
{
	char needs[LINE], command[LINE], run[LINE];

	if (!header(foreign->script, "needs", needs) || !header(foreign->script, "run", run))
		abort();
	snprintf(command, sizeof command, "exec %.500s", run);
	struct program program = {
		.name = foreign->name,
		.needs = needs,
		.setup = foreign->script,
		.argv = {"sh", "-c", command},
		.free_cpus = strstr(foreign->script, "\n# several CPUs\n"),
	};

	program_measure(bench, "foreign", "foreign programs", &program, base);
}

bool group_foreign(struct bench *bench)
{
	char base[PATH_MAX];

	if (!launch_make_folder(base))
		return false;
	bench->without_bounds = true;
	for (const struct foreign *foreign = foreign_scripts; foreign->name; foreign++)
		if (bench_asked_for(bench, foreign->name))
			run_script(bench, foreign, base);
	bench->without_bounds = false;
	launch_remove_folder(base);
	return true;
}
