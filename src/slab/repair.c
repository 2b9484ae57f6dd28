/* SPDX-License-Identifier: MIT */
/*
 * slab/repair: in a forked child, rebuilds lists, counts and locks from the slabs' indexes where a thread
 * that the child does not have may have left them half done.  Its interface is in slab.h.
 */
#include <string.h>

#include "page/page.h"
#include "slab/hollow.h"
#include "slab/state.h"

bool slab_repair_begin(struct slab_cache *cache, bool all)
{
	bool broken = slab_is_torn(cache) || all;

	/* Most caches are intact; unless they are written to their pages stay shared with the parent. */
	if (cache->under_repair != broken)
		cache->under_repair = broken;
	if (!broken)
		return false;
	cache->unlocked = 0;
	cpuslab_spin_reset(&cache->lock);
	memset(cache->partial, 0, sizeof cache->partial);
	cache->empty = NULL;
	cache->slabs = cache->full_slabs = cache->kept_empty = 0;
	cache->allocated = cache->needed = 0;
	page_count_hollow(-(long)__atomic_exchange_n(&cache->hollow, 0, __ATOMIC_RELEASE));
	return true;
}

static void enlist(struct slab_cache *cache, struct slab *slab, unsigned bin)
{
	slab_enter_bin(cache, slab, bin);
	cpuslab_pagelock_set_flags(&slab->lock, SLAB_LISTED);
}

static void count_full(struct slab_cache *cache, struct slab *slab)
{
	cache->full_slabs++;
	if (cache->traits.checks)
		enlist(cache, slab, SLAB_FULL_BIN);
}

static bool waits_in_made(const struct slab_cache *cache, const struct slab *slab)
{
	const struct slab *other = cache->made;

	while (other && other != slab)
		other = other->next;
	return other;
}

/*
 * Whether no object of a slab was ever handed out.  `bump` tells, though all may have come back by now.  In a
 * hardened slab all objects are below `bump` from the start: there one must be allocated now.
 */
static bool is_untaken(const struct slab_cache *cache, const struct slab *slab)
{
	unsigned i = 0;

	while (cache->traits.hardened && i < slab->bump && !slab_is_allocated(slab, i, cache->wide))
		i++;
	return i == slab->bump;
}

/* Rebuilds lock, free list, counts and bin of one slab from its indexes. */
static void repair_slab(struct slab_cache *cache, struct slab *slab)
{
	uint8_t flags = cpuslab_pagelock_flags(&slab->lock) & (SLAB_MAKING | SLAB_PURGED | SLAB_ENDED);

	if (flags & SLAB_MAKING && !waits_in_made(cache, slab)) {
		/* Its maker may be this very thread, forked in a constructor, which goes on to add it. */
		if (is_untaken(cache, slab))
			return;
		/* The thread that was adopting it (slab_adopt_made), or about to push it, is gone. */
		flags &= (uint8_t)~SLAB_MAKING;
	}
	cpuslab_pagelock_init(&slab->lock, flags);
	slab->head = SLAB_NO_INDEX;
	slab->in_use = 0;
	slab->looked = 0;
	for (unsigned i = slab->bump; i-- > 0;) {
		if (slab_is_allocated(slab, i, cache->wide))
			slab->in_use++;
		else
			slab_link_free(slab, i, cache->wide);
	}
	cache->allocated += slab->in_use;
	hollow_repair(cache, slab);
	if (flags & SLAB_MAKING)
		return;
	cache->slabs++;
	/* An empty slab goes to the sparsest bin, and leaves it the usual way. */
	if (slab->in_use < cache->objects)
		enlist(cache, slab, slab->in_use * SLAB_BINS / cache->objects);
	else
		count_full(cache, slab);
}

/* Whether a slab's first page has the same id as another page of it.  Either may be watched. */
static bool has_its_base(const struct slab *slab, uint16_t id)
{
	uint16_t base = page_entries[page_of(slab->base)];

	return base == id || base == PAGE_WATCHED || (id == PAGE_WATCHED && base == slab->cache->traits.id);
}

/*
 * Frees a page of a slab that was half made or half given back.  But of a slab that was being retired, first
 * page first, some pages may be without access already: all of them are retired.
 */
static void end_orphan(uintptr_t page, const struct slab *slab)
{
	if (slab && page_entries[page_of(slab->base)] == PAGE_RETIRED) {
		page_entries[page] = PAGE_RETIRED;
		return;
	}
	page_front.slab_of[page] = 0;
	page_entries[page] = PAGE_FREE;
}

bool slab_repair_pages(struct slab_cache *(*cache_of_id)(uint16_t id))
{
	uintptr_t end = page_front.heap_page + page_heap_pages();
	bool orphans = false;

	for (uintptr_t page = page_front.heap_page; page < end; page++) {
		const char *address = (const char *)(page << PAGE_SHIFT);
		uint16_t id = page_entries[page];

		if (id != PAGE_SLAB && id != PAGE_WATCHED && id < PAGE_ID_RESERVED)
			continue;
		struct slab *slab = slab_of_object(address);
		struct slab_cache *cache = id >= PAGE_ID_RESERVED ? cache_of_id(id)
					   : slab                 ? slab->cache
								  : NULL;

		/* A slab that was half made or half given back, with no thread left to finish it. */
		if (!slab || !has_its_base(slab, id)) {
			if (id < PAGE_ID_RESERVED || (cache && cache->under_repair)) {
				end_orphan(page, slab);
				orphans = true;
			}
		} else if (cache && cache->under_repair && slab->base == address) {
			repair_slab(cache, slab);
		}
	}
	return orphans;
}
