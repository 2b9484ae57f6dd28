/* SPDX-License-Identifier: MIT */
/*
 * An allocator for the benchmark's own tests: glibc's, which ends the process when it runs on a CPU that it
 * was not assigned.
 */
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *malloc(size_t size);

void *malloc(size_t size)
{
	static cpu_set_t given;

	if (!CPU_COUNT(&given))
		sched_getaffinity(0, sizeof(given), &given);
	int cpu = sched_getcpu();

	if (!CPU_ISSET(cpu, &given)) {
		char text[80];
		int length =
			snprintf(text, sizeof(text), "bench_bound: on CPU %d, which was not given\n", cpu);

		_exit(write(STDERR_FILENO, text, (size_t)length) > 0 ? 1 : 2);
	}
	return __libc_malloc(size);
}
