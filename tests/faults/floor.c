/* SPDX-License-Identifier: MIT */
/*
 * floor: the system interface below the library, with holes.  Linked with the library's very objects, with
 * seam/libc_calls.c, through which these enter the kernel by libc's functions, and with `--wrap` for each of
 * those, so that each system call passes through here, and can be made to fail as the kernel would.
 *
 * The plan: calls number `first` to `first + count - 1` fail.  A program sets it with faults_plan(); for one
 * that knows nothing of this, the environment does:
 *
 *   CPUSLAB_FAULTS=first,count     from the first call of the process on
 *   CPUSLAB_FAULTS_LOG=path        gets the number of calls, and of those that failed, when the program ends
 *
 * Some calls never fail on any kernel that has them, and are not counted: futex wakes, getpid, gettid,
 * rt_sigprocmask.
 */
#include "floor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "malloc/size_class.h"
#include "page/headroom.h"
#include "page/layout.h"
#include "page/metadata.h"
#include "page/page.h"

static unsigned long calls, made, first_bad, bad_count;
static long mapped;

void faults_plan(unsigned long first, unsigned long count)
{
	__atomic_store_n(&bad_count, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&made, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&calls, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&first_bad, first, __ATOMIC_SEQ_CST);
	__atomic_store_n(&bad_count, count, __ATOMIC_SEQ_CST);
}

unsigned long faults_calls(void)
{
	return __atomic_load_n(&calls, __ATOMIC_SEQ_CST);
}

unsigned long faults_made(void)
{
	return __atomic_load_n(&made, __ATOMIC_SEQ_CST);
}

/* What the heap and its tables are mapped with as they grow, where they were not reserved. */
static long regions_mapped(void)
{
	const struct region *regions = (const struct region *)&layout;
	long sum = 0;

	if (page_front.end - page_front.heap_page == layout.heap.planned >> PAGE_SHIFT)
		return 0;
	for (size_t i = 0; i < sizeof layout / sizeof *regions; i++)
		sum += (long)regions[i].committed;
	return sum;
}

long faults_mapped(void)
{
	return __atomic_load_n(&mapped, __ATOMIC_SEQ_CST) - regions_mapped();
}

unsigned long faults_heap_pages(void)
{
	struct page_statistics statistics;

	page_statistics(&statistics);
	return statistics.used_pages;
}

size_t faults_metadata(void)
{
	return metadata_bytes();
}

void faults_reached(struct faults_reached *reached)
{
	uint64_t takes, puts;

	page_standby_calls(&takes, &puts);
	*reached = (struct faults_reached){.standby = takes, .kept = headroom_pages()};
	for (unsigned index = 0; index < SIZE_CLASSES; index++)
		reached->classes += __atomic_load_n(&size_class_made[index], __ATOMIC_RELAXED) != NULL;
}

static void read_environment(void)
{
	static bool read;
	const char *plan = read ? NULL : getenv("CPUSLAB_FAULTS");
	char *end;

	read = true;
	if (!plan)
		return;
	first_bad = strtoul(plan, &end, 10);
	bad_count = *end == ',' ? strtoul(end + 1, NULL, 10) : 1;
}

/* Counts a call; true, with errno set, when it is to fail. */
static bool fails(int error)
{
	read_environment();
	unsigned long number = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);

	if (number - first_bad >= bad_count)
		return false;
	__atomic_add_fetch(&made, 1, __ATOMIC_SEQ_CST);
	errno = error;
	return true;
}

__attribute__((destructor)) static void write_log(void)
{
	const char *path = getenv("CPUSLAB_FAULTS_LOG");
	char text[64];
	int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;

	if (file < 0)
		return;
	int length = snprintf(text, sizeof text, "%lu %lu\n", faults_calls(), faults_made());

	(void)!__real_write(file, text, (size_t)length);
	(void)!__real_close(file);
}

static void note_mapped(size_t bytes, bool more)
{
	__atomic_add_fetch(&mapped, more ? (long)bytes : -(long)bytes, __ATOMIC_SEQ_CST);
}

/* ---- memory ------------------------------------------------------------------------------------------- */

