/* SPDX-License-Identifier: MIT */
/*
 * magazine: the front of the allocator: one word for each (vCPU, cache), and what happens when it misses.
 *
 * Owns caches: a cache is a word offset, a depot and its slabs.  The fast paths are the two inline functions
 * below; everything else is a slow path, entered with no lock held, that moves whole magazines:
 *
 *   alloc misses  the loaded magazine (empty) <-> the spare, if that has objects
 *                 else <-> a filled one from the depot
 *                 else it is half filled from the slabs
 *   free misses   the loaded magazine (full) <-> the spare, if that is empty
 *                 else <-> an empty one from the depot
 *
 * Each step is one word: the loaded magazine is detached by storing VOID over it, and a magazine is installed
 * by storing its top over VOID.  Between the steps the magazine is in the thread's hand, and the thread may
 * be preempted, migrate, or find that another thread was quicker; it then leaves what it holds in the depot.
 *
 * Called by malloc and the object caches, from any thread.  Lock: cache_lock for creating caches; none is
 * held while a room below is called.
 */
#ifndef CPUSLAB_MAGAZINE_H
#define CPUSLAB_MAGAZINE_H

#include "depot/depot.h"
#include "page/page.h"
#include "vcpu/vcpu.h"

struct cache {
	struct depot depot;
	uint16_t offset; /* of its word, and the page map's id of its pages */
};

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

/* After a miss: an object of the cache by the slow path; NULL when there is no memory. */
void *magazine_alloc_missed(struct cache *cache);
/* After a miss: frees an object of the cache by the slow path; aborts if it is free already. */
void magazine_free_missed(struct cache *cache, void *object);

/* Makes caches 1..count usable at once, in `caches`, whose sizes and names a function tells. */
void magazine_create_caches(struct cache *caches, unsigned count,
			    uint32_t (*describe)(unsigned index, char name[SLAB_NAME]));
/* The cache that owns a page id; NULL for the reserved ids. */
struct cache *magazine_cache(uint16_t id);
unsigned magazine_caches(void);
struct cache *magazine_cache_number(unsigned number);

/* Ages what is hoarded, at most every so often, by whichever thread comes here first.  From slow paths. */
void magazine_tick(void);
/* Takes every object out of every vCPU and depot that can be reached, and gives free pages to the system. */
void magazine_trim(void);

/* Objects of one cache that lie in loaded and spare magazines now; a glance, not a census. */
uint64_t magazine_objects_loaded(const struct cache *cache);
void magazine_misses(const struct cache *cache, uint64_t *allocs, uint64_t *frees);

/* In a forked child. */
void magazine_repair(void);

#endif
