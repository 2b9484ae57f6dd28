/* SPDX-License-Identifier: MIT */
/*
 * cpuslab: what a program may ask of the allocator beyond the malloc family.
 *
 * Every function here is safe to call from any thread.  None is async-signal-safe unless it says so.
 */
#ifndef CPUSLAB_CPUSLAB_H
#define CPUSLAB_CPUSLAB_H

#include <stdint.h>
#include <stddef.h>

#ifndef CPUSLAB_API
#define CPUSLAB_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that is loaded, as "major.minor.patch".  Async-signal-safe. */
CPUSLAB_API const char *cpuslab_version(void);

/*
 * Who a thread is to the fast path.
 *   MM_CID       the kernel's per-process concurrency id (Linux 6.3): ids stay below the number of threads
 *   CPU_ID       the CPU number, from the same restartable-sequence area (Linux 4.18)
 *   THREAD_SLOT  a private slot for each thread: no restartable sequences here (old kernel, gVisor,
 *                qemu-user, valgrind, seccomp), or asked for by the option vcpu:slot
 */
enum cpuslab_vcpu_mode {
	CPUSLAB_VCPU_THREAD_SLOT,
	CPUSLAB_VCPU_CPU_ID,
	CPUSLAB_VCPU_MM_CID,
};

/* The mode in force in this process; chosen once, at the first allocation.  Async-signal-safe after that. */
CPUSLAB_API enum cpuslab_vcpu_mode cpuslab_vcpu_mode(void);

/* The same as text: "mm_cid", "cpu_id" or "slot". */
CPUSLAB_API const char *cpuslab_vcpu_mode_name(void);

/*
 * Counters of what the fast path did not serve, since the start of the process.  Calls served by the fast
 * path are not counted (that would cost what the fast path saves): subtract.
 *
 * What is added up here has a bound in places: each vCPU counts the misses of a cache modulo 2^32, and a
 * cache of the linked engine its slabs and locks likewise.  Where one of these begins anew, after many hours
 * of 100,000 a second, the sum falls by so much.
 */
struct cpuslab_counters {
	uint64_t alloc_misses;   /* allocations that found their vCPU's magazine empty */
	uint64_t free_misses;    /* frees that found it full, and frees of large or foreign memory */
	uint64_t refills;        /* magazines filled from slabs */
	uint64_t drains;         /* magazines emptied into slabs */
	uint64_t slabs_created;  /* page runs turned into slabs */
	uint64_t slabs_freed;    /* slabs given back to the page layer */
	uint64_t section_aborts; /* restartable sequences that the kernel sent to their abort handler */
	uint64_t fences;         /* remote drains of another vCPU */
	uint64_t purged_bytes;   /* bytes returned to the system so far */
	uint64_t lock_acquires;  /* acquisitions of depot, slab and page locks */
};

CPUSLAB_API void cpuslab_read_counters(struct cpuslab_counters *counters);

/*
 * Writes every cache of the process, malloc's classes included, to a file descriptor in the format of the
 * kernel's /proc/slabinfo, version 2.1 (slabinfo(5)).  An active object is one that the program has;
 * sharedavail are those in magazines that no vCPU has; the tunables are those of cpuslab_slabinfo_tune.  An
 * active slab is one that is not empty; of a cache of the linked engine each is active, as SLUB has it. White
 * space in a name becomes '_'.  Returns 0; or -1 with errno as write(2) sets it, and part of the text may
 * then be written.
 */
CPUSLAB_API int cpuslab_slabinfo(int file);

/*
 * Changes a cache's tunables at any time, by the line that the kernel's SLAB takes at /proc/slabinfo:
 *
 *   NAME LIMIT BATCHCOUNT SHAREDFACTOR
 *
 * NAME as cpuslab_slabinfo writes it (of several the first, malloc's classes included), LIMIT the objects in
 * a magazine, 1 to 500 (a vCPU has up to two), BATCHCOUNT how many are taken from the slabs at a time, 1 to
 * LIMIT, and SHAREDFACTOR, 0 to 65535, how many times BATCHCOUNT may wait in magazines that no vCPU has
 * before more go straight to the slabs.  Whoever allocates meanwhile need not know.  Returns 0; or -1 with
 * errno EINVAL if there is no such cache, it is of the linked engine, which has nothing to tune, or a number
 * is out of range (the kernel ignores the last).
 */
CPUSLAB_API int cpuslab_slabinfo_tune(const char *text);

/*
 * Memory without waiting for another thread: no lock is waited for, only tried, and none that others may wait
 * for is held across anything but a few instructions or, where the heap must grow, a system call.  What
 * remains that can make the thread wait is the system itself: that call, and the page fault as memory is
 * touched for the first time.  So NULL with errno ENOMEM can mean that a lock was taken, not that memory is
 * short.  Only the first call of a process, and of a forked child, sets the library up like any other.
 *
 * `alignment` is a power of two (1: as malloc), else EINVAL; beyond 8 MiB there is no such memory without
 * waiting.  The memory is malloc's: free() gives it back,
 * which may wait.  A class that is debugged waits for the locks of its checks.  Async-signal-unsafe all the
 * same.
 */
CPUSLAB_API void *cpuslab_aligned_alloc_nowait(size_t alignment, size_t size);

/*
 * How many bytes malloc(size) would give, if there is memory; 0 for a size above PTRDIFF_MAX.  Up to 1 KiB it
 * gives more as long as the program has few objects of that size: malloc_usable_size() tells of each.
 */
CPUSLAB_API size_t cpuslab_malloc_size(size_t size);

/*
 * The start of the object that an address lies in, for objects of malloc and of every cache; of one of
 * malloc's only the first 4096 bytes are sure to lead there.  NULL for any other address.  The object must
 * not be freed meanwhile.  (The kernel's kvfree_rcu finds its object this way.)
 */
CPUSLAB_API void *cpuslab_object_of(const void *address);

/*
 * Looks at every object, allocated or free, of the debugged caches of a name, malloc's classes ("malloc-112")
 * included; a name that ends in '*' stands for all that begin so, NULL for all.  What was overwritten is
 * reported on standard error and restored (docs/debugging.md).  Returns how many objects were damaged; -1
 * with errno ENOENT when no debugged cache has such a name.
 */
CPUSLAB_API long cpuslab_validate(const char *name);

/*
 * Writes the figures of malloc_stats() and of every cache that has had slabs to a file descriptor as one JSON
 * object, sizes in bytes.  What is no UTF-8 in a name becomes '?', as do DEL and the control characters
 * behind it (U+007F to U+009F).  Returns 0; or -1 with errno as write(2) sets it, and part of the text may
 * then be written.
 */
CPUSLAB_API int cpuslab_stats_json(int file);

/*
 * C23's frees that name what was asked for (C23 7.24.3.4, 7.24.3.5), for C libraries that do not declare
 * them. The object must come from malloc, calloc, realloc (free_sized) or aligned_alloc (free_aligned_sized).
 */
CPUSLAB_API void free_sized(void *object, size_t size);
CPUSLAB_API void free_aligned_sized(void *object, size_t alignment, size_t size);

#ifdef __cplusplus
}
#endif
#endif
