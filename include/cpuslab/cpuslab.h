/* SPDX-License-Identifier: MIT */
/*
 * cpuslab: what the library offers beyond the malloc family.
 *
 * Any thread may call any function here.  None is async-signal-safe unless it says so.
 */
#ifndef CPUSLAB_CPUSLAB_H
#define CPUSLAB_CPUSLAB_H

#include <stdint.h>
#include <stddef.h>

#ifndef CPUSLAB_API
#define CPUSLAB_API __attribute__((visibility("default")))
#endif

/* As the C library declares its functions (glibc's __THROW): in C++ two declarations of one must agree. */
#if !defined __cplusplus
#define CPUSLAB_NOEXCEPT
#elif __cplusplus >= 201103L
#define CPUSLAB_NOEXCEPT noexcept
#else
#define CPUSLAB_NOEXCEPT throw()
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the version of the loaded library as "major.minor.patch".  Async-signal-safe. */
CPUSLAB_API const char *cpuslab_version(void);

/*
 * How the fast path identifies the vCPU that a thread runs on.
 *   MM_CID       the kernel's per-process concurrency id (Linux 6.3): ids stay below the number of threads
 *   CPU_ID       the CPU number, from the same restartable-sequence area (Linux 4.18)
 *   THREAD_SLOT  a private slot for each thread: restartable sequences are missing (old kernel, gVisor,
 *                qemu-user, valgrind, seccomp), or the option vcpu:slot asked for it
 */
enum cpuslab_vcpu_mode {
	CPUSLAB_VCPU_THREAD_SLOT,
	CPUSLAB_VCPU_CPU_ID,
	CPUSLAB_VCPU_MM_CID,
};

/*
 * Returns the mode in force in this process; chosen once, at the first allocation.  Async-signal-safe after
 * that.
 */
CPUSLAB_API enum cpuslab_vcpu_mode cpuslab_vcpu_mode(void);

/* Returns the same as text: "mm_cid", "cpu_id" or "slot". */
CPUSLAB_API const char *cpuslab_vcpu_mode_name(void);

/*
 * Counts of what the fast path did not serve, since the start of the process.  Calls that the fast path
 * serves are not counted (that would cost what the fast path saves): subtract.
 *
 * Some parts of these sums wrap: each vCPU counts the misses of a cache modulo 2^32, and a cache of the
 * linked engine its slabs and lock acquisitions likewise.  When one of them wraps, after many hours at
 * 100,000 a second, the sum falls by as much.
 */
struct cpuslab_counters {
	uint64_t alloc_misses;   /* allocations that found their vCPU's magazine empty */
	uint64_t free_misses;    /* frees that found it full, and frees of large or foreign memory */
	uint64_t refills;        /* magazines filled from slabs */
	uint64_t drains;         /* magazines emptied into slabs */
	uint64_t slabs_created;  /* page runs turned into slabs */
	uint64_t slabs_freed;    /* slabs returned to the page layer */
	uint64_t section_aborts; /* restartable sequences that the kernel diverted to their abort handler */
	uint64_t fences;         /* remote drains of another vCPU */
	uint64_t purged_bytes;   /* bytes returned to the system so far */
	uint64_t lock_acquires;  /* acquisitions of depot, slab and page locks */
};

CPUSLAB_API void cpuslab_read_counters(struct cpuslab_counters *counters);

/*
 * Writes every cache of the process, malloc's classes included, to a file descriptor in the format of the
 * kernel's /proc/slabinfo, version 2.1 (slabinfo(5)).  Active objects are those that the program holds;
 * sharedavail counts those in magazines that no vCPU has; the tunables are those of cpuslab_slabinfo_tune.
 * An active slab is one that is not empty; in a cache of the linked engine every slab is active, as in SLUB.
 * White space in a name becomes '_'.  Returns 0; or -1 with errno as write(2) sets it, and part of the text
 * may then be written.
 */
CPUSLAB_API int cpuslab_slabinfo(int file);

/*
 * Changes a cache's tunables at any time, even while other threads allocate, by the line that the kernel's
 * SLAB takes at /proc/slabinfo:
 *
 *   NAME LIMIT BATCHCOUNT SHAREDFACTOR
 *
 * NAME is as cpuslab_slabinfo writes it (of several the first, malloc's classes included).  LIMIT is the
 * number of objects in a magazine, 1 to 500 (a vCPU has up to two magazines); BATCHCOUNT how many are taken
 * from the slabs at a time, 1 to LIMIT; SHAREDFACTOR, 0 to 65535, how many times BATCHCOUNT may wait in
 * magazines that no vCPU has before further objects go straight to the slabs.  Returns 0; or -1 with errno
 * EINVAL if there is no such cache, if it is of the linked engine, which has nothing to tune, or if a number
 * is out of range (the kernel ignores the last).
 */
