/* SPDX-License-Identifier: MIT */
/*
 * slab/hardened: what slabs of hardened mode have beside others: a random order, a page without access behind
 * them, and addresses that stay theirs when their memory goes back.  Its functions are in state.h.
 */
#include <assert.h>
#include <string.h>

#include "os/os.h"
#include "page/page.h"
#include "slab/shuffle.h"
#include "slab/state.h"

/*
 * So many slabs at most have a page of their own that ends them, all caches together: each takes two mappings
 * of the 65530 that a process may have (vm.max_map_count), and the program needs some, too.
 */
enum { GUARDS_MOST = 12 << 10 };

static size_t object_bytes(const struct slab_cache *cache)
{
	return (size_t)(cache->pages - 1) * PAGE_BYTES;
}

static void guard_end(const struct slab_cache *cache, struct slab *slab)
{
	static unsigned guards;

	if (__atomic_load_n(&guards, __ATOMIC_RELAXED) >= GUARDS_MOST ||
	    os_forbid(slab->base + object_bytes(cache), PAGE_BYTES) != 0)
		return;
	__atomic_fetch_add(&guards, 1, __ATOMIC_RELAXED);
	cpuslab_pagelock_set_flags(&slab->lock, SLAB_ENDED);
}

/* Links all objects in random order, as if each had been handed out and come back. */
static void shuffle(struct slab_cache *cache, struct slab *slab)
{
	uint16_t order[UINT8_MAX + 1];
	unsigned objects = cache->objects;

	assert(objects <= sizeof order / sizeof *order);
	shuffle_numbers(order, objects);
	for (unsigned i = 0; i < objects; i++)
		slab_link_free(slab, order[i], cache->wide);
	__atomic_store_n(&slab->bump, (uint16_t)objects, __ATOMIC_RELEASE);
}

void slab_harden(struct slab_cache *cache, struct slab *slab, bool zeroed)
{
	if (!zeroed && !cache->traits.untouchable)
		memset(slab->base, 0, object_bytes(cache));
	shuffle(cache, slab);
}

void slab_forbid(const struct slab_cache *cache, struct slab *slab)
{
	if (cache->traits.untouchable)
		(void)os_forbid(slab->base, object_bytes(cache));
	guard_end(cache, slab);
}

/*
 * Gives the memory of a hardened cache's empty slabs to the system.  They read as zero before and after, and
 * an object that was written to since it came back is let off.  Returns how many pages.  With the lock.
 */
static size_t purge_empty(struct slab_cache *cache)
{
	size_t pages = 0;

	for (struct slab *slab = cache->partial[0]; slab; slab = slab->next) {
		if (slab_in_use(slab) || cpuslab_pagelock_flags(&slab->lock) & SLAB_PURGED)
			continue;
		if (os_purge(slab->base, object_bytes(cache)) != 0)
			break;
		memset(page_mark(slab->base), 0, object_bytes(cache) / PAGE_MARK_UNIT * sizeof(uint16_t));
		cpuslab_pagelock_set_flags(&slab->lock, SLAB_PURGED);
		pages += object_bytes(cache) >> PAGE_SHIFT;
	}
	return pages;
}

/*
 * Takes the empty slabs out of a cache that keeps them.  One whose last object is just being freed is locked
 * until it is settled, and left alone.  With the lock.
 */
static struct slab *withdraw_empty(struct slab_cache *cache)
{
	struct slab *withdrawn = NULL, *next;

	for (struct slab *slab = cache->partial[0]; slab; slab = next) {
		next = slab->next;
		if (slab_in_use(slab) || !slab_try_lock(slab))
			continue;
		slab_leave_bin(cache, slab);
		cache->slabs--;
		cache->freed++;
		slab->next = withdrawn;
		withdrawn = slab;
	}
	return withdrawn;
}

/* What a constructor has made cannot be purged and found again: such slabs go, and their addresses. */
void slab_shrink_hardened(struct slab_cache *cache)
{
	struct slab *withdrawn = NULL;
	size_t purged = 0;

	slab_lock_cache(cache);
	if (cache->traits.construct && !cache->traits.type_stable)
		withdrawn = withdraw_empty(cache);
	else if (!cache->traits.type_stable)
		purged = purge_empty(cache);
	(void)slab_unlock_and_release(cache, withdrawn);
	if (purged)
		page_count_purged(purged);
}
