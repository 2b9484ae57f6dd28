/* SPDX-License-Identifier: MIT */
/*
 * inspect/bounds: limits on memory and time for reading other processes.
 *
 * Another process controls all that is read from it: it may claim more than there is memory for, lead around
 * in circles, or contain a page whose fault is never served.  So reading one is bounded in memory and in
 * time.  A command that reads a single process ends at these bounds, with one line.  One that reads many does
 * so in children: at the bounds the child ends, and the process that it was reading is left out.
 *
 * The time is mainly that without progress, in which the reader neither uses CPU time nor waits for a CPU.
 * So a large process may take as long as it needs, and a busy machine too.  Against a process that hands out
 * its memory drop by drop there is also a limit on the total time, far above what honest ones need.
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
	BOUNDS_STILL = 20, /* seconds without progress */
	BOUNDS_SECONDS = 600,
	/* When many processes are read, each makes the others wait. */
	SURVEY_STILL = 5,
	SURVEY_EACH = 15,
	SURVEY_ALL = 30
};

/*
 * Called once by a command that reads a process itself.  `restore` is called before the command ends at its
 * bounds, by whichever thread ends it; it has two seconds.
 */
void bounds_begin(const char *command, void (*restore)(void));
/* What follows, up to bounds_done(), reads this process. */
void bounds_look(pid_t pid);
void bounds_done(void);
/* Ends the command, or the child: memory does not suffice for what a process claims. */
noreturn void bounds_no_room(void);

/* Reads many processes, one after the other. */
struct bounds_survey {
	const char *command; /* reports on standard error who is left out; NULL: no reports */
	/*
	 * In a child: reads a process and stores up to `bytes` at `answer`; returns how many, 0 for nothing.
	 */
	size_t (*look)(pid_t pid, void *answer, size_t bytes);
	/* Runs in this process: takes the answer for pids[index]. */
	void (*take)(void *context, size_t index, const void *answer, size_t bytes);
	void *context;
	size_t answer_bytes; /* at most */
};
/*
 * Returns false when this process cannot get memory or a child for it.  A process that took too long is left
 * out of further surveys for some minutes: a survey has no time to wait again for all that earlier ones
 * waited for.
 */
bool bounds_survey(const struct bounds_survey *survey, const pid_t *pids, size_t count);

#endif
