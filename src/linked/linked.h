/* SPDX-License-Identifier: MIT */
/*
 * linked: the other engine (SLUB's): free objects linked through themselves, and one word per vCPU and cache.
 *
 * Owns linked caches and their slabs.  A vCPU's word is the head of a list of free objects of one slab.  That
 * slab is FROZEN: only the word's owner allocates from it, though others may free into it.  The list ends in
 * the slab's address with bit 0 set, so that the word tells its slab even when the list is empty.  Nothing
 * else is kept per vCPU: there is no second field that would have to agree with the word, and so neither lock
 * nor guard on the fast paths.
 *
 *   alloc   pops the word (arch_list_pop).  A miss takes the list of objects that others have freed into the
 *           frozen slab, else links more of the slab's untouched objects, else freezes a partial or new slab
 *   free    pushes onto the word if that is of the object's slab (arch_list_push); else onto the slab's own
 *           list, which changes together with its counts by one 16-byte compare-and-exchange
 *
 * What a slow path has taken off a word, a frozen slab and a list, is in the thread's hand.  It goes back
 * onto a void (empty) word, of whatever vCPU the thread is on by then, or to the slab, which thaws.
 *
 *   frozen slab     on one word, or in one hand; not listed
 *   partial slab    has free objects; in its cache's list of partial slabs
 *   full slab       not listed; the first object freed into it lists it
 *
 * A slab is listed and delisted only with the cache's lock, and the exchange that makes it necessary happens
 * with that lock, too: the one that frees a thawed slab's first object, or its last allocated one.  All other
 * frees need no lock.
 *
 * While a heap profile runs, a slab with a watched object (profile.h) is never on a word, so that each call
 * for one of its objects takes the slow path.  With a mean of 512 KiB between samples that is one slab in
 * some dozens.
 *
 * Objects are linked a few at a time, when first needed, so that a new slab dirties few pages.  A free
 * object's link lies at its start, or where the cache's creator says, or behind the object where content must
 * survive a free (constructor, type-stable).  Slabs are cut by SLUB's rule, and aligned to their size.
 *
 * Called by the caches, from any thread, and by the magazine room as time passes.
 *
 * Locks.  The census lock protects the list of caches, and is held to look at words from outside; under it
 * comes a cache's lock, for its list and counts; under that the page room's.  Lock-free: words, by the rules
 * of arch.h, and slabs' own lists.
 *
 * Fork: words, links and slabs' states are true at every instant.  Lists and counts whose lock was held, or
 * whose cache was giving slabs back (which are in no list then), are rebuilt from them (linked_repair), and
 * the child has these slabs again.  What a thread had in hand is lost to the child, as a magazine would be:
 * at most one slab for each thread that was in a slow path.
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

/* The properties of a cache. */
struct linked_traits {
	const char *name;          /* the caller's, for as long as the cache lives */
	uint32_t size;             /* of an object, as requested */
	uint32_t alignment;        /* in bytes, a power of two, at least 8 */
	uint32_t link;             /* offset of the link in a free object, or LINKED_ANYWHERE */
	bool type_stable;          /* memory that was an object stays one until the cache is closed */
	void (*construct)(void *); /* NULL for none */
};
static const uint32_t LINKED_ANYWHERE = UINT32_MAX;

struct linked_cache {
	/* Constant, but for a forked child.  What the fast paths need comes first. */
	const void *map; /* page_front.map, or its counterpart in the cache's bank */
	struct arch_list list;
	uint16_t offset; /* of the cache's word */
	uint16_t objects;
	uint32_t stride;
	uint32_t usable; /* bytes of an object that the program may use */
	uint16_t batch;  /* objects linked at a time */
	uint16_t min_partial;
	const char *name;
	void *owner; /* for the room above */
	void (*construct)(void *);
	unsigned number;
	bool type_stable;
	bool under_repair; /* its list is being rebuilt */

