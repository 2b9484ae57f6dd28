/* SPDX-License-Identifier: MIT */
/*
 * bursts KIND: allocates at a known rate, and adds a line with the allocations so far and the time in
 * nanoseconds at each SIGUSR1.
 *
 *   reuse  the same 20 objects over and over in bursts of 1000, 10 ms apart: no call misses the fast path
 *   busy   the same without a pause
 *   grow   1000 objects more every 10 ms
 */
#include "check.h"

#include <signal.h>
#include <time.h>

static volatile unsigned long allocations;

static void say(int number)
{
	struct timespec now;

	(void)number;
	clock_gettime(CLOCK_MONOTONIC, &now);
	dprintf(STDOUT_FILENO, "%lu %lu\n", allocations,
		(unsigned long)now.tv_sec * 1000000000 + (unsigned long)now.tv_nsec);
}

static void reuse(void)
{
	void *object[20];

	for (unsigned round = 0; round < 50; round++) {
		for (unsigned i = 0; i < 20; i++)
			CHECK((object[i] = malloc(40)));
		for (unsigned i = 0; i < 20; i++)
			free(object[i]);
		allocations += 20;
	}
}

static void grow(void)
{
	for (unsigned i = 0; i < 1000; i++, allocations++)
		CHECK(malloc(40));
}

int main(int argc, char **argv)
{
	bool grows = argc > 1 && strcmp(argv[1], "grow") == 0,
	     rests = argc > 1 && strcmp(argv[1], "busy") != 0;

	reuse();
	CHECK(signal(SIGUSR1, say) != SIG_ERR);
	dprintf(STDOUT_FILENO, "up\n");
	for (;;) {
		if (grows)
			grow();
		else
			reuse();
		if (rests)
			usleep(10000);
	}
}
