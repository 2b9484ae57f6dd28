/* SPDX-License-Identifier: MIT */
/*
 * linked: the other engine (SLUB's): free objects linked through themselves, one word for each vCPU and
 * cache.
 *
 * Owns linked caches and their slabs.  A vCPU's word is the head of a list of free objects of one slab, which
 * is then FROZEN: its other lists are nobody's but the word's owner.  The list ends in the slab's address
 * with bit 0 set, so that the word tells its slab even when nothing is left, and nothing else is kept for a
 * vCPU: no second field that would have to agree with the first, and so neither lock nor guard on the fast
 * paths.
 *
 *   alloc   pops the word (arch_list_pop).  A miss takes the list of objects that others have freed into the
 *           frozen slab, else links more of the slab's untouched objects, else freezes a partial or new slab
 *   free    pushes onto the word where the object's slab is the word's (arch_list_push); else onto the slab's
 *           own list, which changes together with its counts by one compare-and-exchange of 16 bytes
 *
 * What a slow path has taken off a word is in the thread's hand: a frozen slab and a list.  It goes back onto
 * a void word, of whatever vCPU the thread is on by then, or to the slab, which thaws.
 *
 *   frozen slab     on one word, or in one hand; in no list
 *   partial slab    has free objects; in its cache's list of such
 *   full slab       in no list; the first object freed into it puts it into the list
 *
 * A slab becomes or stops being listed only under the cache's lock, and so does the exchange that makes that
 * necessary: of a thawed slab's first free object, or its last allocated one.  Every other free needs no
 * lock.
 *
 * While a heap profile runs, a slab that has a watched object (profile.h) is never on a word, so that each
 * call for one of its objects is a slow path; of a mean of 512 KiB between samples that is one slab in some
 * dozens.
 *
 * Objects are linked a few at a time, when they are first needed, so that a new slab dirties few pages.  The
 * link of a free object lies at its start, or where the cache's maker says; behind the object where its
 * content must survive a free (a constructor, or memory that stays typed).  Slabs are cut by SLUB's rule, and
 * aligned to their size.
 *
 * Called by the caches, from any thread; and by the magazine room, which tells what time it is.  Locks: the
 * census lock for the list of caches, and for whoever looks at words from outside; under it a cache's lock,
 * for its list and counts; under that the page room's.  Lock-free: words, by the rules of arch.h; slabs' own
 * lists.
 *
 * Fork: words, links and slabs' states are true at every instant; lists and counts under a lock that was held
 * follow from them (linked_repair).  So do they where a thread was giving slabs back, which no list has by
 * then: the child has them again.  What a thread had in hand is lost to the child, as a magazine would be: a
 * slab for each thread that was in a slow path, at most.
 */
#ifndef CPUSLAB_LINKED_H
#define CPUSLAB_LINKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"
#include "cpuslab/lock.h"
#include "vcpu/vcpu.h"

struct linked_slab;

/* What a cache is to be like. */
struct linked_traits {
	const char *name;          /* stays the caller's */
	uint32_t size;             /* of an object, as it was asked for */
	uint32_t alignment;        /* in bytes, a power of two, 8 at least */
	uint32_t link;             /* where in a free object a link may lie, or LINKED_ANYWHERE */
	bool type_stable;          /* memory that was an object stays one until the cache is closed */
	void (*construct)(void *); /* NULL for none */
};
static const uint32_t LINKED_ANYWHERE = UINT32_MAX;

struct linked_cache {
	/* Nobody writes these but a forked child: the fast paths' first. */
	const void *map; /* page_front.map, or what stands for it in the cache's bank */
	struct arch_list list;
	uint16_t offset; /* of its word */
	uint16_t objects;
	uint32_t stride;
	uint32_t usable; /* bytes of an object that the program may use */
	uint16_t batch;  /* objects that are linked at once */
	uint16_t min_partial;
	const char *name;
	void *owner; /* what the room above keeps with it */
	void (*construct)(void *);
	unsigned number;
	bool type_stable;
	bool under_repair; /* its list is being made anew */

