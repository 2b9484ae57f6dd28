/* SPDX-License-Identifier: MIT */
/*
 * magazine: the front of the allocator: one word for each (vCPU, cache), and what happens on a miss.
 *
 * Owns caches: a cache is a word offset, a depot and its slabs.  A word is the address of the top-most filled
 * slot of the loaded magazine (depot.h); a word without a magazine is VOID, which misses both ways.  The fast
 * paths are the two inline functions below.  Everything else is a slow path, entered with no lock held, that
 * moves whole magazines:
 *
 *   alloc misses  the loaded magazine (empty) <-> the spare, if that has objects
 *                 else <-> a filled one from the depot
 *                 else it is filled from the slabs, in part (depot_refill)
 *   free misses   the loaded magazine (full) <-> the spare, if that is empty
 *                 else <-> an empty one from the depot
 *
 * Each step changes one word: the loaded magazine is detached by storing VOID over the word, and a magazine
 * is installed by storing its top over VOID.  In between the magazine is in the thread's hand, and the thread
 * may be preempted, migrate, or find that another thread was quicker; it then leaves what it holds in the
 * depot.
 *
 * Each cache has a number, which determines the place of its words; when a cache is destroyed, its number is
 * used again.  Only caches of the first bank (see vcpu.h) have pages whose map entry leads straight to the
 * word; the pages of the others say PAGE_SLAB.
 *
 * Files: magazine.c, what misses do; words.c, each step of it; census.c, the list of caches; watch.c, objects
 * that a heap profile or guarding picks out; lull.c and reclaim.c, what goes back; glance.c, a look at
 * others' words; hardened.c and checked.c, caches whose objects are checked.
 *
 * Ticks, trimming when memory has ended, and repair after a fork serve the linked engine, too.
 *
 * Called by malloc and the object caches, from any thread.  Lock: census_lock for the list of caches, and for
 * looking at words from outside; while it is held no cache goes away.  The rooms below are called under it.
 * The slow paths of alloc and free hold no lock; nor does creating the cache of a reserved number, which is
 * complete before it is published, and which a walk may miss.
 */
#ifndef CPUSLAB_MAGAZINE_H
#define CPUSLAB_MAGAZINE_H

#include "magazine/cache.h"
#include "vcpu/vcpu.h"

/*
 * Objects of this size or more bypass a vCPU's magazines until more than this number of its calls have
 * missed.
 */
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

/* After a miss: allocates an object by the slow path.  NULL when there is no memory. */
void *magazine_alloc_missed(struct cache *cache);
/*
 * The same for a caller who asked for `bytes`, aligned to a power of two: all of the cache's objects are, and
 * so is a guarded one in place of it.
 */
struct request {
	uint32_t bytes, alignment;
};
void *magazine_alloc_requested(struct cache *cache, struct request request);
/*
 * After a miss: an object without waiting for another thread, by trylocks alone; NULL where that cannot be.
 * Leaves the spare alone, since a thread with a magazine in hand must be able to put it down.
 */
void *magazine_try_alloc_missed(struct cache *cache);
/* After a miss: frees an object of the cache by the slow path.  Aborts if it is free already. */
void magazine_free_missed(struct cache *cache, void *object);

/* An object of which the caller owns `requested` bytes; NULL when there is no memory. */
void *magazine_alloc_checked(struct cache *cache, size_t requested);
/* Frees an object that the caller says has `stated` bytes, or SIZE_MAX if it does not say. */
void magazine_free_checked(struct cache *cache, void *object, size_t stated);
/* Changes how many bytes of an object the caller owns; false when the object is too small. */
bool magazine_resize_checked(struct cache *cache, void *object, size_t requested);
/*
 * While a heap profile runs: samples the allocation of an object without a mark, whose every call comes to a
 * slow path.
 */
void magazine_sample_unmarked(const struct cache *cache, const void *object);
/*
 * Checks every object, free or not; reports and repairs the damaged ones, and returns their number.  0 for a
 * cache that is not debugged.
 */
uint64_t magazine_validate(struct cache *cache);
/*
 * Calls `visit` for each allocated object of a debugged cache, with the stack (check/stack.h; 0 if unknown)
 * and the bytes of its allocation.  Returns whether the cache keeps owners.
 */
bool magazine_visit_live(struct cache *cache, void (*visit)(uint32_t stack, uint32_t bytes, void *argument),
			 void *argument);
/* Reports each allocated object of a debugged cache. */
void magazine_report_live(struct cache *cache);
/* Gives back the objects of a debugged cache that are kept out of use.  Nobody uses the cache any more. */
void magazine_release_lost(struct cache *cache);

/* Frees to a hardened cache when its word for returns has no room, or a profile watches the object. */
void magazine_return_missed(struct cache *cache, void *object);

/* Usable bytes of an allocated object of any cache. */
size_t magazine_usable(const struct cache *cache, const void *object);
/*
 * The same from the page map entry of the object's page alone.  0 where that does not tell: for debugged and
 * hardened caches, and for objects of 64 KiB and more.
 */
