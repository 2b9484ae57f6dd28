/* SPDX-License-Identifier: MIT */
/* The same of a C program, which has none of C++'s runtime (tests/link_modes.sh). */
#include <cpuslab/cpuslab.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *run(void *argument)
{
	for (size_t size = 1; size < 100000; size += size / 2 + 1) {
		char *object = malloc(size);

		/* Large objects lie beside those of caches. */
		if (!object || (size <= 4096 && cpuslab_object_of(object) != object))
			abort();
		memset(object, 1, size);
		if (!(object = realloc(object, 2 * size)) || object[size - 1] != 1)
			abort();
		free(object);
	}
	return argument;
}

static void run_thread(void)
{
	pthread_t thread;

	run(NULL);
	if (pthread_create(&thread, NULL, run, NULL) || pthread_join(thread, NULL))
		abort();
}

int main(void)
{
	int status;

	run_thread();
	pid_t child = fork();

	if (child == 0) {
		run_thread();
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		abort();
	puts(cpuslab_vcpu_mode_name());
	return 0;
}
