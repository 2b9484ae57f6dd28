/* SPDX-License-Identifier: MIT */
/*
 * floor: the interface of libcpuslab_faults.so for tests: the library on top of system calls that can fail.
 */
#ifndef CPUSLAB_TESTS_FLOOR_H
#define CPUSLAB_TESTS_FLOOR_H

#include <signal.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

struct iovec;
struct rlimit;
struct rusage;
struct timespec;

/* Resets the count; calls number `first` to `first + count - 1` fail, and none if `count` is 0. */
void faults_plan(unsigned long first, unsigned long count);
/* System calls that the library has made since. */
unsigned long faults_calls(void);
/* How many of them failed by plan. */
unsigned long faults_made(void);
/* Bytes of address space that the library has mapped since the process began, without growth of the heap. */
long faults_mapped(void);
/* Heap pages that are neither free nor kept for anybody: those of slabs and large runs, and lost ones. */
unsigned long faults_heap_pages(void);
/* Bytes of metadata that were ever in use. */
size_t faults_metadata(void);

/*
 * What the library has done without its locks; a test that claims to cover everything must have some of each.
 */
struct faults_reached {
	unsigned long standby; /* large runs reused from standby */
	unsigned long kept;    /* pages kept behind growing runs, now */
	unsigned long classes; /* size classes, made as they are needed */
};
void faults_reached(struct faults_reached *reached);

/* The linker's names: a call of NAME in the library goes to __wrap_NAME, and libc's own is __real_NAME. */
#define FLOOR_WRAPS(type, name, ...)                                                                         \
	type __wrap_##name(__VA_ARGS__);                                                                     \
	type __real_##name(__VA_ARGS__)
FLOOR_WRAPS(void *, mmap, void *, size_t, int, int, int, off_t);
FLOOR_WRAPS(int, munmap, void *, size_t);
FLOOR_WRAPS(void *, mremap, void *, size_t, size_t, int, ...);
FLOOR_WRAPS(int, mprotect, void *, size_t, int);
FLOOR_WRAPS(int, madvise, void *, size_t, int);
FLOOR_WRAPS(int, mincore, void *, size_t, unsigned char *);
FLOOR_WRAPS(int, getrlimit, int, struct rlimit *);
FLOOR_WRAPS(int, clock_gettime, clockid_t, struct timespec *);
FLOOR_WRAPS(ssize_t, process_vm_readv, pid_t, const struct iovec *, unsigned long, const struct iovec *,
	    unsigned long, unsigned long);
FLOOR_WRAPS(int, open, const char *, int, ...);
FLOOR_WRAPS(ssize_t, read, int, void *, size_t);
FLOOR_WRAPS(ssize_t, write, int, const void *, size_t);
FLOOR_WRAPS(int, close, int);
FLOOR_WRAPS(int, fcntl, int, int, long);
FLOOR_WRAPS(int, fstat, int, struct stat *);
FLOOR_WRAPS(long, syscall, long, long, long, long, long, long, long);

#endif
