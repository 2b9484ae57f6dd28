/* SPDX-License-Identifier: MIT */
/*
 * os: the one seam to the kernel.  Every system call that the library makes for itself is in os.c, so that
 * a test can fail the k-th of them.
 *
 * All functions keep the caller's errno.  Those that can fail return 0 or a positive errno, or NULL.
 * Memory comes in multiples of OS_PAGE_BYTES.
 */
#ifndef CPUSLAB_OS_H
#define CPUSLAB_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>

enum { OS_PAGE_SHIFT = 12, OS_PAGE_BYTES = 1 << OS_PAGE_SHIFT };

/*
 * Private anonymous memory, zeroed, readable and writable, and not accounted where the system lets us
 * choose.
 */
void *os_map(void *hint, size_t bytes);
/* Address space alone: no access, no accounting, until os_commit. */
void *os_reserve(void *hint, size_t bytes);
/* Readable and writable memory at exactly this address, if nothing is mapped there; else NULL. */
void *os_map_at(void *address, size_t bytes);
/* Makes memory address space alone again, at the same place. */
int os_reserve_again(void *address, size_t bytes);
/* Makes reserved address space readable and writable. */
int os_commit(void *address, size_t bytes);
/* Takes all access to memory away, until os_commit. */
int os_forbid(void *address, size_t bytes);
/* Makes reserved address space readable: zeros, which the system need not account. */
int os_show_zeros(void *address, size_t bytes);
/*
 * Fails where the stretch lies in the middle of what the system keeps as one mapping and the process has as
 * many as it may have (vm.max_map_count).
 */
int os_unmap(void *address, size_t bytes);
/* Resizes a mapping, moving it where it must. */
void *os_remap(void *address, size_t old_bytes, size_t new_bytes);
/* Gives the pages back; they read as zero afterwards. */
int os_purge(void *address, size_t bytes);
/* The same of up to OS_RANGES ranges; returns how many, in their order, it was done for. */
enum { OS_RANGES = 64 };
struct os_range {
	void *address;
	size_t bytes;
};
unsigned os_purge_several(const struct os_range *ranges, unsigned count);
/* Whether that is one system call, as far as it is known. */
bool os_purges_several(void);
/* Has memory there before it is touched: one call in place of a fault for each page. */
int os_populate(void *address, size_t bytes);
/* Asks for transparent huge pages in a range, or keeps them off it. */
int os_huge_pages(void *address, size_t bytes, bool wanted);
/*
 * Whether the process once had so many bytes resident, and has touched so many by page faults of its own;
 * false, too, where the system does not say.
 */
bool os_was_resident(size_t most, size_t touched);
/* Whether a page of ours is in memory; false, too, where the system does not say. */
bool os_is_resident(const void *page);
/* The range reads as zero in a forked child. */
int os_wipe_on_fork(void *address, size_t bytes);

/* The soft limit RLIMIT_AS in bytes; SIZE_MAX for none. */
size_t os_limit_address_space(void);
/* The same of RLIMIT_DATA. */
size_t os_limit_data(void);
/* Bytes of memory that the machine has; where the system does not tell, more than any has. */
size_t os_memory_most(void);
/*
 * Whether addresses that are reserved take memory after all, as under qemu-user before 8.0, which writes down
 * each page: by a GiB that is reserved and let go again.
 */
bool os_sample_costs(void);
/* libc's; it is 0 where the system has no restartable sequences, as in emulators.  Older C libraries have
 * none. */
extern const unsigned int __rseq_size __attribute__((weak));
/* The same, without a system call where no emulator is between. */
static inline bool os_reserving_costs(void)
{
	return !(&__rseq_size && __rseq_size) && os_sample_costs();
}
/* How many mappings the system lets a process have. */
size_t os_mappings_most(void);
/* What the kernel told the process at its start (AT_...); 0 where it did not, as old kernels do for what is
 * new. */
unsigned long os_auxiliary(unsigned long type);
/*
 * Whether libc knows its own program: one that is linked statically learns that in the middle of its start,
 * with allocations, after the library may have been called and before any constructor.
 */
