/* SPDX-License-Identifier: MIT */
/*
 * os/enter: the two ways out of the process: the kernel's entry, and its clocks.  Neither passes through
 * libc, whose functions anyone can replace: by one that allocates, and so comes back to whoever called it, or
 * by one that tells another time.
 *
 * Both are weak, so that a test can stand in their place.
 */
#ifndef CPUSLAB_OS_ENTER_H
#define CPUSLAB_OS_ENTER_H

#include <time.h>

/* Returns the kernel's result, or a negative errno. */
long os_system_call(long number, long a, long b, long c, long d, long e, long f);

/* Returns 0 or a positive errno. */
int os_read_clock(clockid_t clock, struct timespec *now);

#endif
