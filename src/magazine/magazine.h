/* SPDX-License-Identifier: MIT */
/*
 * magazine: the front of the allocator: one word for each (vCPU, cache), and what happens when it misses.
 *
 * Owns caches: a cache is a word offset, a depot and its slabs.  The fast paths are the two inline functions
 * below; everything else is a slow path, entered with no lock held, that moves whole magazines:
 *
 *   alloc misses  the loaded magazine (empty) <-> the spare, if that has objects
 *                 else <-> a filled one from the depot
 *                 else it is filled from the slabs, in part (depot_refill)
 *   free misses   the loaded magazine (full) <-> the spare, if that is empty
 *                 else <-> an empty one from the depot
 *
 * Each step is one word: the loaded magazine is detached by storing VOID over it, and a magazine is installed
 * by storing its top over VOID.  Between the steps the magazine is in the thread's hand, and the thread may
 * be preempted, migrate, or find that another thread was quicker; it then leaves what it holds in the depot.
 *
 * Caches come and go.  Each has a number, which is the place of its words; a number is used again when its
 * cache is destroyed.  Only caches of the first bank (see vcpu.h) have pages whose map entry leads straight
 * to the word; the pages of the others say PAGE_SLAB.
 *
 * What misses come to stands in magazine.c, with words.c for each step; the rest of the room in census.c, the
 * list of caches; watch.c, objects that a heap profile or guarding picks out; lull.c and reclaim.c, what goes
 * back; glance.c; hardened.c and checked.c, caches whose objects are checked.
 *
 * What it does as time passes, or memory ends, or in a forked child, it does for the linked engine too.
 *
 * Called by malloc and the object caches, from any thread.  Lock: census_lock for the list of caches, and for
 * whoever looks at words from outside; while it is held no cache goes away.  The rooms below are called under
 * it.  No lock is held on the slow paths of alloc and free, nor as the cache of a reserved number comes: it
 * is whole before anyone can find it, and a walk may miss it.
 */
#ifndef CPUSLAB_MAGAZINE_H
#define CPUSLAB_MAGAZINE_H

#include "depot/depot.h"
#include "page/page.h"
#include "vcpu/vcpu.h"

struct cache {
	struct depot depot;
	const void *map; /* page_front.map, or what stands for it in the cache's bank */
	uint16_t offset; /* of its word */
	uint16_t id;     /* what the page map says of its pages */
	unsigned number;
	uint16_t returns; /* of a hardened cache: the word that frees push on, see hardened.c; else 0 */
	unsigned returns_number; /* of that word */
	void *owner;             /* what the room above keeps with it; NULL for malloc's */
};

/* Objects of so many bytes go past magazines on a vCPU until more of its calls than these have missed. */
enum { MAGAZINE_SELDOM_BYTES = 32 << 10, MAGAZINE_SELDOM_MISSES = 32 };

/* NULL on a miss. */
static inline __attribute__((always_inline)) void *magazine_alloc(const uint16_t *offset)
{
	return arch_pop(vcpu_self, page_front.map, offset);
}

/* False on a miss. */
static inline __attribute__((always_inline)) bool magazine_free(const uint16_t *offset, void *object)
{
	return arch_push(vcpu_self, page_front.map, offset, object);
}

/* The same for a cache of any bank, by its `map` and `offset`. */
static inline __attribute__((always_inline)) void *magazine_alloc_at(const void *map, const uint16_t *offset)
{
	return arch_pop(vcpu_self, map, offset);
}

static inline __attribute__((always_inline)) bool magazine_free_at(const void *map, const uint16_t *offset,
								   void *object)
{
	return arch_push(vcpu_self, map, offset, object);
}

/* After a miss: an object of the cache by the slow path; NULL when there is no memory. */
void *magazine_alloc_missed(struct cache *cache);
/*
 * The same for a caller who asked for so many bytes, aligned to a power of two: all of the cache's objects
 * are, and so is what is guarded in place of one.
 */
