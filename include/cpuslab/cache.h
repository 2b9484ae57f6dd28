/* SPDX-License-Identifier: MIT */
/*
 * Object caches: memory for many objects of one type, with the semantics of the kernel's kmem_cache
 * (linux/slab.h).  <cpuslab/cache.h> is the library's own spelling of them.
 *
 * A cache hands out objects of one size.  Each vCPU has a magazine of them, so that an allocation or a free
 * is a few instructions without a lock; behind the magazines the cache has slabs of its own.  No metadata
 * lies in or between objects.  (The linked engine has a list instead of magazines, and writes into objects
 * while they are free.)
 *
 * Objects may be freed by any thread, and also by free(), which finds the cache by itself.  A cache belongs
 * to the process; a forked child has its caches as they were.
 *
 * Every function is safe to call from any thread at any time, unless it says otherwise.  None is
 * async-signal-safe.
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

/* What keeps a vCPU's objects. */
enum cpuslab_engine {
	CPUSLAB_ENGINE_DEFAULT,  /* what the library thinks best; now the magazines */
	CPUSLAB_ENGINE_MAGAZINE, /* arrays of objects, as the kernel's SLAB had them */
	/*
	 * Lists through the free objects, as SLUB has them: 8 bytes for each vCPU and little else, for caches
	 * by the thousand.  A link of 8 bytes lies in each free object, near its start unless
	 * free_pointer_offset says where; behind the object where its content must survive, with a
	 * constructor or TYPESAFE_BY_RCU. A link that the program has overwritten stops the process.
	 */
	CPUSLAB_ENGINE_LINKED,
};

/* The kernel's SLAB_ flags of the same names. */
enum cpuslab_cache_flags {
	/* Objects do not lie across more cache lines than they must. */
	CPUSLAB_CACHE_HWCACHE_ALIGN = 1 << 0,
	/* A cache that cannot be created stops the process with a message. */
	CPUSLAB_CACHE_PANIC = 1 << 1,
	/*
	 * Memory that was an object of the cache stays one, free or not: a reader that has found an object
	 * without holding it may still read it, and must then make sure that it is the one it was looking
	 * for. Here that is true until the cache is destroyed, without any grace periods; the cache never
	 * shrinks.
	 */
	CPUSLAB_CACHE_TYPESAFE_BY_RCU = 1 << 2,
	/* The cache shares its memory with no other one: see "Merging" below. */
	CPUSLAB_CACHE_NO_MERGE = 1 << 3,
	/*
	 * Debugging, object by object, as the variable CPUSLAB_DEBUG switches it on from outside
	 * (docs/debugging.md); a cache gets what either asks for.  A cache with any of them has no
	 * magazines, and its objects take more memory.
	 */
	CPUSLAB_CACHE_CONSISTENCY_CHECKS = 1 << 4, /* look at each object as it is allocated and freed */
	CPUSLAB_CACHE_RED_ZONE = 1 << 5,           /* known bytes before and after each object */
	CPUSLAB_CACHE_POISON = 1 << 6,     /* known bytes in free objects, but not with a constructor or
					      TYPESAFE_BY_RCU */
	CPUSLAB_CACHE_STORE_USER = 1 << 7, /* who allocated and who freed an object, for reports */
	CPUSLAB_CACHE_TRACE = 1 << 8,      /* a line on standard error for each call */
	/*
	 * Without effect but on merging: a cache with one of these merges only with caches that have it
	 * too.
	 */
	CPUSLAB_CACHE_ACCOUNT = 1 << 16,
	CPUSLAB_CACHE_RECLAIM_ACCOUNT = 1 << 17,
};

/*
 * Merging.  Caches that are alike share their memory, so that many caches of small objects need less of it:
 * what one frees, another allocates.  The rules are the kernel's.  Caches are alike when their objects,
 * rounded up to their alignment, take the same room, that room suits the alignment of both, and both have the
 * same of the flags ACCOUNT and RECLAIM_ACCOUNT, and the same engine.  Never merged is a cache with a
 * constructor, with TYPESAFE_BY_RCU, NO_MERGE or a debugging flag, or one whose magazine_capacity or free
 * pointer's offset was chosen; nor is any with the classes of malloc.
 *
 * Each keeps its own name and size.  But nobody can tell whose an object is: any of them may free it, and
 * only as the last of them is destroyed can objects that are still allocated be found.  Reports and slabinfo
 * call the memory by the name of the cache that it was made for.  CPUSLAB_CACHE_NO_MERGE for one cache, or
 * the option merge:false for all (the kernel's slab_nomerge), is the choice where such errors matter more
 * than memory.
 */