	/* From here on in a cache line that no fast path reads: whoever has the cache sees to that. */
	struct cpuslab_spinlock lock;
	uint32_t releasing;               /* slabs in no list that are being given back without the lock */
	struct linked_slab *first, *last; /* partial slabs: taken from the front, put at the back */
	uint32_t partial, slabs;
	uint32_t created, freed;          /* for reports, modulo 2^32, as the next */
	uint32_t lock_acquires, glimpsed; /* glimpsed: lock_acquires when the last tick looked */
#if !ARCH_HAS_PAIR
	struct cpuslab_spinlock pair_lock;
	struct linked_slab *redo; /* what a forked child must finish: see replace_state */
	uint64_t redo_pair[2];
#endif
};

/* NULL on a miss. */
static inline __attribute__((always_inline)) void *linked_alloc(const struct linked_cache *cache)
{
	return arch_list_pop(vcpu_self, cache->map, &cache->offset, &cache->list);
}

/* False on a miss. */
static inline __attribute__((always_inline)) bool linked_free(const struct linked_cache *cache, void *object)
{
	return arch_list_push(vcpu_self, cache->map, &cache->offset, &cache->list, object);
}

/* After a miss: an object of the cache by the slow path; NULL when there is no memory. */
void *linked_alloc_missed(struct linked_cache *cache);
/*
 * After a miss: an object without waiting for another thread, from a slab that the cache has; NULL where that
 * cannot be.  The lock is tried, and kept until the slab is back in its list.
 */
void *linked_try_alloc_missed(struct linked_cache *cache);
/* After a miss: frees an object of the cache by the slow path; aborts if it is none, or is free already. */
void linked_free_missed(struct linked_cache *cache, void *object);

/* As many objects as there is memory for, up to `count`. */
size_t linked_alloc_several(struct linked_cache *cache, void **objects, size_t count);
/* Frees objects of the cache; aborts as linked_free_missed. */
void linked_free_several(struct linked_cache *cache, void *const *objects, size_t count);

/* Makes a cache usable; false when there are VCPU_CACHES caches, or no slab could hold such an object. */
bool linked_create(struct linked_cache *cache, const struct linked_traits *traits, void *owner);
/*
 * Takes a cache out of use and gives its memory back; or, if objects of it are allocated, returns false, and
 * the cache is as good as before.  Nobody else may be using the cache.
 */
bool linked_destroy(struct linked_cache *cache);
/* Takes the lists off every vCPU that can be reached, and gives free slabs back. */
void linked_shrink(struct linked_cache *cache);
/*
 * Calls `visit` for each allocated object of a cache that nobody else uses; takes time with the whole heap.
 * Stops the process where the program has overwritten a link, or freed an object twice.
 */
void linked_visit_objects(struct linked_cache *cache, void (*visit)(void *object, void *argument),
			  void *argument);

/* The cache whose slab an address of any kind lies in; NULL for none. */
struct linked_cache *linked_cache_of(const void *address);
/* The start of the object of this cache that an address lies in; NULL where none was ever handed out. */
void *linked_object_of(const struct linked_cache *cache, const void *address);
/* Numbers of caches are below this; some may have no linked cache (NULL). */
unsigned linked_caches(void);
struct linked_cache *linked_cache_number(unsigned number);
/* In between no cache goes away.  Not to be held while anything is allocated or freed. */
void linked_begin_census(void);
void linked_end_census(void);

/*
 * Takes lists off the words that have not moved since the last call, and lets caches whose slabs nobody has
 * asked for since then give the free ones back; or, with `all`, from everywhere.
 */
void linked_reclaim(bool all);

struct linked_statistics {
	uint64_t slabs, partial, allocated, hoarded, capacity, created, freed, lock_acquires;
	uint64_t alloc_misses, free_misses;
};
/* `allocated` are the program's objects, `hoarded` those on words; a glance, not a census. */
void linked_statistics(struct linked_cache *cache, struct linked_statistics *statistics);

/* Names what a reader of this process's memory needs to find every cache (see report/root.h). */
void linked_show(void (*show)(const char *name, uintptr_t value, size_t size));

/*
 * In a forked child: what a dead thread left half done, or all of it.  Returns whether pages were found that
 * no slab owns; the page room must then repair its runs.
 */
bool linked_repair(bool all);

#endif
