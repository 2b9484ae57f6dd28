/* SPDX-License-Identifier: MIT */
/*
 * inspect/bounds: what a look at other processes may take.
 *
 * What stands in another process is its own to make up: it may claim more than there is memory for, lead
 * around in circles, or have a page in the way that never comes.  So a look at one has bounds of memory and
 * of time.  A command that looks at one process ends by them, with one line.  One that looks at many has
 * children do so, one of which ends, and the process at which it did is left out.
 *
 * Time is above all that in which nothing goes on: the reader neither gets CPU time nor waits for any.  So a
 * large process takes as long as it takes, and so does a busy machine.  What remains is one that hands its
 * memory out by drops, for which there is a bound of all the time, far above what honest ones take.
 */
#ifndef CPUSLAB_TOOLS_BOUNDS_H
#define CPUSLAB_TOOLS_BOUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>
#include <sys/types.h>

enum {
	BOUNDS_BYTES = 1 << 30,
	BOUNDS_STILL = 20, /* seconds in which nothing goes on */
	BOUNDS_SECONDS = 600,
	/* Of many processes, in which somebody waits for the others. */
	SURVEY_STILL = 5,
	SURVEY_EACH = 15,
	SURVEY_ALL = 30
};

/*
 * Once, by a command that looks at a process by itself.  `restore` is called before the command ends by its
 * bounds, if not by another thread's will; it is not waited for.
 */
void bounds_begin(const char *command, void (*restore)(void));
/* From now on what is done is a look at this process, until bounds_done(). */
void bounds_look(pid_t pid);
void bounds_done(void);
/* There is no memory for what a process claims. */
noreturn void bounds_no_room(void);

/* A look at many processes, one after the other. */
struct bounds_survey {
	const char *command; /* tells on standard error who is left out; NULL: nobody does */
	/* In a child: what is to be known of a process, in `bytes` at `answer`; 0 for nothing. */
	size_t (*look)(pid_t pid, void *answer, size_t bytes);
	/* In this process: what was told of pids[index]. */
	void (*take)(void *context, size_t index, const void *answer, size_t bytes);
	void *context;
	size_t answer_bytes; /* at most */
};
/*
 * False where this process has no memory or no child for it.  Who took too long once is not looked at again
 * for some minutes: no survey has the time to wait for all that others waited for.
 */
bool bounds_survey(const struct bounds_survey *survey, const pid_t *pids, size_t count);

#endif
