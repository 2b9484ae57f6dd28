/* SPDX-License-Identifier: MIT */
/*
 * os: the only seam to the kernel.  Every system call that the library makes for itself is in os.c, so that
 * a test can fail the k-th of them.
 *
 * All functions preserve the caller's errno.  Those that can fail return 0 or a positive errno, or NULL.
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
 * Private anonymous memory: zeroed, readable and writable, and unaccounted where the system lets us choose.
 */
void *os_map(void *hint, size_t bytes);
/* Address space only: no access and no accounting until os_commit. */
void *os_reserve(void *hint, size_t bytes);
/* Readable and writable memory at exactly this address; NULL if something is mapped there. */
void *os_map_at(void *address, size_t bytes);
/* Turns memory back into mere address space, at the same place, which core dumps leave out. */
int os_reserve_again(void *address, size_t bytes);
/* Makes reserved address space readable and writable. */
int os_commit(void *address, size_t bytes);
/* Makes memory inaccessible until os_commit. */
int os_forbid(void *address, size_t bytes);
/*
 * Makes pages inaccessible for good and gives their memory back, without a mapping of their own (Linux 6.13).
 */
int os_guard(void *address, size_t bytes);
/* Makes reserved address space readable as zeros, which the system need not account. */
int os_show_zeros(void *address, size_t bytes);
/*
 * Fails for a range in the middle of one of the system's mappings when the process already has the most
 * that it may have (vm.max_map_count).
 */
int os_unmap(void *address, size_t bytes);
/* Resizes a mapping, moving it if necessary. */
void *os_remap(void *address, size_t old_bytes, size_t new_bytes);
/*
 * Moves pages, of one of the system's mappings, over `new_bytes` bytes that are mapped at `to`, which they
 * extend to, or are cut to.  The old addresses stay mapped if `keep` is set, and read as zero (Linux 5.7);
 * then both lengths are the same.  EFAULT if more than one mapping lies there.
 */
int os_move(void *from, size_t old_bytes, void *to, size_t new_bytes, bool keep);
/* Moves pages to wherever the system likes, with `keep` as above; NULL if that fails. */
void *os_take_pages(void *from, size_t bytes);
/* Gives pages back to the system; they read as zero afterwards. */
int os_purge(void *address, size_t bytes);
/* The same for up to OS_RANGES ranges; returns how many were done, in order. */
enum { OS_RANGES = 64 };
struct os_range {
	void *address;
	size_t bytes;
};
unsigned os_purge_several(const struct os_range *ranges, unsigned count);
/* Makes memory resident before it is touched: one call instead of a fault for each page. */
int os_populate(void *address, size_t bytes);
/* Asks for transparent huge pages in a range, or forbids them. */
int os_huge_pages(void *address, size_t bytes, bool wanted);
/* Sets resident[i] for each page of ours that may be resident: for all where the system does not tell. */
void os_resident(const void *first, size_t pages, unsigned char *resident);
/* Whether core dumps contain a range, whoever writes them; they do unless told otherwise. */
int os_dump(void *address, size_t bytes, bool contained);
/* Makes a range read as zero in forked children. */
int os_wipe_on_fork(void *address, size_t bytes);

/* The soft limit RLIMIT_AS in bytes; SIZE_MAX for none. */
size_t os_limit_address_space(void);
/* The same for RLIMIT_DATA. */
size_t os_limit_data(void);
/* The machine's memory in bytes; more than any machine has where the system does not tell. */
size_t os_memory_most(void);
/*
 * The least memory.high, or else memory.max, of the process's control group and those around it, as of now; 0
 * where none has a limit.
 */
size_t os_cgroup_limit(bool high);
/*
 * libc's: 0 where the system has no restartable sequences, as in emulators; undefined in older C libraries.
 */
extern const unsigned int __rseq_size __attribute__((weak));
/*
 * Returns whether reserved address space takes memory after all, as under qemu-user before 8.0, which
 * records each page: where there may be an emulator, the first call reserves a GiB and lets it go again.
 */
bool os_reserving_costs(void);
/* The number of mappings that a process may have. */
size_t os_mappings_most(void);
/* A value that the kernel passed to the process at its start (AT_...); 0 if it did not, as old kernels. */
unsigned long os_auxiliary(unsigned long type);
/*
 * Returns whether libc has initialised.  In a static program it does so, allocating, maybe after the
 * library's first call and before any constructor.
 */
bool os_libc_is_whole(void);
/*
 * A variable of the program's environment; NULL if unset, and in a set-user-id program.  The program may
 * overwrite the value in place.
 */
