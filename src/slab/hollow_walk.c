/* SPDX-License-Identifier: MIT */
/*
 * slab/hollow_walk: gives back pages of a cache's slabs in which no object is allocated, and decides when
 * that is worth a walk.  Its interface is slab_hollow, in slab.h; hollow.h does the work on one slab.
 */
#include <assert.h>

#include "os/os.h"
#include "page/page.h"
#include "slab/hollow.h"
#include "slab/state.h"

/* Pages' worth of free objects that deserve a walk; objects per page with which few pages have none. */
enum { HOLLOW_LEAST = 32, HOLLOW_SHARING = 2 };

/*
 * Returns how many pages' worth of free objects were not needed since the last look, hollow pages deducted.
 * Looks without the lock: objects taken at this instant show at the next look.
 */
static size_t look_at_need(struct slab_cache *cache)
{
	uint64_t needed = __atomic_load_n(&cache->needed, __ATOMIC_RELAXED);
	uint64_t there = (uint64_t)__atomic_load_n(&cache->slabs, __ATOMIC_RELAXED) * cache->objects;
	size_t hollow = __atomic_load_n(&cache->hollow, __ATOMIC_RELAXED);
	size_t unneeded = there > needed ? (size_t)(there - needed) * cache->traits.size >> PAGE_SHIFT : 0;

	__atomic_store_n(&cache->needed, __atomic_load_n(&cache->allocated, __ATOMIC_RELAXED),
			 __ATOMIC_RELAXED);
	return unneeded > hollow ? unneeded - hollow : 0;
}

/*
 * Whether so many pages' worth deserve a walk by age.  After a walk that found few pages it waits until there
 * is more.  An ebb does not wait: after allocations and frees the same amount may lie elsewhere.
 */
static bool is_worth_a_walk(struct slab_cache *cache, size_t unneeded)
{
	if (unneeded < cache->barren)
		cache->barren = unneeded;
	return unneeded >= cache->barren + cache->barren / 4 + HOLLOW_LEAST;
}

/*
 * A walk over partial slabs, sparsest first.  It locks some, releases the cache's lock, and gives their pages
 * back under their own locks: meanwhile allocations pass these slabs over, and frees into them wait.  The
 * last one stays locked, and so in its bin, until the walk has continued from it.
 */
struct hollowing {
	unsigned bin;
	size_t wanted, left; /* pages still wanted; cost that may still be incurred */
	bool refused;        /* by the system */
	bool passes;         /* over slabs in which a look found no page, and that have not changed since */
	unsigned count;
	struct slab *last;
	struct hollow_part {
		struct slab *slab;
		uint32_t pages;
	} parts[32];
};

static struct slab *next_partial(const struct slab_cache *cache, struct hollowing *walk, struct slab *slab)
{
	slab = slab ? slab->next : cache->partial[walk->bin];
	while (!slab && ++walk->bin < SLAB_BINS)
		slab = cache->partial[walk->bin];
	return slab;
}

/* Locks the next slabs that have such pages; returns whether there may be more.  With the cache's lock. */
static bool gather(const struct slab_cache *cache, struct hollowing *walk)
{
	enum { MOST = sizeof walk->parts / sizeof *walk->parts };
	struct slab *slab = walk->last;

	/* `looked` must be able to hold any in_use. */
	assert(cache->pages == 1 || cache->objects <= UINT8_MAX);
	walk->count = 0;
	while (walk->count < MOST && (slab = next_partial(cache, walk, slab))) {
		if ((walk->passes && slab->looked == (uint8_t)slab_in_use(slab)) || !slab_try_lock(slab))
			continue;
		uint32_t pages = hollow_pages(cache, slab);

		if (pages) {
			walk->parts[walk->count++] = (struct hollow_part){slab, pages};
		} else {
			slab->looked = (uint8_t)slab_in_use(slab);
			cpuslab_pagelock_unlock(&slab->lock);
		}
	}
	if (walk->last)
		cpuslab_pagelock_unlock(&walk->last->lock);
	walk->last = slab;
	return slab;
}

static bool is_over(const struct hollowing *walk)
{
	return !walk->wanted || !walk->left || walk->refused;
}

static size_t less(size_t from, size_t what)
{
	return from > what ? from - what : 0;
}

