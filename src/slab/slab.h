/* SPDX-License-Identifier: MIT */
/*
 * slab: page runs cut into objects of one size.
 *
 * Owns slab caches and their slabs.  A slab is a page run; its descriptor, with the free list, lies in
 * metadata, never in the run.  The free list is an array of indexes, one for each object: 8 bits wide for up
 * to 255 objects, else 16.
 *
 *   next[i] == ALLOCATED   object i is allocated (in use, or in a magazine)
 *   next[i] == i           object i is free and the last of the list
 *   next[i] == j           object i is free, and j after it
 *
 * Objects from `bump` on were never handed out: neither they nor their indexes have been touched.
 *
 * Partial slabs lie in bins by fullness; a refill takes from the fullest, lowest index first, so that sparse
 * slabs drain.  One empty slab is kept for each cache whose slabs have several objects, or more of them while
 * its depot asks for it (slab_cache_keep); the others return to the page room.  Where the cache keeps its
 * memory, to its type or since it is hardened, all of them count as the sparsest.
 *
 * A page of a partial slab in which no object is allocated may go back to the system while it stays the
 * slab's: it is hollow, until an object in it is handed out (slab_hollow).
 *
 * A slab's untouched objects go to the vCPU that made it, while there is memory for others to make theirs: so
 * what one thread allocates as it grows lies together, on pages that the system gave it one after the other,
 * and not object by object between another's.  Those that have come back go to whoever asks.
 *
 * The slabs of a debugged cache hold slots (check/zones.h), each with a record behind the index array, and
 * all of them are in some list, so that they can be visited while they are in use.
 *
 * An object of a hardened cache has a mark (page_mark of its first byte; those of its other bytes are zero),
 * which says whether the program has it:
 *
 *   SLAB_NEVER_OUT   not since its memory came from the system: all its bytes are zero
 *   SLAB_BACK        freed; all its bytes are zero, unless somebody wrote to them since
 *   any other        the program has it, and so many of its bytes, at the end, are not the program's
 *
 * Where the program wants to find in an object what it left there (slab_keeps_content), only what lies behind
 * its bytes says anything of a free one.
 *
 * Its slabs keep their addresses for good, their objects are handed out in random order, and a page without
 * access ends each of them.  When the cache is destroyed nobody else gets these addresses.
 *
 * A constructor runs once for each object when its slab is made, without any lock, since it may allocate;
 * nothing here writes into an object, so that what it made is there whenever the object is handed out.
 *
 * Called by the depot, in batches, from any thread.  Locks: each slab's own byte, a pagelock, for its free
 * list and what counts with it; slab_cache.lock for lists and for which list a slab is in, which the byte's
 * user flags tell; under that the page room's locks.  A slab's lock comes before its cache's; with the
 * cache's a slab is only tried.  Objects are taken from a slab with both locks, and given back with its own
 * alone, as long as it stays in its bin; many at once with the cache's lock alone, where nobody else is at
 * its slabs (SLAB_ALONE).  Lock-free: slab_of_object() and the index arithmetic, for an object
 * that the caller holds allocated; slab_cache_of() likewise; and pushing a slab on `made`.  Before anyone can
 * free an object of such a slab the slab is on that stack, so that whoever finds it in no bin, and locks the
 * cache, has taken it over by then.
 *
 * Fork: next[], bump and the page map are the truth, each changed by single stores; lists, counts and locks
 * follow (slab_repair).
 */
#ifndef CPUSLAB_SLAB_H
#define CPUSLAB_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/object.h"
#include "cpuslab/lock.h"

enum { SLAB_BINS = 8 };
/* In slab_cache.unlocked: one of those that are counted has all slabs, together with the cache's lock. */
#define SLAB_ALONE (1u << 31)
enum slab_mark { SLAB_NEVER_OUT, SLAB_BACK };

struct slab;