extern ARCH_INTERNAL uint16_t magazine_usual_bytes[(UINT16_MAX + 1) / PAGE_ID_STEP];
static inline size_t magazine_usual(const void *object)
{
	if (page_of(object) >= page_front.limit)
		return 0;
	return __atomic_load_n(&magazine_usual_bytes[page_id(object) / PAGE_ID_STEP], __ATOMIC_ACQUIRE);
}
/* Usable bytes of an object allocated for a request of `requested`. */
size_t magazine_granted(const struct cache *cache, size_t requested);
/* The start of the allocated object that an address lies in; NULL for none. */
void *magazine_object_of(const struct cache *cache, const void *address);

/*
 * Moves several objects in two critical sections instead of one for each: up to `count`, as far as the loaded
 * magazine has objects or room.  Returns how many; the functions above see to the rest.
 */
unsigned magazine_alloc_several(struct cache *cache, void **objects, unsigned count);
unsigned magazine_free_several(struct cache *cache, void *const *objects, unsigned count);

/*
 * Makes a cache usable.  Chooses the traits' id itself; `capacity` of its magazines in objects, 0 to choose
 * by size.  False when there are VCPU_CACHES caches or no more memory.
 */
bool magazine_create(struct cache *cache, const struct slab_traits *traits, uint16_t capacity, void *owner);
/*
 * Reserves consecutive numbers for caches of malloc's, which are created when first needed and never
 * destroyed.  False when the system has no more memory.
 */
bool magazine_reserve(unsigned count, unsigned *first);
/*
 * The cache of a reserved number, created now unless another thread has done so.  NULL when the system has no
 * more memory; or, unless the caller `waits`, where telling would take waiting for another thread.
 */
struct cache *magazine_create_reserved(unsigned number, const struct slab_traits *traits, bool waits);
/*
 * Takes a cache out of use, gives its memory back, and returns 0; or, if objects of it are allocated, returns
 * how many, and the cache remains usable.  Nobody else may be using the cache.
 */
uint64_t magazine_destroy(struct cache *cache);
/* Gives free objects to the slabs, which then know what is allocated.  Nobody else may be using the cache. */
void magazine_gather(struct cache *cache);
/* Takes the objects of one cache out of every vCPU that can be reached, and gives its free slabs back. */
void magazine_shrink(struct cache *cache);

/*
 * Changes a cache's tunables while it is in use.  Magazines of another capacity leave at once where they can
 * be reached; elsewhere at their vCPU's next miss.
 */
void magazine_tune(struct cache *cache, const struct depot_tunables *tunables);

/* The cache that any address belongs to; NULL for none. */
struct cache *magazine_cache(const void *address);
/* Cache numbers are below this; some may have no cache (NULL). */
unsigned magazine_caches(void);
struct cache *magazine_cache_number(unsigned number);
/* Between these calls no cache goes away.  Neither allocate nor free there. */
void magazine_begin_census(void);
void magazine_end_census(void);
/*
 * A lock for the room above: it destroys a cache only with this lock, so that others who hold it may use
 * caches, and all functions of these, meanwhile.  Taken before any other lock.
 */
void magazine_keep_caches(void);
void magazine_let_caches_go(void);

/* Starts or ends a heap profile as profile.wanted says; so does the slow path of alloc. */
void magazine_settle_profile(void);
/*
 * The same, and chooses anew what is watched, at most a few times a second.  For slow paths of objects that
 * no mark brings here.
 */
void magazine_tick_profile(void);
/* Chooses anew what is watched, at once.  `now` in milliseconds. */
void magazine_turn_profile(uint64_t now);
/*
 * Gives back what is hoarded: what an ebb or an earlier tick left due, by portions, and every RECLAIM_TICK
 * what has aged.  From slow paths, by whichever thread comes first.
 */
void magazine_tick(void);
/*
 * When a thread has ended and at most one other is left, which may do little from now on: lets what waits go
 * back even so.  Called without a lock; waits for another thread that walks all caches.
 */
void magazine_left_alone(void);
/*
 * Ages hoards once each time that the heap has grown by some part, so that they are used before fresh pages;
 * and gives them all back where `pages` more, which the caller is about to take, would come near the soft
 * limit.
 */
void magazine_heap_tick(size_t pages);
/*
 * After a large object was freed.  `standing_by`: its pages that stand by (page_put_standby), at least
 * MAGAZINE_MUCH, or 0.  Where much waits to go back by age, compared with what is in use, the next calls take
 * slow paths as long as they are few (lull.h).
 */
enum { MAGAZINE_MUCH = (8 << 20) >> PAGE_SHIFT };
void magazine_large_freed(size_t standing_by);
/* What the background thread does (background.h): returns after how many milliseconds to call it again. */
unsigned magazine_in_background(bool seen);
/* In each forked child where the option for the background thread is on. */
void magazine_begin_child(void);
/*
 * When the system has refused memory: gives back everything hoarded, from everywhere, and returns free pages
 * to the system.
 */
void magazine_trim(void);

/* Objects of one cache in loaded and spare magazines now; a glance, not a census. */
uint64_t magazine_objects_loaded(const struct cache *cache);

/* Names what a reader of this process's memory needs in order to find every cache (see report/root.h). */
void magazine_show(void (*show)(const char *name, uintptr_t value, size_t size));

/*
 * In a forked child: repairs what a dead thread left half done, or with `all` everything.  Returns whether
 * there were pages that no slab owns; the page room must then repair its runs.
 */
bool magazine_is_torn(void);
bool magazine_repair(bool all);

#endif