enum {
	CPUSLAB_CACHE_NAME_MAX = 255,      /* bytes of a name, without its end */
	CPUSLAB_CACHE_SIZE_MAX = 4 << 20,  /* bytes of an object, as in the kernel */
	CPUSLAB_CACHE_ALIGN_MAX = 2 << 20, /* bytes */
	CPUSLAB_CACHE_MAGAZINE_MAX = 500,  /* objects in a magazine */
};

/* What a cache is to be like.  Members that are zero mean the default; name and size are needed. */
struct cpuslab_cache_args {
	const char *name; /* for reports; copied, and need not be the only one of its kind */
	size_t size;      /* of an object in bytes, 1 to CPUSLAB_CACHE_SIZE_MAX */
	size_t align; /* of an object in bytes, a power of two up to CPUSLAB_CACHE_ALIGN_MAX; 8 at least */

	/*
	 * Called once for each object when the slab it lies in is made, before the object is ever handed out.
	 * What it makes, and what the program makes of it, is there when the object is allocated again after
	 * a free.  It runs on the allocating thread without locks, and may allocate, but not from its own
	 * cache. There is no destructor: the memory of free objects goes back to the system without notice.
	 */
	void (*constructor)(void *object);

	enum cpuslab_engine engine;
	unsigned flags;             /* of enum cpuslab_cache_flags */
	unsigned magazine_capacity; /* objects, up to CPUSLAB_CACHE_MAGAZINE_MAX; 0: by the size */

	/*
	 * Where in a free object the allocator may keep a pointer of its own, if use_free_pointer_offset is
	 * not zero: 8 bytes, aligned to 8, within the object.  Only the linked engine wants any; the magazine
	 * engine writes nowhere.
	 */
	unsigned free_pointer_offset;
	int use_free_pointer_offset;

	uint64_t reserved[4]; /* zero */
};

/*
 * Creates a cache.  NULL with errno set when it cannot:
 *   EINVAL        the size, the alignment, the capacity, a flag or the free pointer's offset is out of range;
 *                 there is no name, or an empty one; or something reserved is not zero
 *   ENAMETOOLONG  the name is longer than CPUSLAB_CACHE_NAME_MAX
 *   ENOMEM        no more memory, or about 65,000 caches exist
 * With CPUSLAB_CACHE_PANIC it stops the process instead.  (kmem_cache_create; there the debugging flags do
 * nothing where the kernel was built without them.)
 */
CPUSLAB_API struct cpuslab_cache *cpuslab_cache_create(const struct cpuslab_cache_args *args);

/*
 * Destroys a cache that nobody uses any more and gives its memory back.  NULL is ignored.  Returns 0, or, if
 * objects of it are still allocated, -1 with errno EBUSY: then each of them is reported in one line on
 * standard error, and everything stays as it was, so that the objects can be used and freed, and the cache
 * destroyed later.  A cache that shares its memory with others is destroyed at once: its objects, if there
 * are any, are those of the others from then on.  (kmem_cache_destroy)
 */
CPUSLAB_API int cpuslab_cache_destroy(struct cpuslab_cache *cache);

/*
 * An object, aligned as the cache says; NULL with errno ENOMEM when there is no memory.  Without a
 * constructor its bytes are anything.  (kmem_cache_alloc)
 */
CPUSLAB_API void *cpuslab_cache_alloc(struct cpuslab_cache *cache);

/*
 * The same without waiting for another thread, as cpuslab_aligned_alloc_nowait in cpuslab.h explains; the
 * cache's constructor may run.  A cache of the linked engine makes no new slab for it.  (kmem_cache_alloc
 * with GFP_NOWAIT)
 */
CPUSLAB_API void *cpuslab_cache_alloc_nowait(struct cpuslab_cache *cache);

/*
 * An object of zeros.  NULL with errno EINVAL for a cache with a constructor, whose work that would undo.
 * (kmem_cache_zalloc)
 */
CPUSLAB_API void *cpuslab_cache_zalloc(struct cpuslab_cache *cache);

/*
 * Frees an object of this cache.  NULL is ignored.  What is not an object of this cache, or is free already,
 * stops the process with a message: at once for what belongs elsewhere, for a double free at the latest when
 * the object's magazine goes back to the slabs; of the linked engine, at the latest when its slab goes back.
 * Where a process has more than 2,000 caches, an object of a later one that is freed to another later one
 * counts as a double free does.  Keeps errno.  (kmem_cache_free)
 */
