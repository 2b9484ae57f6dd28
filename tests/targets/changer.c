/* SPDX-License-Identifier: MIT */
/*
 * changer: allocates, and then restarts itself by execve() until it is stopped; its children allocate and
 * die.  Readers must cope with that.
 */
#include "check.h"

int main(int argc, char **argv)
{
	void *object[100];

	(void)argc;
	for (unsigned i = 0; i < 100; i++)
		object[i] = malloc(i * 100);
	pid_t child = fork();

	if (!child) {
		free(object[50]);
		_exit(0);
	}
	usleep(3000);
	CHECK(child > 0 && waitpid(child, NULL, 0) == child);
	execv("/proc/self/exe", argv);
	return 1;
}
