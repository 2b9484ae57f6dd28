/* SPDX-License-Identifier: MIT */
/*
 * Object caches: memory for many objects of one type, with the semantics of the kernel's kmem_cache
 * (linux/slab.h) in the library's own spelling.
 *
 * A cache hands out objects of one size.  Each vCPU has a magazine of them, an array of free objects, so that
 * an allocation or a free takes a few instructions and no lock; behind the magazines the cache has slabs of
 * its own.  No metadata lies in or between objects.  (The linked engine has a list instead of magazines, and
 * writes into free objects.)
 *
 * Any thread may free an object; free() takes it as well, and finds the cache by itself.  A cache belongs to
 * the process; a forked child has its caches as they were.
 *
 * Any thread may call any function here at any time, unless it says otherwise.  None is async-signal-safe.
 */
#ifndef CPUSLAB_CACHE_H
#define CPUSLAB_CACHE_H

#include <stddef.h>
#include <stdint.h>

#ifndef CPUSLAB_API
#define CPUSLAB_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct cpuslab_cache;

/* How each vCPU keeps its free objects. */
enum cpuslab_engine {
	CPUSLAB_ENGINE_DEFAULT,  /* the library's choice; at present the magazines */
	CPUSLAB_ENGINE_MAGAZINE, /* arrays of objects, as in the kernel's SLAB */
	/*
	 * Lists linked through the free objects, as in SLUB: 8 bytes for each vCPU and little else, for
	 * programs with thousands of caches.  A link of 8 bytes lies in each free object, near its start
	 * unless free_pointer_offset places it; behind the object where its content must survive a free (a
	 * constructor, or TYPESAFE_BY_RCU).  A link that the program has overwritten stops the process.
	 */
	CPUSLAB_ENGINE_LINKED,
};

/* The kernel's SLAB_ flags of the same names. */
enum cpuslab_cache_flags {
	/* Objects span no more cache lines than they must. */
	CPUSLAB_CACHE_HWCACHE_ALIGN = 1 << 0,
	/* Failure to create the cache stops the process with a message. */
	CPUSLAB_CACHE_PANIC = 1 << 1,
	/*
	 * Memory that was an object of the cache stays one, free or not: a reader that found an object
	 * without holding it may still read it, and must then check that it is the one it looked for.  Here
	 * this holds until the cache is destroyed, without any grace period; the cache never shrinks.
	 */
	CPUSLAB_CACHE_TYPESAFE_BY_RCU = 1 << 2,
	/* The cache shares its memory with no other: see "Merging" below. */
	CPUSLAB_CACHE_NO_MERGE = 1 << 3,
	/*
	 * Debugging, cache by cache.  The environment variable CPUSLAB_DEBUG switches the same checks on from
	 * outside (docs/debugging.md); a cache gets what either asks for.  A cache with any of them has no
	 * magazines, and its objects take more memory.
	 */
	CPUSLAB_CACHE_CONSISTENCY_CHECKS = 1 << 4, /* check each object at each allocation and free */
	CPUSLAB_CACHE_RED_ZONE = 1 << 5,           /* known bytes before and after each object */
	CPUSLAB_CACHE_POISON = 1 << 6,     /* known bytes in free objects, but not with a constructor or
					      TYPESAFE_BY_RCU */
	CPUSLAB_CACHE_STORE_USER = 1 << 7, /* record who allocated and who freed an object, for reports */
	CPUSLAB_CACHE_TRACE = 1 << 8,      /* print a line on standard error for each call */
	/*
	 * These two affect merging only: a cache with one of them merges only with caches that have it too.
	 */
	CPUSLAB_CACHE_ACCOUNT = 1 << 16,
	CPUSLAB_CACHE_RECLAIM_ACCOUNT = 1 << 17,
};

/*
 * Merging.  Caches that are alike share their memory, so that many caches of small objects need less of it:
 * one allocates what another has freed.  The rules are the kernel's.  Caches are alike when their objects,
 * rounded up to their alignment, take the same room, that room suits the alignment of both, and both have the
 * same engine and the same of the flags ACCOUNT and RECLAIM_ACCOUNT.  A cache never merges if it has a
 * constructor, TYPESAFE_BY_RCU, NO_MERGE or a debugging flag, or if its magazine_capacity or free pointer's
 * offset was chosen; none merges with the classes of malloc.
 *
 * Each keeps its own name and size.  But no object can be attributed to one of them: any of them may free it,
 * and objects that are still allocated can be found only when the last of them is destroyed.  Reports and
 * slabinfo call the memory by the name of the cache that it was made for.  Where such errors matter more than
 * memory, choose CPUSLAB_CACHE_NO_MERGE for one cache, or the option merge:false for all (the kernel's
 * slab_nomerge).
 */