/* What a cache is to be like. */
struct slab_traits {
	const char *name;   /* stays the caller's */
	uint32_t size;      /* from the start of an object to the next, a multiple of 8 */
	uint32_t alignment; /* of slabs beyond a page, in pages; 0 for none */
	uint16_t id;        /* what the page map says of its pages */
	bool type_stable;   /* memory that was an object stays one until the cache is closed */
	bool guarded; /* some in place of its objects: frees into chosen pages are seen (guard/guard.h) */
	bool hardened;
	bool untouchable;          /* hardened, and nobody may access its objects, which have no bytes */
	void (*construct)(void *); /* NULL for none */
	struct checks *checks;     /* NULL unless its objects are debugged; they construct, then */
};

/* Whether what a program leaves in an object must be there when it is handed out again. */
static inline bool slab_keeps_content(const struct slab_traits *traits)
{
	return traits->construct || traits->type_stable;
}

/* What changes under the lock has lines of its own. */
struct slab_cache { /* NOLINT(clang-analyzer-optin.performance.Padding) */
	struct slab_traits traits;
	uint64_t bin_scale;  /* in_use * bin_scale >> 32 is in_use * SLAB_BINS / objects */
	uint32_t reciprocal; /* offset * reciprocal >> 32 is the index */
	uint16_t objects;    /* in a slab */
	uint16_t pages;      /* of a slab, with the one that ends it if hardened */
	bool wide;           /* indexes of 16 bits */
	bool under_repair;   /* in a forked child: its lists are being made anew */

	/* Stacks that are pushed without the lock, rarely. */
	struct slab *made;   /* by slab_try_alloc; whoever has the lock takes them over */
	struct slab *unused; /* descriptors that got no run */

	struct cpuslab_spinlock lock __attribute__((aligned(64)));
	struct slab *partial[SLAB_BINS + 1]; /* by eighths of objects allocated; the full ones if debugged */
	struct slab *empty;                  /* those that are kept, the last one first */
	uint32_t slabs, full_slabs, kept_empty;
	uint32_t spares;    /* so many are kept besides one; without the lock */
	uint32_t unlocked;  /* calls under way that change slabs without the lock; and SLAB_ALONE */
	uint64_t allocated; /* objects, those in magazines included */
	uint64_t needed;    /* the most of them at once since the last look at what is not */
	uint64_t hollow;    /* pages of its slabs that were given back; changed by single additions */
	uint64_t barren; /* pages' worth of free objects beside allocated ones, as the last walk by age saw */
	uint64_t created, freed, lock_acquires;
};

void slab_cache_init(struct slab_cache *cache, const struct slab_traits *traits);

/*
 * Takes up to `count` objects into objects[0..], the lowest addresses last, so that a magazine filled with
 * them is popped upwards.  Returns how many; none only when the system has no more memory.  Calls the cache's
 * constructor.
 */
unsigned slab_alloc_batch(struct slab_cache *cache, void **objects, unsigned count);

/*
 * One object without waiting for another thread; NULL where that cannot be.  Calls the cache's constructor.
 * Where no slab has an object it makes one that only its maker knows, takes the object, and leaves the slab
 * to whoever has the lock next.
 */
void *slab_try_alloc(struct slab_cache *cache);

/*
 * Gives objects of this cache back, and returns how many slabs that gave to the page room.  Aborts on one
 * that is not allocated, or not the start of an object.
 */
unsigned slab_free_batch(struct slab_cache *cache, void *const *objects, unsigned count);

/*
 * Gives the kept empty slabs back to the page room; of a hardened cache, the memory of all empty ones to the
 * system.  With a constructor these slabs leave the cache for that, and nobody has their addresses again.
 */
void slab_cache_shrink(struct slab_cache *cache);

/*
 * From now on so many empty slabs are kept besides one; those that are more go back to the page room.  A
 * cache that keeps its memory to its type has none of these.
 */
void slab_cache_keep(struct slab_cache *cache, uint32_t spares);
/* The same for no spares, but no more than `most` slabs go.  Returns how many. */
uint32_t slab_cache_let_go(struct slab_cache *cache, uint32_t most);

