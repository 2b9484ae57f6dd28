/* SPDX-License-Identifier: MIT */
/*
 * slab: page runs cut into objects of one size.
 *
 * Owns slab caches and their slabs.  A slab is a page run.  Its descriptor, which holds the free list, lies
 * in metadata, never in the run.  The free list is an array of one index per object, 8 bits wide for up to
 * 255 objects, else 16.
 *
 *   next[i] == ALLOCATED   object i is allocated: the program has it, or a magazine
 *   next[i] == i           object i is free and the last of the list
 *   next[i] == j           object i is free and j follows it
 *
 * Objects from `bump` on are untouched: never handed out, and neither they nor their indexes were written to.
 *
 * Partial slabs lie in bins by fullness.  A refill takes from the fullest, so that sparse slabs drain.  A
 * cache whose slabs hold several objects keeps one empty slab; other empty slabs return to the page room.
 * Caches that keep their slabs for good, since they are type-stable or hardened, leave empty ones in the
 * sparsest bin.
 *
 * Hollow pages.  A page of a partial slab in which no object is allocated may go back to the system while its
 * addresses stay the slab's.  It is hollow until an object in it is handed out (slab_hollow).
 *
 * Home.  A slab with untouched objects serves only the vCPU that made it, while there is memory for other
 * vCPUs to make theirs.  So what one thread allocates as it grows lies together, on pages that the system
 * supplied in sequence.  Once all its objects have been handed out, a slab serves every vCPU.
 *
 * Debugged caches.  Their slabs hold slots (check/zones.h), each with a record behind the index array.  All
 * of their slabs, full ones too, are in some list, so that slab_walk can visit them while they are in use.
 *
 * Hardened caches.  Each object has a mark, which tells whether the program has it.  That of a small one is
 * page_mark of its first byte, and the marks of its other bytes are zero.  Above SLAB_MARKED_BY_ADDRESS bytes
 * each would take most of a page of its own, and so marks lie in the slab's descriptor (slab_mark).
 *
 *   SLAB_NEVER_OUT   not handed out since its memory came from the system: all its bytes are zero
 *   SLAB_BACK        freed: all its bytes are zero, unless somebody has written to them since
 *   up to SLAB_FREE_MOST   the same, of an object with resident pages: SLAB_BACK + n where that are at most
 * 2^n any other        the program has it; the number of bytes at its end that are not the program's
 *
 * Where content must survive a free (slab_keeps_content), only the bytes behind the program's are checked in
 * a free object.  Slabs keep their addresses for good, hand objects out in random order, and end in a page
 * without access.  After the cache is destroyed these addresses are never used again.
 *
 * A constructor runs once for each object, when its slab is made, and without any lock since it may allocate.
 * Nothing here writes into an object, so that its result is there each time the object is handed out.
 *
 * Called by the depot, which moves objects in batches (magazines, see depot.h), from any thread.
 *
 * Locks.  Each slab's own byte, a pagelock, protects its free list and the counts that go with it.
 * slab_cache.lock protects lists, and which list a slab is in (the user flags of that byte, and `bin`).  The
 * page room's locks come under both.  A slab's lock comes before its cache's; with the cache's lock held a
 * slab's is only tried.  Taking objects from a slab needs both.  Giving them back needs the slab's lock alone
 * as long as the slab stays in its bin, or for a large batch the cache's lock alone, while no other thread is
 * at its slabs (SLAB_ALONE).
 *
 * Lock-free: slab_of_object() and the index arithmetic, for an object that the caller holds allocated;
 * slab_cache_of(), for any address; and pushing a slab on `made`.  A slab is on that stack before anyone can
 * free an object of it.  So a thread that finds the slab in no bin and locks the cache has thereby adopted
 * it.
 *
 * Fork: next[], bump and the page map are the truth, and each changes by single stores; lists, counts and
 * locks are rebuilt from them (slab_repair_pages).
 */
#ifndef CPUSLAB_SLAB_H
#define CPUSLAB_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"
#include "check/object.h"
#include "cpuslab/lock.h"