CPUSLAB_API void cpuslab_cache_free(struct cpuslab_cache *cache, void *object);

/*
 * Allocates `count` objects into objects[0] and on: all of them, or none.  Returns `count`; or 0 with errno
 * ENOMEM, and objects[] is then undefined.  (kmem_cache_alloc_bulk)
 */
CPUSLAB_API size_t cpuslab_cache_alloc_bulk(struct cpuslab_cache *cache, size_t count, void **objects);

/*
 * Frees `count` objects of this cache, none of them NULL.  Else as cpuslab_cache_free.
 * (kmem_cache_free_bulk)
 */
CPUSLAB_API void cpuslab_cache_free_bulk(struct cpuslab_cache *cache, size_t count, void *const *objects);

/*
 * Gives the memory of free objects back, as far as it can be reached: without restartable sequences the
 * magazines of other living threads cannot.  Returns 0 if the cache has no slabs left, else 1.
 * (kmem_cache_shrink)
 */
CPUSLAB_API int cpuslab_cache_shrink(struct cpuslab_cache *cache);

/*
 * The tunables of the kernel's SLAB; cpuslab_slabinfo_tune (cpuslab.h) changes them by the kernel's text.
 *
 * A cache starts with SLAB's limit: 120 objects, 54 above 256 bytes, 24 above 1024, 8 above 4096, 1 above
 * 131072 (or the magazine_capacity chosen at creation); with half of it, rounded up, as batchcount; and,
 * unlike SLAB, with the largest sharedfactor: what waits is given back as it ages.
 */
struct cpuslab_cache_tunables {
	unsigned limit; /* objects in a magazine, 1 to CPUSLAB_CACHE_MAGAZINE_MAX; a vCPU has up to two */
	unsigned batchcount;   /* objects taken from the slabs at a time, 1 to limit */
	unsigned sharedfactor; /* so many times batchcount objects wait in magazines that no vCPU has; to
				  65535 */
};

/*
 * Changes them at any time; whoever allocates meanwhile need not know.  Magazines of another limit are
 * emptied at once, except those that cannot be reached (see cpuslab_cache_shrink): they go at their vCPU's
 * next miss. Caches that share a memory share its tunables.  Returns 0, or -1 with errno EINVAL for a number
 * out of range, and ENOTSUP for a cache of the linked engine, which has nothing to tune: its tunables read as
 * zeros, as SLUB's do in /proc/slabinfo.
 */
CPUSLAB_API int cpuslab_cache_set_tunables(struct cpuslab_cache *cache,
					   const struct cpuslab_cache_tunables *tunables);
CPUSLAB_API struct cpuslab_cache_tunables cpuslab_cache_get_tunables(const struct cpuslab_cache *cache);

/*
 * Looks at every object of a debugged cache, allocated or free: at the bytes around it with
 * CPUSLAB_CACHE_RED_ZONE, at those in it, if it is free, with CPUSLAB_CACHE_POISON.  What was overwritten is
 * reported on standard error and restored; the process goes on.  Returns how many objects were damaged; 0,
 * too, for a cache that is not debugged.  (validate in /sys/kernel/slab)
 */
CPUSLAB_API size_t cpuslab_cache_validate(struct cpuslab_cache *cache);

/* The size that was asked for, in bytes.  (kmem_cache_size) */
CPUSLAB_API size_t cpuslab_cache_size(const struct cpuslab_cache *cache);

/* The name it was created with, also where it shares another one's memory; lives as long as the cache. */
CPUSLAB_API const char *cpuslab_cache_name(const struct cpuslab_cache *cache);

/* With how many other caches it shares its memory now.  (`aliases` in /sys/kernel/slab) */
CPUSLAB_API unsigned cpuslab_cache_aliases(const struct cpuslab_cache *cache);

/*
 * Calls `visit` for each cache of the process that cpuslab_cache_create made, until it returns something
 * other than zero; returns that, or 0.  Meanwhile no cache can be created or destroyed: `visit` may use the
 * caches, but a call of cpuslab_cache_create, _destroy, _aliases or _iterate from it, or of cpuslab_validate
 * or cpuslab_slabinfo_tune, never returns.
 */
CPUSLAB_API int cpuslab_cache_iterate(int (*visit)(struct cpuslab_cache *cache, void *argument),
				      void *argument);

#ifdef __cplusplus
}
#endif
#endif
