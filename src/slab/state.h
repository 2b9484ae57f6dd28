/* SPDX-License-Identifier: MIT */
/*
 * slab/state: a slab's states, lists and locks, for the files of the slab room alone.  What others may see of
 * a slab is in descriptor.h, and the rules are in slab.h.
 *
 *   slab.c         makes slabs, allocates and frees objects, and gives slabs back
 *   hollow_walk.c  gives back pages without an allocated object
 *   look.c         answers questions about objects and slabs
 *   hardened.c     what slabs of hardened caches have besides
 *   repair.c       rebuilds all of this in a forked child
 *
 * The cache's lock protects a slab's flags and bin; its own lock, its free list and `in_use`.
 */
#ifndef CPUSLAB_SLAB_STATE_H
#define CPUSLAB_SLAB_STATE_H

#include "slab/descriptor.h"
#include "slab/slab.h"

enum {
	SLAB_NO_INDEX = UINT16_MAX,
	SLAB_FULL_BIN = SLAB_BINS, /* in debugged caches alone */
};

/*
 * Flags, like `bin`, change only with the cache's lock.  A thread that has the slab's lock may read them
 * without it (is_settled): what a slab in the wrong bin needs is decided again under the cache's lock, and no
 * other thread can make a right bin wrong.
 */
enum slab_flags {
	SLAB_LISTED = 0x02,
	SLAB_MAKING = 0x04, /* not the cache's yet: being constructed, or waiting on the stack `made` */
	SLAB_PURGED = 0x08, /* of a hardened cache: its pages take no memory */
	SLAB_ENDED = 0x10,  /* of a hardened cache: a page without access ends it */
};

/* ---- locks --------------------------------------------------------------------------------------------- */

/* Adopts the slabs that slab_try_alloc has made.  With the cache's lock. */
void slab_adopt_made(struct slab_cache *cache);

static inline void slab_lock_cache(struct slab_cache *cache)
{
	cpuslab_spin_lock(&cache->lock);
	cache->lock_acquires++;
	slab_adopt_made(cache);
}

/* Tries a slab's own lock: the holder of the cache's lock must not wait for it. */
bool slab_try_lock(struct slab *slab);

/*
 * Bracket changes to slabs and counts without the cache's lock, so that a forked child knows that some were
 * under way.  slab_begin_unlocked returns whether another thread has all slabs (begin_alone): then the caller
 * must acquire the cache's lock before it locks any.
 */
static inline bool slab_begin_unlocked(struct slab_cache *cache)
{
	return __atomic_fetch_add(&cache->unlocked, 1, __ATOMIC_ACQ_REL) & SLAB_ALONE;
}

static inline void slab_end_unlocked(struct slab_cache *cache)
{
	__atomic_fetch_sub(&cache->unlocked, 1, __ATOMIC_ACQ_REL);
}

/* ---- bins: with the cache's lock --------------------------------------------------------------------- */

static inline void slab_enter_bin(struct slab_cache *cache, struct slab *slab, unsigned bin)
{
	__atomic_store_n(&slab->bin, (uint8_t)bin, __ATOMIC_RELAXED);
	slab->previous = NULL;
	slab->next = cache->partial[bin];
	if (slab->next)
		slab->next->previous = slab;
	cache->partial[bin] = slab;
}

static inline void slab_leave_bin(struct slab_cache *cache, struct slab *slab)
{
	if (slab->next)
		slab->next->previous = slab->previous;
	if (slab->previous)
		slab->previous->next = slab->next;
	else
		cache->partial[slab->bin] = slab->next;
}

static inline unsigned slab_in_use(const struct slab *slab)
{
	return __atomic_load_n(&slab->in_use, __ATOMIC_RELAXED);
}

/* ---- the free list: with the slab's lock ------------------------------------------------------------- */

static inline void slab_set_index(struct slab *slab, size_t i, size_t value, bool wide)
{
	if (wide)
		slab->index.wide[i] = (uint16_t)value;
	else
		slab->index.narrow[i] = (uint8_t)value;
}

static inline void slab_link_free(struct slab *slab, unsigned i, bool wide)
{
	slab_set_index(slab, i, slab->head == SLAB_NO_INDEX ? i : slab->head, wide);
	slab->head = (uint16_t)i;
}

/* ---- records, of a debugged cache -------------------------------------------------------------------- */

/* Where a descriptor's records begin, if it has any. */
static inline size_t slab_records_start(const struct slab_cache *cache)
{
	return (slab_index_end(cache) + sizeof(uint64_t) - 1) & -sizeof(uint64_t);
}

static inline struct check_place slab_place_of(const struct slab_cache *cache, const struct slab *slab,
					       unsigned i)
{
	const struct slab_traits *traits = &cache->traits;

	return (struct check_place){
		.slot = (unsigned char *)slab->base + (size_t)i * traits->size,
		.record = (struct check_record *)((char *)slab + slab_records_start(cache) +
						  (size_t)i * traits->checks->record_bytes),
		.slab = slab->base,
		.objects = cache->objects,
		.used = (uint16_t)slab_in_use(slab),
	};
}

/* ---- slabs that go ------------------------------------------------------------------------------------- */

/*
 * Gives back slabs, linked through `next`, that are in no list any more; returns how many.  Without the lock,
 * but between slab_begin_unlocked and slab_end_unlocked, so that a forked child finds those that remain.
 */
unsigned slab_release(const struct slab_cache *cache, struct slab *slab);

/* The same, after giving up the lock. */
static inline unsigned slab_unlock_and_release(struct slab_cache *cache, struct slab *surplus)
{
	slab_begin_unlocked(cache);
	cpuslab_spin_unlock(&cache->lock);
	unsigned released = slab_release(cache, surplus);

	slab_end_unlocked(cache);
	return released;
}

/* ---- hardened mode ------------------------------------------------------------------------------------- */

/* The number of vCPUs that have slabs of their own; the others share with these. */
unsigned slab_homes(void);
/* Prepares the objects of a slab that nobody else knows yet. */
void slab_harden(struct slab_cache *cache, struct slab *slab, bool zeroed);
/*
 * Takes away access, once a repair can find the slab: in a forked child the pages of a slab that nobody knows
 * become a free run, which must be writable.
 */
void slab_forbid(const struct slab_cache *cache, struct slab *slab);
/* slab_cache_shrink of a hardened cache. */
void slab_shrink_hardened(struct slab_cache *cache);
/* A purged slab of a hardened cache takes memory again, or goes. */
void slab_not_purged(const struct slab_cache *cache);

#endif
