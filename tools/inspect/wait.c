/* SPDX-License-Identifier: MIT */
#include "inspect/wait.h"

volatile sig_atomic_t wait_interrupted;

static void on_interrupt(int signal)
{
	(void)signal;
	wait_interrupted = 1;
}

void wait_catch(void)
{
	signal(SIGINT, on_interrupt);
	signal(SIGTERM, on_interrupt);
	if (signal(SIGHUP, on_interrupt) == SIG_IGN)
		signal(SIGHUP, SIG_IGN);
}