enum {
	CPUSLAB_CACHE_NAME_MAX = 255,      /* bytes of a name, without the terminating null */
	CPUSLAB_CACHE_SIZE_MAX = 4 << 20,  /* bytes of an object, as in the kernel */
	CPUSLAB_CACHE_ALIGN_MAX = 2 << 20, /* bytes */
	CPUSLAB_CACHE_MAGAZINE_MAX = 500,  /* objects in a magazine */
};

/* The properties of a new cache.  Zero means the default; name and size have none. */
struct cpuslab_cache_args {
	const char *name; /* for reports; copied; need not be unique */
	size_t size;      /* of an object in bytes, 1 to CPUSLAB_CACHE_SIZE_MAX */
	size_t align; /* of an object in bytes, a power of two up to CPUSLAB_CACHE_ALIGN_MAX; 8 at least */

	/*
	 * Called once for each object when its slab is made, before the object is first handed out.  What it
	 * writes, and what the program writes later, is still there when the object is allocated again after
	 * a free.  It runs on the allocating thread with no lock held, and may allocate, but not from its own
	 * cache.  There is no destructor: the memory of free objects goes back to the system without notice.
	 */
	void (*constructor)(void *object);

	enum cpuslab_engine engine;
	unsigned flags;             /* of enum cpuslab_cache_flags */
	unsigned magazine_capacity; /* objects, up to CPUSLAB_CACHE_MAGAZINE_MAX; 0: chosen by the size */

	/*
	 * Where in a free object the allocator may keep a pointer of its own, if use_free_pointer_offset is
	 * not zero: 8 bytes, aligned to 8, within the object.  Only the linked engine keeps one; the magazine
	 * engine writes nothing into objects.
	 */
	unsigned free_pointer_offset;
	int use_free_pointer_offset;

	uint64_t reserved[4]; /* must be zero */
};

/*
 * Creates a cache.  Returns NULL with errno set if it cannot:
 *   EINVAL        the size, the alignment, the capacity, a flag or the free pointer's offset is out of range;
 *                 there is no name, or an empty one; or a reserved member is not zero
 *   ENAMETOOLONG  the name is longer than CPUSLAB_CACHE_NAME_MAX
 *   ENOMEM        memory is short, or about 65,000 caches exist
 * With CPUSLAB_CACHE_PANIC it stops the process instead.  (kmem_cache_create; a kernel that is built without
 * the debugging flags ignores them.)
 */
CPUSLAB_API struct cpuslab_cache *cpuslab_cache_create(const struct cpuslab_cache_args *args);

/*
 * Destroys a cache that is no longer in use, and gives its memory back.  NULL is ignored.  Returns 0; or -1
 * with errno EBUSY if objects of it are still allocated: then a line on standard error reports each of them,
 * and everything stays as it was, so that the objects can be used and freed, and the cache destroyed later.
 * A cache that shares its memory with others is destroyed at once: any objects it has left belong to the
 * others from then on.  (kmem_cache_destroy)
 */
CPUSLAB_API int cpuslab_cache_destroy(struct cpuslab_cache *cache);

/*
 * Allocates an object with the cache's alignment.  Returns NULL with errno ENOMEM when memory is short.
 * Without a constructor its content is undefined.  (kmem_cache_alloc)
 */
CPUSLAB_API void *cpuslab_cache_alloc(struct cpuslab_cache *cache);

/*
 * As cpuslab_cache_alloc, but without waiting for another thread: see cpuslab_aligned_alloc_nowait in
 * cpuslab.h.  The cache's constructor may run.  A cache of the linked engine makes no new slab for this call.
 * (kmem_cache_alloc with GFP_NOWAIT)
 */
CPUSLAB_API void *cpuslab_cache_alloc_nowait(struct cpuslab_cache *cache);

/*
 * As cpuslab_cache_alloc, with all bytes zero.  Returns NULL with errno EINVAL for a cache with a
 * constructor, whose work the zeros would undo.  (kmem_cache_zalloc)
 */
CPUSLAB_API void *cpuslab_cache_zalloc(struct cpuslab_cache *cache);

/*
 * Frees an object of this cache.  NULL is ignored.  A pointer that is not an object of this cache, or is free
 * already, stops the process with a message: at once if it belongs elsewhere; after a double free, at the
 * latest when the object's magazine goes back to the slabs or, in the linked engine, when its slab goes back.
 * In a process with more than 2,000 caches, an object of a later one that is freed to another later one is
 * found as late as a double free.  Keeps errno.  (kmem_cache_free)
 */
