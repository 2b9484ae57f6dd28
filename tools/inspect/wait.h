/* SPDX-License-Identifier: MIT */
/* wait: for commands that wait for another process, and must clean up in it however they end. */
#ifndef CPUSLAB_TOOLS_WAIT_H
#define CPUSLAB_TOOLS_WAIT_H

#include <signal.h>
#include <time.h>

/* Whether the user has asked the command to end since wait_catch(). */
extern volatile sig_atomic_t wait_interrupted;
/* From now on SIGINT, SIGTERM and SIGHUP, if that is not ignored, no longer end the command. */
void wait_catch(void);

/* Seconds of a clock. */
static inline double wait_seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline double wait_now(void)
{
	return wait_seconds(CLOCK_MONOTONIC);
}

#endif