struct request {
	uint32_t bytes, alignment;
};
void *magazine_alloc_requested(struct cache *cache, struct request request);
/*
 * After a miss: an object without waiting for another thread, by no more than tries of the locks; NULL where
 * that cannot be.  The spare stays as it is: a thread that has a magazine in hand must be able to put it
 * down.
 */
void *magazine_try_alloc_missed(struct cache *cache);
/* After a miss: frees an object of the cache by the slow path; aborts if it is free already. */
void magazine_free_missed(struct cache *cache, void *object);

/* Whether a cache is debugged; then the functions after this one are what its misses come to. */
static inline bool magazine_is_checked(const struct cache *cache)
{
	return __builtin_expect(cache->depot.slabs.traits.checks != NULL, 0);
}

/* An object of which `requested` bytes are the caller's; NULL when there is no memory. */
void *magazine_alloc_checked(struct cache *cache, size_t requested);
/* Frees what the caller says is an object of so many bytes; SIZE_MAX when it says nothing. */
void magazine_free_checked(struct cache *cache, void *object, size_t stated);
/* Changes how many bytes of an object are the caller's; false when it is too small for that. */
bool magazine_resize_checked(struct cache *cache, void *object, size_t requested);
/* While a heap profile runs, of an object that comes to a slow path at each call: its allocation. */
void magazine_sample_unmarked(const struct cache *cache, const void *object);
/* Looks at every object, free or not; reports and repairs what is damaged, and returns how many were.  0 for
 * a cache that is not debugged. */
uint64_t magazine_validate(struct cache *cache);
/*
 * Calls `visit` for each allocated object of a debugged cache, with the stack (check/stack.h; 0 if it is not
 * known) and the bytes of its allocation.  Returns whether the cache keeps owners.
 */
bool magazine_visit_live(struct cache *cache, void (*visit)(uint32_t stack, uint32_t bytes, void *argument),
			 void *argument);
/* Reports each allocated object of a debugged cache. */
void magazine_report_live(struct cache *cache);
/* Gives back the objects of a debugged cache that are kept out of use; nobody uses the cache any more. */
void magazine_release_lost(struct cache *cache);

/* Whether a cache is hardened (hardened.h); then its objects come and go by the functions there alone. */
static inline bool magazine_is_hardened(const struct cache *cache)
{
	return cache->depot.slabs.traits.hardened;
}

/* A free to a hardened cache whose word for returns has no room, or of an object that a profile watches. */
void magazine_return_missed(struct cache *cache, void *object);

/* The bytes of a cache's objects that a program can have, what lies around them not counted. */
static inline uint32_t magazine_object_bytes(const struct cache *cache)
{
	const struct slab_traits *traits = &cache->depot.slabs.traits;

	return traits->checks ? traits->checks->zones.object_bytes : traits->size;
}

/* What all objects of a cache are aligned to. */
static inline uint32_t magazine_alignment(const struct slab_traits *traits)
{
	uint32_t divisor = traits->size & -traits->size, slab = traits->alignment * PAGE_BYTES;

	if (slab < PAGE_BYTES)
		slab = PAGE_BYTES;
	return divisor < slab ? divisor : slab;
}

/* Bytes that may be used at an allocated object of any cache. */
size_t magazine_usable(const struct cache *cache, const void *object);
/*
 * The same by nothing but what the page map says of the object's page: 0 where that does not tell, of caches
 * that are debugged or hardened, and of objects of 64 KiB and more.
 */
extern ARCH_INTERNAL uint16_t magazine_usual_bytes[(UINT16_MAX + 1) / PAGE_ID_STEP];
static inline size_t magazine_usual(const void *object)
{
	if (page_of(object) >= page_front.end)
		return 0;
	return __atomic_load_n(&magazine_usual_bytes[page_id(object) / PAGE_ID_STEP], __ATOMIC_ACQUIRE);
}
/* The same of an object that is asked for with so many bytes. */
size_t magazine_granted(const struct cache *cache, size_t requested);
/* The start of the allocated object that an address lies in; NULL for none. */
void *magazine_object_of(const struct cache *cache, const void *address);

/*
 * Several objects in two sections instead of one for each: as many, up to `count`, as the loaded magazine has
 * (or has room for).  What is left is for the functions above.
 */