CPUSLAB_API void cpuslab_cache_free(struct cpuslab_cache *cache, void *object);

/*
 * Allocates `count` objects into objects[0] and on: all of them, or none.  Returns `count`; or 0 with errno
 * ENOMEM, and then objects[] is undefined.  (kmem_cache_alloc_bulk)
 */
CPUSLAB_API size_t cpuslab_cache_alloc_bulk(struct cpuslab_cache *cache, size_t count, void **objects);

/*
 * Frees `count` objects of this cache, none of them NULL; otherwise as cpuslab_cache_free.
 * (kmem_cache_free_bulk)
 */
CPUSLAB_API void cpuslab_cache_free_bulk(struct cpuslab_cache *cache, size_t count, void *const *objects);

/*
 * Gives back the memory of the free objects that it can reach; without restartable sequences it cannot reach
 * those in the magazines of other living threads.  Returns 0 if the cache has no slabs left, else 1.
 * (kmem_cache_shrink)
 */
CPUSLAB_API int cpuslab_cache_shrink(struct cpuslab_cache *cache);

/*
 * The tunables of the kernel's SLAB; cpuslab_slabinfo_tune (cpuslab.h) sets them from the kernel's text.
 *
 * A cache starts with SLAB's limit: 120 objects, 54 above 256 bytes, 24 above 1024, 8 above 4096, 1 above
 * 131072 (or the magazine_capacity chosen at creation); with half of it, rounded up, as batchcount; and,
 * unlike SLAB, with the largest sharedfactor: waiting objects are given back as they age.
 */
struct cpuslab_cache_tunables {
	unsigned limit; /* objects in a magazine, 1 to CPUSLAB_CACHE_MAGAZINE_MAX; a vCPU has up to two */
	unsigned batchcount;   /* objects taken from the slabs at a time, 1 to limit */
	unsigned sharedfactor; /* so many times batchcount may wait in magazines that no vCPU has; to 65535 */
};

/*
 * Changes the tunables at any time, even while other threads allocate.  Magazines of another limit are
 * emptied at once, except those that cannot be reached (see cpuslab_cache_shrink): they go at their vCPU's
 * next miss.  Caches that share memory share its tunables.  Returns 0; or -1 with errno EINVAL for a number
 * out of range, or ENOTSUP for a cache of the linked engine, which has nothing to tune: its tunables read as
 * zeros, as SLUB's do in /proc/slabinfo.
 */
CPUSLAB_API int cpuslab_cache_set_tunables(struct cpuslab_cache *cache,
					   const struct cpuslab_cache_tunables *tunables);
CPUSLAB_API struct cpuslab_cache_tunables cpuslab_cache_get_tunables(const struct cpuslab_cache *cache);

/*
 * Checks every object of a debugged cache, allocated or free: the bytes around it with
 * CPUSLAB_CACHE_RED_ZONE, and those in it, if it is free, with CPUSLAB_CACHE_POISON.  Overwritten bytes are
 * reported on standard error and restored; the process goes on.  Returns the number of damaged objects; 0
 * also for a cache that is not debugged.  (validate in /sys/kernel/slab)
 */
CPUSLAB_API size_t cpuslab_cache_validate(struct cpuslab_cache *cache);

/* Returns the size that was asked for, in bytes.  (kmem_cache_size) */
CPUSLAB_API size_t cpuslab_cache_size(const struct cpuslab_cache *cache);

/*
 * Returns the name it was created with, even if it shares another's memory.  The string lives as long as the
 * cache.
 */
CPUSLAB_API const char *cpuslab_cache_name(const struct cpuslab_cache *cache);

/* Returns how many other caches share this one's memory now.  (`aliases` in /sys/kernel/slab) */
CPUSLAB_API unsigned cpuslab_cache_aliases(const struct cpuslab_cache *cache);

/*
 * Calls `visit` for each cache that cpuslab_cache_create made, until a call returns nonzero; returns that
 * value, or else 0.  Meanwhile no cache can be created or destroyed: `visit` may use the caches, but if it
 * calls cpuslab_cache_create, _destroy, _aliases or _iterate, or cpuslab_validate or cpuslab_slabinfo_tune,
 * that call never returns.
 */
CPUSLAB_API int cpuslab_cache_iterate(int (*visit)(struct cpuslab_cache *cache, void *argument),
				      void *argument);

#ifdef __cplusplus
}
#endif
#endif
