/* SPDX-License-Identifier: MIT */
#include "environment.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

uint64_t environment_time = 1000;
unsigned environment_succeeding, environment_failing;
unsigned environment_failed;
bool environment_quiet;
unsigned environment_lines;
jmp_buf *environment_abort;

/* Over the library's own. */
_Noreturn void cpuslab_libc_abort(void);
int fuzzed_clock_gettime(clockid_t clock, struct timespec *now);
int fuzzed_madvise(void *address, size_t bytes, int advice);
void *fuzzed_mmap(void *hint, size_t bytes, int protection, int flags, int file, off_t offset);
int fuzzed_mprotect(void *address, size_t bytes, int protection);
void *fuzzed_mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...);
ssize_t fuzzed_write(int file, const void *text, size_t length);

_Noreturn void cpuslab_libc_abort(void)
{
	if (environment_abort)
		longjmp(*environment_abort, 1);
	abort();
}

int fuzzed_clock_gettime(clockid_t clock, struct timespec *now)
{
	(void)clock;
	*now = (struct timespec){.tv_sec = (time_t)(environment_time / 1000),
				 .tv_nsec = (long)(environment_time % 1000) * 1000000};
	return 0;
}

static bool fails(void)
{
	if (!environment_failing)
		return false;
	if (environment_succeeding) {
		environment_succeeding--;
		return false;
	}
	environment_failing--;
	environment_failed++;
	errno = ENOMEM;
	return true;
}

int fuzzed_madvise(void *address, size_t bytes, int advice)
{
	return fails() ? -1 : madvise(address, bytes, advice);
}

void *fuzzed_mmap(void *hint, size_t bytes, int protection, int flags, int file, off_t offset)
{
	return fails() ? MAP_FAILED : mmap(hint, bytes, protection, flags, file, offset);
}

int fuzzed_mprotect(void *address, size_t bytes, int protection)
{
	return fails() ? -1 : mprotect(address, bytes, protection);
}

void *fuzzed_mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...)
{
	va_list arguments;

	va_start(arguments, flags);
	void *where = flags & MREMAP_FIXED ? va_arg(arguments, void *) : NULL;

	va_end(arguments);
	return fails() ? MAP_FAILED : mremap(address, old_bytes, new_bytes, flags, where);
}

ssize_t fuzzed_write(int file, const void *text, size_t length)
{
	const char *characters = text;

	if (!environment_quiet)
		return write(file, text, length);
	for (size_t i = 0; i < length; i++)
		environment_lines += characters[i] == '\n';
	return (ssize_t)length;
}
