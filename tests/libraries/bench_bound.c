/* SPDX-License-Identifier: MIT */
/* An allocator for the tests of the benchmark: glibc's, which ends where it runs on a CPU that it was not
 * given. */
#include <sched.h>
#include <stddef.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *malloc(size_t size);

void *malloc(size_t size)
{
	static cpu_set_t given;

	if (!CPU_COUNT(&given))
		sched_getaffinity(0, sizeof(given), &given);
	if (!CPU_ISSET(sched_getcpu(), &given))
		_exit(1);
	return __libc_malloc(size);
}
