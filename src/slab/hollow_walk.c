/* SPDX-License-Identifier: MIT */
/*
 * slab/hollow_walk: gives back the pages of a cache's slabs in which no object is allocated, and decides when
 * that is worth a walk.  Its interface is slab_hollow, in slab.h; what it needs of one slab is in hollow.h.
 */
#include <assert.h>

#include "os/os.h"
#include "page/page.h"
#include "slab/hollow.h"
#include "slab/state.h"

/*
 * Pages' worth of free objects that nobody has needed since the last look, as far as they may take memory.
 * A glance without the lock: who takes objects at this instant is seen at the next look.
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
 * Whether to walk by age for so many pages' worth.  After such a walk that found little it waits until there
 * is more.  An ebb does not: what was taken and freed since may lie elsewhere, though it is as much.
 */
static bool is_worth_a_walk(struct slab_cache *cache, size_t unneeded)
{
	if (unneeded < cache->barren)
		cache->barren = unneeded;
	return unneeded >= cache->barren + cache->barren / 4 + HOLLOW_LEAST;
}

/*
 * A walk over partial slabs, sparsest first.  It locks some, gives up the cache's lock, and gives back their
 * pages under theirs: nobody takes objects from them meanwhile, and whoever frees into them waits.  The last
 * one stays locked, and so in its bin, until the walk has gone on from it.
 */
struct hollowing {
	unsigned bin;
	size_t wanted, left; /* pages; and what it may cost yet */
	bool refused;        /* by the system */
	bool passes;         /* slabs in which a look found nothing, and that nothing has happened to since */
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

/* Locks the next slabs with such pages; returns whether there may be more.  With the cache's lock. */
static bool gather(const struct slab_cache *cache, struct hollowing *walk)
{
	enum { MOST = sizeof walk->parts / sizeof *walk->parts };
	struct slab *slab = walk->last;

	/* So that `looked` holds any number in use. */
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

/* What a row counts as. */
static size_t cost_of(unsigned pages)
{
	unsigned least = os_purges_several() ? SLAB_HOLLOW_PART : SLAB_HOLLOW_RUN;

	return pages > least ? pages : least;
}

/* Gives back rows that together count as no more than is left, or few more. */
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
	/* As one call, whatever was asked for: a caller that goes on where it met its bound gets to the end.
	 */
	if (walk->refused)
		walk->left = less(walk->left, SLAB_HOLLOW_RUN);
}

/* Rows of the slabs that are locked, as many as go by one system call. */
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

/* Seldom worth it, and far from the code of each tick. */
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
 * Pages' worth of free objects that are more than those allocated, as far as they may take memory.  Where the
 * allocated ones are so many that they lie in most pages, none: what is freed next makes it more.
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
	/* What it did not find is not there. */
	if (which == SLAB_HOLLOW_UNNEEDED)
		cache->barren = walk.left ? walk.wanted : 0;
	return most - walk.left;
}
