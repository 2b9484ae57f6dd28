/* SPDX-License-Identifier: MIT */
/* moved_clock: time stands still but where the test moves it. */
#ifndef CPUSLAB_TESTS_MOVED_CLOCK_H
#define CPUSLAB_TESTS_MOVED_CLOCK_H

#include <stdint.h>
#include <time.h>

static uint64_t milliseconds = 100000;

/* Replaces libc's. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
	(void)clock;
	*now = (struct timespec){.tv_sec = (time_t)(milliseconds / 1000),
				 .tv_nsec = (long)(milliseconds % 1000) * 1000000};
	return 0;
}

#endif
