/* SPDX-License-Identifier: MIT */
/* cpuslab run: runs an unchanged program on cpuslab's malloc. */
#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int usage(FILE *to)
{
	fputs("usage: cpuslab run [KEY:VALUE,...] [--library FILE] -- PROGRAM ARGS...\n"
	      "KEY:VALUE are options as in CPUSLAB_OPTIONS (see cpuslab options) and win over those there.\n",
	      to);
	return to == stdout ? 0 : 2;
}

/* Appends, because the parser lets the later of two tokens win. */
static bool add_options(const char *tokens)
{
	const char *present = getenv("CPUSLAB_OPTIONS");
	char *joined;
	if (asprintf(&joined, "%s%s%s", present ? present : "", present && *present ? "," : "", tokens) < 0)
		return false;
	bool done = setenv("CPUSLAB_OPTIONS", joined, 1) == 0;
	free(joined);
	return done;
}

/* A program that cannot take the library runs all the same; the children of some can take it. */
static bool preload(const char *program, const char *library)
{
	bool hurts;
	const char *obstacle = preload_obstacle(program, &hurts);

	if (obstacle)
		fprintf(stderr, "cpuslab run: %s: nothing was preloaded, because %s\n", program, obstacle);
	return hurts || library_preload(library);
}

int command_run(int argc, char **argv)
{
	char found[PATH_MAX];
	const char *library = NULL;
	int i = 1;
	/* Without "--" the program is the first word that is not an option: all of ours contain a colon. */
	for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "--library") == 0 && i + 1 < argc)
			library = argv[++i];
		else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return usage(stdout);
		else if (strncmp(argv[i], "--library=", 10) == 0)
			library = argv[i] + 10;
		else if (argv[i][0] == '-') {
			fprintf(stderr,
				strcmp(argv[i], "--library") == 0 ? "%s: option '%s' requires an argument\n"
								  : "%s: unrecognized option '%s'\n",
				argv[0], argv[i]);
			return usage(stderr);
		} else if (!strchr(argv[i], ':'))
			break;
		else if (!add_options(argv[i]))
			return perror("cpuslab run"), 1;
	}
	if (i < argc && strcmp(argv[i], "--") == 0)
		i++;
	if (i >= argc) {
		fprintf(stderr, "%s: no program to run\n", argv[0]);
		return usage(stderr);
	}
	/*
	 * An absolute path: the dynamic linker would search for a bare name elsewhere, and children may run
	 * in other folders.
	 */
	if (library ? !realpath(library, found) || access(found, R_OK) != 0 : !library_find(found)) {
		fprintf(stderr, "cpuslab run: %s: %s\n", library ? library : "libcpuslab.so",
			library ? strerror(errno) : "not found");
		return 1;
	}
	if (!preload(argv[i], found))
		return 1;
	execvp(argv[i], argv + i);
	/* As the shell does: 127 for not found, 126 for found but not executable. */
	int status = errno == ENOENT ? 127 : 126;

	fprintf(stderr, "cpuslab run: %s: %s\n", argv[i], strerror(errno));
	return status;
}