/* The cost of a row of so many pages. */
static size_t cost_of(unsigned pages)
{
	return pages > SLAB_HOLLOW_RUN ? pages : SLAB_HOLLOW_RUN;
}

/* Gives back rows that together cost no more than what is left, or slightly more. */
static void give_back(struct slab_cache *cache, struct hollowing *walk, const struct hollow_row *rows,
		      unsigned count)
{
	unsigned done = hollow_give_back(cache, rows, count);

	assert(done <= count);
	for (unsigned i = 0; i < done; i++) {
		unsigned pages = (unsigned)__builtin_popcount(rows[i].pages);

		walk->left = less(walk->left, cost_of(pages));
		walk->wanted = less(walk->wanted, pages);
	}
	walk->refused = done < count;
	/* Any refusal costs one call: so a caller that resumes where it met its bound gets to the end. */
	if (walk->refused)
		walk->left = less(walk->left, SLAB_HOLLOW_RUN);
}

/* Gives back rows of the locked slabs, as many as fit into each system call. */
static void hollow_parts(struct slab_cache *cache, struct hollowing *walk)
{
	struct hollow_row rows[OS_RANGES];
	size_t pages = 0, cost = 0;
	unsigned count = 0;

	for (unsigned i = 0; i < walk->count && !is_over(walk); i++)
		while (walk->parts[i].pages && !is_over(walk)) {
			rows[count] = (struct hollow_row){walk->parts[i].slab,
							  hollow_first_row(&walk->parts[i].pages)};
			unsigned own = (unsigned)__builtin_popcount(rows[count++].pages);

			pages += own;
			cost += cost_of(own);
			if (count < OS_RANGES && pages < walk->wanted && cost < walk->left)
				continue;
			give_back(cache, walk, rows, count);
			pages = cost = count = 0;
		}
	if (count)
		give_back(cache, walk, rows, count);
}

/* Out of line, away from the code that runs at each tick, since few ticks walk. */
static __attribute__((noinline)) void hollow_walk(struct slab_cache *cache, struct hollowing *walk)
{
	bool more = true;

	slab_begin_unlocked(cache);
	while (more && !is_over(walk)) {
		slab_lock_cache(cache);
		more = gather(cache, walk);
		cpuslab_spin_unlock(&cache->lock);
		hollow_parts(cache, walk);
		for (unsigned i = 0; i < walk->count; i++)
			if (walk->parts[i].slab != walk->last)
				cpuslab_pagelock_unlock(&walk->parts[i].slab->lock);
	}
	if (walk->last)
		cpuslab_pagelock_unlock(&walk->last->lock);
	slab_end_unlocked(cache);
}

/*
 * Returns by how many pages' worth free objects exceed allocated ones, hollow pages deducted.  None while
 * allocated objects are so many that most pages have one: later frees raise the excess.
 */
static size_t look_at_ebb(const struct slab_cache *cache)
{
	const uint64_t size = cache->traits.size;
	uint64_t allocated = __atomic_load_n(&cache->allocated, __ATOMIC_RELAXED);
	uint64_t there = (uint64_t)__atomic_load_n(&cache->slabs, __ATOMIC_RELAXED) * cache->objects;
	size_t hollow = __atomic_load_n(&cache->hollow, __ATOMIC_RELAXED);

	if (there < 2 * allocated || there * size < allocated * PAGE_BYTES / HOLLOW_SHARING)
		return 0;
	return less((there - 2 * allocated) * size >> PAGE_SHIFT, hollow);
}

size_t slab_hollow(struct slab_cache *cache, enum slab_hollowing which, size_t most)
{
	struct hollowing walk = {.wanted = SIZE_MAX, .left = most, .passes = which == SLAB_HOLLOW_EBB};

	if (!hollow_is_for(cache))
		return 0;
	if (which == SLAB_HOLLOW_EBB) {
		walk.wanted = look_at_ebb(cache);
		if (walk.wanted < HOLLOW_LEAST)
			return 0;
	} else if (which == SLAB_HOLLOW_UNNEEDED) {
		walk.wanted = look_at_need(cache);
		if (!is_worth_a_walk(cache, walk.wanted))
			return 0;
	}
	hollow_walk(cache, &walk);
	/* After a complete walk, what it did not find is not there. */
	if (which == SLAB_HOLLOW_UNNEEDED)
		cache->barren = walk.left ? walk.wanted : 0;
	return most - walk.left;
}