enum { SLAB_BINS = 8 };
/* A bit of slab_cache.unlocked: the holder of the cache's lock, one of the calls counted, has all slabs. */
#define SLAB_ALONE (1u << 31)
enum { SLAB_MARKED_BY_ADDRESS = 4096 };
enum slab_mark { SLAB_NEVER_OUT, SLAB_BACK, SLAB_FREE_MOST = 7 };
/* Sum of these powers of two for all free objects; changed by atomic additions. */
extern ARCH_INTERNAL uint64_t slab_waiting_pages;
/* The part of it that an object has whose mark, at most SLAB_FREE_MOST, this is. */
static inline uint64_t slab_waits_by(uint16_t mark)
{
	return mark > SLAB_BACK ? 1ul << (mark - SLAB_BACK) : 0;
}

struct slab;

/* The properties of a cache. */
struct slab_traits {
	const char *name;   /* the caller's, for as long as the cache lives */
	uint32_t size;      /* distance between objects, a multiple of 8 */
	uint32_t alignment; /* of slabs beyond a page, in pages; 0 for none */
	uint16_t id;        /* page map entry of its pages */
	bool type_stable;   /* memory that was an object stays one until the cache is closed */
	bool guarded; /* subject to guarded sampling: frees into chosen pages are seen (guard/guard.h) */
	bool hardened;
	bool untouchable;          /* hardened, with objects of no bytes, which nobody may access */
	void (*construct)(void *); /* NULL for none */
	struct checks *checks;     /* NULL unless its objects are debugged; then these construct, too */
};

/* Whether an object's content must survive a free until the object is handed out again. */
static inline bool slab_keeps_content(const struct slab_traits *traits)
{
	return traits->construct || traits->type_stable;
}

/* What changes under the lock has cache lines of its own. */
struct slab_cache { /* NOLINT(clang-analyzer-optin.performance.Padding) */
	struct slab_traits traits;
	uint64_t bin_scale;  /* in_use * bin_scale >> 32 is in_use * SLAB_BINS / objects */
	uint32_t reciprocal; /* offset * reciprocal >> 32 is the index */
	uint16_t objects;    /* per slab */
	uint16_t pages;      /* per slab, with a hardened one's last page, without access */
	bool wide;           /* 16-bit indexes */
	bool under_repair;   /* in a forked child: its lists are being rebuilt */

	/* Stacks that are pushed without the lock, rarely. */
	struct slab *made;   /* by slab_try_alloc; the next holder of the lock adopts them */
	struct slab *unused; /* descriptors for which there was no run */

	struct cpuslab_spinlock lock __attribute__((aligned(64)));
	struct slab *partial[SLAB_BINS + 1]; /* by eighths of objects allocated; full ones if debugged */
	struct slab *empty;                  /* empty slabs that are kept, LIFO */
	uint32_t slabs, full_slabs, kept_empty;
	uint32_t unlocked;  /* calls under way that change slabs without the lock; and SLAB_ALONE */
	uint64_t allocated; /* objects, those in magazines included */
	uint64_t needed;    /* peak of `allocated` since the last look by age (SLAB_HOLLOW_UNNEEDED) */
	uint64_t hollow;    /* pages of its slabs that are hollow; changed by atomic additions */
	uint64_t barren;    /* pages' worth of unneeded objects for which that look found no page */
	uint64_t created, freed, lock_acquires;
};

void slab_cache_init(struct slab_cache *cache, const struct slab_traits *traits);

/*
 * Takes up to `count` objects into objects[0..], untouched ones with the lowest address last, so that a
 * magazine filled with them is popped upwards.  Returns how many; 0 only when the system has no more memory.
 * Calls the cache's constructor.
 */
unsigned slab_alloc_batch(struct slab_cache *cache, void **objects, unsigned count);

/*
 * Allocates one object without waiting for another thread; NULL where that is impossible.  Calls the cache's
 * constructor.  Where no slab has an object it makes a slab that no other thread knows of, takes the object,
 * and leaves the slab to the next holder of the cache's lock.
 */
void *slab_try_alloc(struct slab_cache *cache);

/*
 * Frees objects of this cache, and returns how many slabs went to the page room in consequence.  Aborts on
 * one that is not allocated, or not the start of an object.
 */
unsigned slab_free_batch(struct slab_cache *cache, void *const *objects, unsigned count);

/*
 * Gives all kept empty slabs back to the page room.  Of a hardened cache: gives the memory of all empty slabs
 * to the system, or with a constructor removes these slabs from the cache, their addresses never to be used
 * again.  A type-stable cache keeps everything.
 */
void slab_cache_shrink(struct slab_cache *cache);

