/* SPDX-License-Identifier: MIT */
/* An allocator for the benchmark's own tests: glibc's, on a system with more CPUs than a cpu_set_t holds. */
#include <errno.h>
#include <sched.h>
#include <stddef.h>

void *__libc_malloc(size_t size);
void *malloc(size_t size);

void *malloc(size_t size)
{
	return __libc_malloc(size);
}

int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *cpus)
{
	(void)process;
	(void)bytes;
	(void)cpus;
	errno = EINVAL;
	return -1;
}