CPUSLAB_API int cpuslab_slabinfo_tune(const char *text);

/*
 * Changes an option of CPUSLAB_OPTIONS while the program runs, for all its threads: `name` and `value` as
 * docs/options.md has them, whose table says which can change ("decay", "100": milliseconds; "dirty", "4M":
 * bytes, with K, M or G or without).  Takes effect at once: what is overdue by a new `decay` or `dirty`
 * begins to go back in this call, a batch at a time, and "profile" starts a heap profile, or with "0" ends
 * it.  Of several threads that change one option, the last one wins; a forked child begins with its parent's
 * values.  Returns 0; or -1 with errno EINVAL if there is no such option or it does not take that value,
 * EPERM if it is fixed at start, or ENOMEM if the library cannot start.
 */
CPUSLAB_API int cpuslab_ctl(const char *name, const char *value);

/*
 * Writes the value in force of any option, in the form that cpuslab_ctl() takes, to `value` of `bytes` bytes;
 * 32 suffice.  Returns 0; or -1 with errno EINVAL if there is no such option, ERANGE if the value is longer.
 */
CPUSLAB_API int cpuslab_ctl_get(const char *name, char *value, size_t bytes);

/*
 * Allocates without waiting for another thread: locks are tried, never waited for, and no lock that others
 * may wait for is held across more than a few instructions or, where the heap must grow, a system call.  Only
 * the system itself can still make the thread wait: in that call, and in the page fault when memory is first
 * touched.  So NULL with errno ENOMEM can mean that a lock was taken, not that memory is short.  The
 * exception is the first call in a process, and in a forked child, which sets the library up like any other.
 *
 * `alignment` is a power of two (1: as malloc's), else errno is EINVAL; above 8 MiB no memory can be had
 * without waiting.  free() takes the memory back, and may wait.  A debugged class waits for the locks of its
 * checks.  Not async-signal-safe even so.
 */
CPUSLAB_API void *cpuslab_aligned_alloc_nowait(size_t alignment, size_t size);

/*
 * Returns how many bytes malloc(size) would give, if memory is not short; 0 for a size above PTRDIFF_MAX.  Up
 * to 1 KiB malloc gives more while the program has few objects of that size: malloc_usable_size() tells for
 * each object.
 */
CPUSLAB_API size_t cpuslab_malloc_size(size_t size);

/*
 * Returns the start of the object that contains an address, for objects of malloc and of every cache; NULL
 * for any other address.  In an object of malloc only the first 4096 bytes are sure to be found.  The object
 * must not be freed meanwhile.  (The kernel's kvfree_rcu finds its object this way.)
 */
CPUSLAB_API void *cpuslab_object_of(const void *address);

/*
 * Checks every object, allocated or free, of the debugged caches with this name, malloc's classes
 * ("malloc-112") included; a name that ends in '*' stands for every name with that beginning, NULL for all.
 * Overwritten bytes are reported on standard error and restored (docs/debugging.md).  Returns the number of
 * damaged objects; or -1 with errno ENOENT if no debugged cache has such a name.
 */
CPUSLAB_API long cpuslab_validate(const char *name);

/*
 * Writes the figures of malloc_stats() and of every cache that has had slabs to a file descriptor as one JSON
 * object, sizes in bytes.  In names, bytes that are not UTF-8 become '?', as do DEL and the control
 * characters after it (U+007F to U+009F).  Returns 0; or -1 with errno as write(2) sets it, and part of the
 * text may then be written.
 */
CPUSLAB_API int cpuslab_stats_json(int file);

/*
 * C23's frees that take the size that was asked for (C23 7.24.3.4, 7.24.3.5), for C libraries that do not
 * declare them.  The object must come from malloc, calloc or realloc (free_sized), or from aligned_alloc
 * (free_aligned_sized).
 */
CPUSLAB_API void free_sized(void *object, size_t size) CPUSLAB_NOEXCEPT;
CPUSLAB_API void free_aligned_sized(void *object, size_t alignment, size_t size) CPUSLAB_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