	/* From here on in a cache line that no fast path reads; whoever embeds this struct ensures that. */
	struct cpuslab_spinlock lock;
	uint32_t releasing;               /* slabs in no list that are being given back without the lock */
	struct linked_slab *first, *last; /* partial slabs: taken from the front, added at the back */
	uint32_t partial, slabs;
	uint32_t created, freed;          /* for reports, modulo 2^32, like the next two */
	uint32_t lock_acquires, glimpsed; /* glimpsed: lock_acquires at the last tick */
#if !ARCH_HAS_PAIR
	struct cpuslab_spinlock pair_lock;
	struct linked_slab *redo; /* exchange that a forked child must finish: see replace_state */
	uint64_t redo_pair[2];
#endif
};

/* Pops an object; NULL on a miss. */
static inline __attribute__((always_inline)) void *linked_alloc(const struct linked_cache *cache)
{
	return arch_list_pop(vcpu_self, cache->map, &cache->offset, &cache->list);
}

/* Pushes an object; false on a miss. */
static inline __attribute__((always_inline)) bool linked_free(const struct linked_cache *cache, void *object)
{
	return arch_list_push(vcpu_self, cache->map, &cache->offset, &cache->list, object);
}

/* After a miss: allocates an object by the slow path; NULL when there is no memory. */
void *linked_alloc_missed(struct linked_cache *cache);
/*
 * After a miss: allocates an object without waiting for another thread, from a slab that the cache has; NULL
 * where that is impossible.  The lock is only tried, and kept until the slab is back in its list.
 */
void *linked_try_alloc_missed(struct linked_cache *cache);
/* After a miss: frees an object by the slow path; aborts if it is none of the cache's, or free already. */
void linked_free_missed(struct linked_cache *cache, void *object);

/* Allocates up to `count` objects, as many as there is memory for; returns how many. */
size_t linked_alloc_several(struct linked_cache *cache, void **objects, size_t count);
/* Frees objects of the cache; aborts like linked_free_missed. */
void linked_free_several(struct linked_cache *cache, void *const *objects, size_t count);

/* Initialises a cache; false when there are VCPU_CACHES caches, or no slab could hold such an object. */
bool linked_create(struct linked_cache *cache, const struct linked_traits *traits, void *owner);
/*
 * Destroys a cache and gives its memory back.  If objects of it are allocated, returns false and leaves the
 * cache usable.  No other thread uses the cache.
 */
bool linked_destroy(struct linked_cache *cache);
/* Takes the lists off the words of all vCPUs that can be reached, and gives empty slabs back. */
void linked_shrink(struct linked_cache *cache);
/*
 * Calls `visit` for each allocated object of a cache that no other thread uses.  Scans the whole heap.
 * Aborts where the program has overwritten a link, or freed an object twice.
 */
void linked_visit_objects(struct linked_cache *cache, void (*visit)(void *object, void *argument),
			  void *argument);

/* Returns the cache of the slab that any address lies in; NULL for none. */
struct linked_cache *linked_cache_of(const void *address);
/* Returns the start of the object of this cache that an address lies in; NULL if none was ever handed out. */
void *linked_object_of(const struct linked_cache *cache, const void *address);
/* Numbers of caches are below this; a number may have no linked cache (NULL). */
unsigned linked_caches(void);
struct linked_cache *linked_cache_number(unsigned number);
/* Bracket a census, during which no cache goes away.  Nothing may be allocated or freed in between. */
void linked_begin_census(void);
void linked_end_census(void);

/*
 * Takes lists off words that have not changed since the last call, and lets caches of which nobody has taken
 * or given back a slab since then release their empty ones; with `all`, does so for all words and caches.
 */
void linked_reclaim(bool all);

struct linked_statistics {
	uint64_t slabs, partial, allocated, hoarded, capacity, created, freed, lock_acquires;
	uint64_t alloc_misses, free_misses;
};
/* `allocated` counts the program's objects, `hoarded` those on words; approximate while others run. */
void linked_statistics(struct linked_cache *cache, struct linked_statistics *statistics);

/* Describes to a reader of this process's memory how to find every cache (see report/root.h). */
void linked_show(void (*show)(const char *name, uintptr_t value, size_t size));

/*
 * In a forked child: repairs what a dead thread left half done, or with `all` everything.  Returns whether
 * there were pages that no slab owns; the page room must then repair its runs.
 */
bool linked_repair(bool all);
bool linked_is_torn(void);

#endif