/*
 * Gives pages in which no object is allocated back to the system, and leaves them to their slabs: `most` of
 * them and few more, where each run of them counts as SLAB_HOLLOW_RUN at least, so that the system calls have
 * a bound, too, or where one call does for many as SLAB_HOLLOW_PART.  Returns what counts.  One thread at a
 * time.
 *
 *   SLAB_HOLLOW_UNNEEDED  for objects that nobody has needed since the last look, when there are many;
 *                         sparse slabs first
 *   SLAB_HOLLOW_EBB       for free objects that are more than those allocated, when there are many; slabs in
 *                         which a look found nothing are passed over until objects come or go there
 *   SLAB_HOLLOW_ALL       all there are
 */
enum { SLAB_HOLLOW_RUN = 8, SLAB_HOLLOW_PART = 2 };
enum slab_hollowing { SLAB_HOLLOW_UNNEEDED, SLAB_HOLLOW_EBB, SLAB_HOLLOW_ALL };
size_t slab_hollow(struct slab_cache *cache, enum slab_hollowing which, size_t most);

/*
 * Gives all memory back, if no object is allocated; else changes nothing.  Returns how many are.  Nobody else
 * uses the cache.
 */
uint64_t slab_cache_close(struct slab_cache *cache);

/*
 * Calls `visit` for each allocated object of a cache that nobody else uses; takes time with the whole heap.
 */
void slab_visit_objects(const struct slab_cache *cache, void (*visit)(void *object, void *argument),
			void *argument);

/*
 * The cache whose slab an address of the heap lies in, on a page of a slab of this room; NULL for none.  The
 * caller need not hold an object there.
 */
struct slab_cache *slab_cache_of(const void *address);

/* Whether `object` is an allocated object of this cache (or in a magazine of it), for checks off the fast
 * path. */
bool slab_is_object(const struct slab_cache *cache, const void *object);
/* For a look of that kind soon: the processor fetches the descriptor's beginning, and most of the marks. */
void slab_fetch(const void *object);

/* The start of the object of this cache that an address lies in; NULL for none that is allocated. */
void *slab_object_of(const struct slab_cache *cache, const void *address);
/*
 * For a debugged cache: the slot that an address of an allocated object, or of one that is just being freed,
 * lies in; false for none of this cache.
 */
bool slab_place(const struct slab_cache *cache, const void *address, struct check_place *place);
/* For a debugged cache in use: visits each of its slots, free or not, under the lock. */
void slab_walk(struct slab_cache *cache, void (*visit)(const struct check_place *place, void *argument),
	       void *argument);

/*
 * Marks each page of the slab at `address` as PAGE_WATCHED or not, as `watched` says of the objects that
 * start there; `before` tells it what the page was.  Returns how many pages were seen to: of the whole slab,
 * or the one page where no slab of the cache starts (any more).
 */
size_t slab_watch_pages(struct slab_cache *cache, const void *address,
			bool (*watched)(const char *first, unsigned count, bool before));

/* Marks one page as PAGE_WATCHED, if it belongs to a slab of the cache that is in use. */
void slab_watch_page(struct slab_cache *cache, const void *address);

struct slab_statistics {
	/* purged: slabs that keep nothing but their addresses; hollow: pages that were given back */
	uint64_t slabs, purged, kept_empty, hollow, allocated, capacity, created, freed, lock_acquires;
};
void slab_statistics(struct slab_cache *cache, struct slab_statistics *statistics);

/* Names the parts of a slab's descriptor for a reader of this process's memory (see report/root.h). */
void slab_show(void (*show)(const char *name, uintptr_t value, size_t size));

/*
 * In a forked child, where only the caller's thread is left.  For each cache slab_repair_begin, which tells
 * whether there is something to repair, as it does in any case with `all`, and then forgets all lists; then,
 * if any has, slab_repair_pages with a function that finds a page id's cache (NULL for none).  Returns
 * whether pages were found that no slab owns; the page room must then repair its runs.
 */
bool slab_repair_begin(struct slab_cache *cache, bool all);
bool slab_repair_pages(struct slab_cache *(*cache_of_id)(uint16_t id));

#endif
