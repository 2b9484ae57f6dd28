/* SPDX-License-Identifier: MIT */
/*
 * hoard: bursts of work, all of it freed again each time, and then nothing: what the allocator has learnt to
 * keep for the next burst stays, since no call ages it.  SIGUSR1 trims it.
 */
#include "check.h"

enum { BURSTS = 3, BURST = 100000 };

static volatile sig_atomic_t trim;

static void on_signal(int signal)
{
	(void)signal;
	trim = 1;
}

__attribute__((noinline)) static void work(void)
{
	static void *object[BURST];

	for (unsigned i = 0; i < BURST; i++)
		object[i] = memset(malloc(200 + i % 800), 1, 200);
	for (unsigned i = 0; i < BURST; i++)
		free(object[i]);
}

int main(void)
{
	signal(SIGUSR1, on_signal);
	for (int i = 0; i < BURSTS; i++)
		work();
	dprintf(STDOUT_FILENO, "up\n");
	for (;;) {
		pause();
		if (trim) {
			trim = 0;
			malloc_trim(0);
			dprintf(STDOUT_FILENO, "trimmed\n");
		}
	}
}
