/* SPDX-License-Identifier: MIT */
/*
 * output: files that a command writes, which appear complete or not at all.
 *
 * A regular file is written under another name in its folder, and renamed when it is complete: a failure or
 * a full disk leaves whatever was there.  Devices, pipes, and files that a rename would tear from their
 * owner or their other names are written in place.  "-" is standard output.
 */
#ifndef CPUSLAB_TOOLS_OUTPUT_H
#define CPUSLAB_TOOLS_OUTPUT_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

struct output {
	const char *command, *name; /* for messages; the name as the user gave it, or NULL as "-" */
	FILE *to;
	char file[PATH_MAX], temporary[PATH_MAX]; /* temporary: empty if written in place */
	sigset_t before;
};

/* Returns whether the file can probably be written, before any work is done for it; says if not. */
bool output_check(const char *command, const char *name);

/*
 * Opens the file; returns false with a message if it cannot.  Until output_end, signals that end a command
 * wait, so that none leaves the temporary file behind.
 */
bool output_begin(struct output *output, const char *command, const char *name);

/*
 * Ends the file: keeps it if `whole` and if everything could be written, else drops it.  Returns whether it
 * was kept; says why if it could not be written.
 */
bool output_end(struct output *output, bool whole);

#endif