bool os_libc_is_whole(void);
/*
 * What the user has set in the environment of the program; NULL for nothing, and in a set-user-id program.
 * The value lies where the program may write over it.
 */
const char *os_environment(const char *name);
/* An upper bound of the vCPU ids that this kernel can hand out. */
unsigned os_possible_cpus(void);
/* CPUs that the process may use now. */
unsigned os_cpus(void);
/* A number that other programs cannot guess. */
uint64_t os_random(void);

/* Registers (or unregisters) the calling thread's restartable-sequence area. */
int os_rseq_register(void *area, uint32_t bytes, uint32_t signature);
int os_rseq_unregister(void *area, uint32_t bytes, uint32_t signature);
/* Has a signal handled, with system calls restarted; nothing for a number that is no signal's. */
void os_on_signal(int number, void (*handler)(int));
/* Blocks (or restores) the calling thread's signals, those that libc keeps for itself included. */
void os_signal_mask(const sigset_t *mask, sigset_t *old);
/* Asks or sets what happens at a signal; either may be NULL. */
int os_signal_action(int number, const struct sigaction *action, struct sigaction *old);
/*
 * After it returns 0, every thread of the process that was inside a section when it was called has been
 * aborted, and sees all stores that the caller made before.
 */
int os_fence_sections(void);
/* Asks for the right to it, which takes milliseconds once a process has threads.  os_fence_sections does it
 * too. */
int os_fence_prepare(void);
/*
 * After it returns 0, every thread of the process has passed a full memory barrier since it was called.
 */
int os_barrier_all_threads(void);
/* Asks for the right to that call; milliseconds dearer once the process has several threads. */
int os_barrier_prepare(void);

/* Sleeps while *word == expected, at most for the relative time (NULL: for ever).  EINTR and EAGAIN come
 * back. */
int os_futex_wait(uint32_t *word, uint32_t expected, const struct timespec *relative);
/* The same up to an instant of CLOCK_MONOTONIC (NULL: for ever), then ETIMEDOUT. */
int os_futex_wait_until(uint32_t *word, uint32_t expected, const struct timespec *deadline);
/* Wakes at most `count` sleepers. */
int os_futex_wake(uint32_t *word, int count);

/* Lets another thread have the CPU. */
void os_yield(void);
/* The kernel's id of the calling thread. */
uint32_t os_thread_id(void);

/* The CPU that the thread is on, at some instant of the call. */
unsigned os_cpu(void);
/*
 * Whether a word of memory may be read, without a fault if not.  False, too, where the system does not say.
 */
bool os_can_read(const void *address);

/* Milliseconds of CLOCK_MONOTONIC_COARSE: cheap, and good to a scheduler tick. */
uint64_t os_milliseconds(void);

/*
 * From `then` to `now`; 0 where that comes first, as it does when another thread has noted `then` since this
 * one looked at the clock.
 */
static inline uint64_t os_elapsed(uint64_t then, uint64_t now)
{
	return now > then ? now - then : 0;
}
/* CPU time of all threads of the process; 0 where the system does not say. */
uint64_t os_cpu_nanoseconds(void);
/* The same of this thread alone. */
uint64_t os_thread_nanoseconds(void);

/* Nanoseconds since 1970. */
int64_t os_time_of_day(void);
uint32_t os_process_id(void);
/* A file that was not there before, readable by its owner alone. */
int os_create_file(const char *path, int *file);
void os_close(int file);
/* The first `bytes` of a file; returns how many there are, 0 where it cannot be read. */
size_t os_read_file(const char *path, char *text, size_t bytes);

/* Copies own memory of which nobody knows whether it is there; EFAULT if not. */
int os_read_memory(uintptr_t address, void *buffer, size_t bytes);

/* Writes all of it, unless that fails. */
int os_write(int file, const char *text, size_t length);
/* Writes all of it to standard error; to what that was, once it is kept, or nowhere. */
void os_write_error(const char *text, size_t length);
/* Makes os_write_error independent of a program that closes its standard error before it ends. */
void os_keep_standard_error(void);

#endif