const char *os_environment(const char *name);
/* An upper bound of the vCPU ids that this kernel hands out. */
unsigned os_possible_cpus(void);
/* The number of CPUs that the process may use now. */
unsigned os_cpus(void);
/*
 * A number that other programs cannot guess.  os_random_begin, at start, asks the system for more secret
 * bytes than it gives each process; os_random makes no system call.
 */
uint64_t os_random(void);
void os_random_begin(bool secret);

/* Registers (or unregisters) the calling thread's restartable-sequence area. */
int os_rseq_register(void *area, uint32_t bytes, uint32_t flags, uint32_t signature);
int os_rseq_unregister(void *area, uint32_t bytes, uint32_t signature);
/* Installs a signal handler, with system calls restarted; does nothing for an invalid number. */
void os_on_signal(int number, void (*handler)(int));
/* Sets the calling thread's signal mask, including the signals that libc keeps for itself. */
void os_signal_mask(const sigset_t *mask, sigset_t *old);
/* Gets or sets the action of a signal; either pointer may be NULL. */
int os_signal_action(int number, const struct sigaction *action, struct sigaction *old);
/*
 * On return of 0, every thread of the process that was inside a section at the call has been aborted, and
 * sees all stores that the caller made before.
 */
int os_fence_sections(void);
/* On return of 0, every thread of the process has passed a full memory barrier since the call. */
int os_barrier_all_threads(void);
/*
 * At start: registers for both, which takes milliseconds once a process has threads.  Or, if it is not
 * allowed, makes both fail without a system call from now on.
 */
void os_membarrier_begin(bool allowed);

/* Sleeps while *word == expected, for at most a relative time (NULL: for ever).  Returns EINTR and EAGAIN. */
int os_futex_wait(uint32_t *word, uint32_t expected, const struct timespec *relative);
/* The same until an instant of CLOCK_MONOTONIC (NULL: for ever), then returns ETIMEDOUT. */
int os_futex_wait_until(uint32_t *word, uint32_t expected, const struct timespec *deadline);
/* Wakes at most `count` sleepers. */
int os_futex_wake(uint32_t *word, int count);

/* Sleeps for some time below a second.  A futex, which libc's own locks need: a sandbox lets it through. */
void os_nap(long nanoseconds);
/*
 * Makes a thread that libc does not know of: it runs `function`, which calls nothing of libc's, on a stack
 * that ends at `stack`, with `pointer` as its thread pointer (arch_init_thread_pointer), and with all signals
 * blocked. *id is its id until it ends, then 0.
 */
int os_begin_thread(void (*function)(void), void *stack, void *pointer, uint32_t *id);
/*
 * From now on the calling thread can make only those system calls that give memory back or report a broken
 * heap; all others are refused.
 */
int os_confine_thread(void);
/* Names the calling thread, as ps and debuggers show it. */
void os_name_thread(const char *name);
/* The calling thread's kernel id. */
uint32_t os_thread_id(void);

/* The CPU that the thread was on at some instant of the call. */
unsigned os_cpu(void);
/* Returns whether a word of memory is readable, without faulting; false where the system does not tell. */
bool os_can_read(const void *address);

/* CLOCK_MONOTONIC_COARSE in milliseconds: cheap, and accurate to a scheduler tick. */
uint64_t os_milliseconds(void);

/*
 * The time from `then` to `now`; 0 if `now` is earlier, which happens when another thread noted `then`
 * after this one read the clock.
 */
static inline uint64_t os_elapsed(uint64_t then, uint64_t now)
{
	return now > then ? now - then : 0;
}
/* CPU time of all threads of the process; 0 where the system does not tell. */
uint64_t os_cpu_nanoseconds(void);
/* The same for the calling thread. */
uint64_t os_thread_nanoseconds(void);

/* Nanoseconds since 1970. */
int64_t os_time_of_day(void);
uint32_t os_process_id(void);
/* Creates a file that must not exist yet, readable by its owner alone. */
int os_create_file(const char *path, int *file);
void os_close(int file);
/* Reads up to `bytes` from the start of a file; returns how many, 0 if it cannot be read. */
size_t os_read_file(const char *path, char *text, size_t bytes);

/* Copies memory of this process that may not be mapped; EFAULT if it is not. */
int os_read_memory(uintptr_t address, void *buffer, size_t bytes);

/* Writes all of the text, unless that fails. */
int os_write(int file, const char *text, size_t length);
/* Writes all of the text to standard error. */
void os_write_error(const char *text, size_t length);
/*
 * Keeps a copy of standard error for reports at exit, since a program may close its own before it ends.
 * From os_return_to_kept_error() on, os_write_error() writes to the file that it was, or nowhere.
 */
void os_keep_standard_error(void);
void os_return_to_kept_error(void);

#endif
