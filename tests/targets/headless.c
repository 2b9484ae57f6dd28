/* SPDX-License-Identifier: MIT */
/* headless: its first thread ends, and another one goes on: first a zombie with the process's number. */
#include "check.h"

static void *go_on(void *unused)
{
	for (;;) {
		void *objects[64];

		for (unsigned i = 0; i < 64; i++)
			objects[i] = malloc(5000);
		for (unsigned i = 0; i < 64; i++)
			free(objects[i]);
		usleep(1000);
	}
	return unused;
}

int main(void)
{
	for (unsigned i = 0; i < 1000; i++)
		memset(malloc(1000), 1, 1000);
	check_thread(go_on, NULL);
	dprintf(STDOUT_FILENO, "up\n");
	pthread_exit(NULL);
}