void *__wrap_mmap(void *hint, size_t bytes, int protection, int flags, int file, off_t offset)
{
	if (fails(ENOMEM))
		return MAP_FAILED;
	void *address = __real_mmap(hint, bytes, protection, flags, file, offset);

	/* A mapping over an earlier one adds nothing. */
	if (address != MAP_FAILED && !(flags & MAP_FIXED))
		note_mapped(bytes, true);
	return address;
}

int __wrap_munmap(void *address, size_t bytes)
{
	if (fails(ENOMEM) || __real_munmap(address, bytes))
		return -1;
	note_mapped(bytes, false);
	return 0;
}

void *__wrap_mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...)
{
	va_list list;

	va_start(list, flags);
	void *to = flags & MREMAP_FIXED ? va_arg(list, void *) : NULL;
	va_end(list);
	if (fails(ENOMEM))
		return MAP_FAILED;
	void *moved = __real_mremap(address, old_bytes, new_bytes, flags, to);

	if (moved != MAP_FAILED) {
		if (!(flags & MREMAP_DONTUNMAP))
			note_mapped(old_bytes, false);
		/* What was mapped there goes. */
		if (!(flags & MREMAP_FIXED))
			note_mapped(new_bytes, true);
	}
	return moved;
}

int __wrap_mprotect(void *address, size_t bytes, int protection)
{
	return fails(ENOMEM) ? -1 : __real_mprotect(address, bytes, protection);
}

int __wrap_madvise(void *address, size_t bytes, int advice)
{
	return fails(ENOMEM) ? -1 : __real_madvise(address, bytes, advice);
}

int __wrap_mincore(void *address, size_t bytes, unsigned char *present)
{
	return fails(ENOSYS) ? -1 : __real_mincore(address, bytes, present);
}

/* ---- the rest ----------------------------------------------------------------------------------------- */

int __wrap_getrlimit(int resource, struct rlimit *limit)
{
	return fails(EPERM) ? -1 : __real_getrlimit(resource, limit);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	return fails(EINVAL) ? -1 : __real_clock_gettime(clock, now);
}

ssize_t __wrap_process_vm_readv(pid_t process, const struct iovec *local, unsigned long locals,
				const struct iovec *remote, unsigned long remotes, unsigned long flags)
{
	return fails(EPERM) ? -1 : __real_process_vm_readv(process, local, locals, remote, remotes, flags);
}

int __wrap_open(const char *path, int flags, ...)
{
	va_list arguments;

	va_start(arguments, flags);
	mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;

	va_end(arguments);
	return fails(EMFILE) ? -1 : __real_open(path, flags, mode);
}

ssize_t __wrap_read(int file, void *buffer, size_t bytes)
{
	return fails(EIO) ? -1 : __real_read(file, buffer, bytes);
}

ssize_t __wrap_write(int file, const void *buffer, size_t bytes)
{
	return fails(ENOSPC) ? -1 : __real_write(file, buffer, bytes);
}

/* Like the kernel's: the file is closed whatever close() returns. */
int __wrap_close(int file)
{
	int result = __real_close(file);

	return fails(EIO) ? -1 : result;
}

int __wrap_fcntl(int file, int command, long argument)
{
	return fails(EMFILE) ? -1 : __real_fcntl(file, command, argument);
}

int __wrap_fstat(int file, struct stat *status)
{
	return fails(EIO) ? -1 : __real_fstat(file, status);
}

/* 0 for calls that never fail. */
static int error_of(long number, long second)
{
	switch (number) {
	case SYS_futex:
		/* A wait may end early; a wake always succeeds. */
		return (second & FUTEX_CMD_MASK) == FUTEX_WAKE ? 0 : EINTR;
	case SYS_rt_sigaction:
		return EINVAL;
	case SYS_membarrier:
		return EPERM;
	case SYS_rseq:
	case SYS_getcpu:
		return ENOSYS;
	case SYS_seccomp:
	case SYS_prctl:
		return EINVAL;
	case SYS_getrandom:
		return EAGAIN;
	case SYS_sched_getaffinity:
		return EPERM;
	default:
		return 0;
	}
}

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	int error = error_of(number, b);

	return error && fails(error) ? -1 : __real_syscall(number, a, b, c, d, e, f);
}