unsigned magazine_alloc_several(struct cache *cache, void **objects, unsigned count);
unsigned magazine_free_several(struct cache *cache, void *const *objects, unsigned count);

/*
 * Makes a cache usable.  The traits' id is chosen here; `capacity` of its magazines in objects, 0 for what
 * suits the size.  False when there are VCPU_CACHES caches or no more memory.
 */
bool magazine_create(struct cache *cache, const struct slab_traits *traits, uint16_t capacity, void *owner);
/*
 * Numbers in a row for caches of malloc's that are made when they are first needed, and never destroyed.
 * False when the system has no more memory.
 */
bool magazine_reserve(unsigned count, unsigned *first);
/*
 * The cache of a number from there, made now unless another thread has made it; NULL when the system has no
 * more memory, or where that cannot be told without waiting for another thread and the caller does not.
 */
struct cache *magazine_create_reserved(unsigned number, const struct slab_traits *traits, bool waits);
/*
 * Takes a cache out of use and gives its memory back; or, if objects of it are allocated, returns how many,
 * and the cache is as good as before.  Nobody else may be using the cache.
 */
uint64_t magazine_destroy(struct cache *cache);
/* Gives free objects to the slabs, which then tell what is allocated.  Nobody else may be using the cache. */
void magazine_gather(struct cache *cache);
/* Takes the objects of one cache out of every vCPU that can be reached, and gives its free slabs back. */
void magazine_shrink(struct cache *cache);

/*
 * Changes a cache's tunables while it is in use.  Magazines of another size leave at once where they can be
 * reached; elsewhere at their vCPU's next miss.
 */
void magazine_tune(struct cache *cache, const struct depot_tunables *tunables);

/* The cache that an address of any kind belongs to; NULL for none. */
struct cache *magazine_cache(const void *address);
/* Numbers of caches are below this; some may have no cache (NULL). */
unsigned magazine_caches(void);
struct cache *magazine_cache_number(unsigned number);
/* In between no cache goes away.  Not to be held while anything is allocated or freed. */
void magazine_begin_census(void);
void magazine_end_census(void);
/*
 * A lock for the room above, which destroys a cache only while it has it, so that whoever else has it may use
 * caches meanwhile, their functions included.  Taken before any other lock.
 */
void magazine_keep_caches(void);
void magazine_let_caches_go(void);

/* Starts or ends a heap profile where profile.wanted says so; the slow path of alloc does it too. */
void magazine_settle_profile(void);
/*
 * The same, and at most some times a second another choice of what is watched.  From slow paths of objects
 * that no mark brings here.
 */
void magazine_tick_profile(void);
/* Makes another choice of what is watched at once; in milliseconds, what time it is. */
void magazine_turn_profile(uint64_t now);
/* Ages what is hoarded, at most every so often, by whichever thread comes here first.  From slow paths. */
void magazine_tick(void);
/*
 * When a thread has ended, and one other is left at most, which may do little from now on: what waits is to
 * go back even then.  Without a lock; waits for another thread that walks all caches.
 */
void magazine_left_alone(void);
/* Ages once each time that the heap has grown by some part, so that what is hoarded is used before fresh
 * pages. */
void magazine_heap_tick(void);
/*
 * After a large object was freed, of which so many pages stand by, MAGAZINE_MUCH if any: where much waits to
 * go back by age, beside what is in use, the next calls go to slow paths as long as they are few.
 */
enum { MAGAZINE_MUCH = (8 << 20) >> PAGE_SHIFT };
void magazine_large_freed(size_t standing_by);
/*
 * When the system has refused memory: everything that is hoarded goes back, from everywhere, and free pages
 * to the system.
 */
void magazine_trim(void);

/* Objects of one cache that lie in loaded and spare magazines now; a glance, not a census. */
uint64_t magazine_objects_loaded(const struct cache *cache);

/* Names what a reader of this process's memory needs to find every cache (see report/root.h). */
void magazine_show(void (*show)(const char *name, uintptr_t value, size_t size));

/* In a forked child. */
void magazine_repair(void);

#endif