/*
 * Gives pages in which no object is allocated back to the system; their slabs keep them.  Walks sparse slabs
 * first, and stops after `most` pages, or slightly more.  A run of pages counts as SLAB_HOLLOW_RUN at least,
 * so that system calls are bounded, too.  Returns that count.  One thread at a time.
 *
 *   SLAB_HOLLOW_UNNEEDED  by age: as many pages as the objects fill that were not needed since the last such
 *                         walk, if they are many
 *   SLAB_HOLLOW_EBB       as the program's heap shrinks (depot/ebb.h): as many pages as free objects fill
 *                         beyond allocated ones, if they are many; passes over slabs in which a look found no
 *                         page and that have not changed since
 *   SLAB_HOLLOW_ALL       all there are
 */
enum { SLAB_HOLLOW_RUN = 8 };
enum slab_hollowing { SLAB_HOLLOW_UNNEEDED, SLAB_HOLLOW_EBB, SLAB_HOLLOW_ALL };
size_t slab_hollow(struct slab_cache *cache, enum slab_hollowing which, size_t most);

/*
 * Gives all memory back if no object is allocated, else changes nothing.  Returns how many are allocated.  No
 * other thread uses the cache.
 */
uint64_t slab_cache_close(struct slab_cache *cache);

/* Calls `visit` for each allocated object of a cache that no other thread uses.  Scans the whole heap. */
void slab_visit_objects(const struct slab_cache *cache, void (*visit)(void *object, void *argument),
			void *argument);

/*
 * Returns the cache of the slab that an address of the heap lies in; NULL where the page is not of a slab of
 * this room.  The caller need not hold an object there.
 */
struct slab_cache *slab_cache_of(const void *address);

/* Whether `object` is an allocated object of this cache, or in a magazine of it.  For checks off the fast
 * path. */
bool slab_is_object(const struct slab_cache *cache, const void *object);
/* Prefetches for slab_is_object the beginning of the descriptor, which has most of the indexes. */
void slab_fetch(const void *object);

/* Returns the start of the allocated object of this cache that an address lies in; NULL for none. */
void *slab_object_of(const struct slab_cache *cache, const void *address);
/*
 * For a debugged cache: finds the slot that an address lies in, of an object that is allocated or just being
 * freed; false for none of this cache.
 */
bool slab_place(const struct slab_cache *cache, const void *address, struct check_place *place);
/* For a debugged cache in use: visits each of its slots, free or not, with the cache's lock. */
void slab_walk(struct slab_cache *cache, void (*visit)(const struct check_place *place, void *argument),
	       void *argument);

/*
 * Marks each page of the slab at `address` as PAGE_WATCHED or not, as `watched` decides from the objects that
 * start in it; `before` is the page's present state.  Returns how many pages this settles: those of the whole
 * slab, or 1 where no slab of the cache starts (any more).
 */
size_t slab_watch_pages(struct slab_cache *cache, const void *address,
			bool (*watched)(const char *first, unsigned count, bool before));

/* Marks one page as PAGE_WATCHED if it belongs to a slab of the cache that has objects in use. */
void slab_watch_page(struct slab_cache *cache, const void *address);

struct slab_statistics {
	/* purged: slabs that keep their addresses but no memory; hollow: pages given back of other slabs */
	uint64_t slabs, purged, kept_empty, hollow, allocated, capacity, created, freed, lock_acquires;
};
void slab_statistics(struct slab_cache *cache, struct slab_statistics *statistics);

/* Describes a slab's descriptor to a reader of this process's memory (see report/root.h). */
void slab_show(void (*show)(const char *name, uintptr_t value, size_t size));

/*
 * In a forked child, where only the caller's thread is left: whether another one left a cache half changed,
 * and the repair.  First call slab_repair_begin for each cache: it returns whether the cache needs repair,
 * always true with `all`, and if so forgets its lists.  If any does, then call slab_repair_pages with a
 * function that maps a page id to its cache (NULL for none).  It returns whether there were pages that no
 * slab owns; the page room must then repair its runs.
 */
static inline bool slab_is_torn(const struct slab_cache *cache)
{
	return cpuslab_spin_is_locked(&cache->lock) || cache->unlocked;
}

bool slab_repair_begin(struct slab_cache *cache, bool all);
bool slab_repair_pages(struct slab_cache *(*cache_of_id)(uint16_t id));

#endif
