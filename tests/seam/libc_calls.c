/* SPDX-License-Identifier: MIT */
/*
 * libc_calls: in tests that are linked with the library's objects, its system calls and clocks come from the
 * functions of libc after all, which a test can replace by its own.  Tests that count calls, make them fail,
 * or tell another time do so.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define OVER_THE_LIBRARYS __attribute__((visibility("hidden")))

OVER_THE_LIBRARYS long os_system_call(long number, long a, long b, long c, long d, long e, long f);
OVER_THE_LIBRARYS int os_read_clock(clockid_t clock, struct timespec *now);
OVER_THE_LIBRARYS unsigned long os_auxiliary(unsigned long type);

static long by_name(long number, long a, long b, long c, long d, long e, long f)
{
	switch (number) {
	case SYS_mmap:
		return (long)mmap((void *)a, (size_t)b, (int)c, (int)d, (int)e, f);
	case SYS_munmap:
		return munmap((void *)a, (size_t)b);
	case SYS_mremap:
		return (long)mremap((void *)a, (size_t)b, (size_t)c, (int)d, (void *)e);
	case SYS_mprotect:
		return mprotect((void *)a, (size_t)b, (int)c);
	case SYS_madvise:
		return madvise((void *)a, (size_t)b, (int)c);
	case SYS_mincore:
		return mincore((void *)a, (size_t)b, (unsigned char *)c);
	case SYS_prlimit64:
		return getrlimit((unsigned)b, (struct rlimit *)d);
	case SYS_process_vm_readv:
		return process_vm_readv((pid_t)a, (const struct iovec *)b, (unsigned long)c,
					(const struct iovec *)d, (unsigned long)e, (unsigned long)f);
	case SYS_openat:
		return open((const char *)b, (int)c, (mode_t)d);
	case SYS_read:
		return read((int)a, (void *)b, (size_t)c);
	case SYS_write:
		return write((int)a, (const void *)b, (size_t)c);
	case SYS_close:
		return close((int)a);
	case SYS_fcntl:
		return fcntl((int)a, (int)b, c);
	case SYS_fstat:
		return fstat((int)a, (struct stat *)b);
	default:
		return syscall(number, a, b, c, d, e, f);
	}
}

long os_system_call(long number, long a, long b, long c, long d, long e, long f)
{
	int saved = errno;
	long result = by_name(number, a, b, c, d, e, f);

	if (result == -1)
		result = -errno;
	errno = saved;
	return result;
}

int os_read_clock(clockid_t clock, struct timespec *now)
{
	int saved = errno;
	int result = clock_gettime(clock, now) ? errno : 0;

	errno = saved;
	return result;
}

unsigned long os_auxiliary(unsigned long type)
{
	int saved = errno;
	unsigned long value = getauxval(type);

	errno = saved;
	return value;
}
