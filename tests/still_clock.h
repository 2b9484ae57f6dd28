/* SPDX-License-Identifier: MIT */
/*
 * still_clock: time stands still.  Every tenth of a second some slow path does the work that is due by time,
 * whatever the test is doing: in a test that counts the work of calls, or steps through them, that would be
 * random.
 */
#ifndef CPUSLAB_TESTS_STILL_CLOCK_H
#define CPUSLAB_TESTS_STILL_CLOCK_H

#include <time.h>

/* Replaces libc's. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
	(void)clock;
	*now = (struct timespec){.tv_sec = 1000};
	return 0;
}

#endif
