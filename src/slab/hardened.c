/* SPDX-License-Identifier: MIT */
/*
 * slab/hardened: what slabs of hardened caches have besides: random order, a page without access behind them,
 * and addresses that stay theirs when their memory goes back.  Its functions are declared in state.h.
 */
#include <assert.h>
#include <string.h>

#include "options/options.h"
#include "os/os.h"
#include "page/page.h"
#include "slab/shuffle.h"
#include "slab/state.h"
#include "vcpu/vcpu.h"

/*
 * Slabs, in all caches together, that may end in a page without access where that takes two mappings for each
 * (before Linux 6.13, or by option): a process may have 65530 (vm.max_map_count), and the program needs some,
 * too.
 */
enum { GUARDS_MOST = 12 << 10 };

unsigned slab_homes(void)
{
	static unsigned homes ARCH_SPARSE;
	unsigned known = __atomic_load_n(&homes, __ATOMIC_RELAXED);

	if (!known) {
		known = vcpu_mode() == CPUSLAB_VCPU_THREAD_SLOT ? os_cpus() : UINT16_MAX + 1;
		__atomic_store_n(&homes, known, __ATOMIC_RELAXED);
	}
	return known;
}

static size_t object_bytes(const struct slab_cache *cache)
{
	return (size_t)(cache->pages - 1) * PAGE_BYTES;
}

/* By mappings, of which there is a limited number; a fork copies each of them. */
static bool forbid_by_mappings(char *page)
{
	static unsigned guards;

	if (__atomic_load_n(&guards, __ATOMIC_RELAXED) >= GUARDS_MOST || os_forbid(page, PAGE_BYTES) != 0)
		return false;
	__atomic_fetch_add(&guards, 1, __ATOMIC_RELAXED);
	(void)os_dump(page, PAGE_BYTES, false);
	return true;
}

static void guard_end(const struct slab_cache *cache, struct slab *slab)
{
	char *end = slab->base + object_bytes(cache);

	if ((!options.hardened_mappings && os_guard(end, PAGE_BYTES) == 0) || forbid_by_mappings(end)) {
		cpuslab_pagelock_set_flags(&slab->lock, SLAB_ENDED);
		page_count_hollow(1);
	}
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
	if (cache->traits.size > SLAB_MARKED_BY_ADDRESS)
		memset(slab_marks(cache, slab), 0, cache->objects * sizeof(uint16_t));
	shuffle(cache, slab);
}

void slab_forbid(const struct slab_cache *cache, struct slab *slab)
{
	if (cache->traits.untouchable &&
	    (options.hardened_mappings || os_guard(slab->base, object_bytes(cache)) != 0))
		(void)os_forbid(slab->base, object_bytes(cache));
	guard_end(cache, slab);
}

uint64_t slab_waiting_pages ARCH_SPARSE;

/* Clears the marks of a slab without allocated objects, whose memory goes. */
static void clear_marks(const struct slab_cache *cache, const struct slab *slab)
{
	uint16_t *marks = slab_marks(cache, slab);

	if (cache->traits.size <= SLAB_MARKED_BY_ADDRESS) {
		memset(page_mark(slab->base), 0, object_bytes(cache) / PAGE_MARK_UNIT * sizeof(uint16_t));
		return;
	}
	for (unsigned i = 0; i < cache->objects; i++) {
		__atomic_fetch_sub(&slab_waiting_pages, slab_waits_by(marks[i]), __ATOMIC_RELAXED);
		marks[i] = SLAB_NEVER_OUT;
	}
}

/*
 * Gives the memory of a hardened cache's empty slabs to the system; returns how many pages.  They read as
 * zero before and after, so that a write to a free object in them goes unnoticed.  With the lock.
 */
static size_t purge_empty(struct slab_cache *cache)
{
	size_t pages = 0;

	for (struct slab *slab = cache->partial[0]; slab; slab = slab->next) {
		if (slab_in_use(slab) || cpuslab_pagelock_flags(&slab->lock) & SLAB_PURGED)
			continue;
		if (os_purge(slab->base, object_bytes(cache)) != 0)
			break;
		clear_marks(cache, slab);
		cpuslab_pagelock_set_flags(&slab->lock, SLAB_PURGED);
		page_omit(slab->base, cache->pages);
		pages += object_bytes(cache) >> PAGE_SHIFT;
	}
	return pages;
}

/*
 * Removes the empty slabs from a cache that keeps them.  Skips a slab whose last object is just being freed,
 * which is locked until it is settled.  With the lock.
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

/* Constructed objects would not survive a purge: such slabs leave, and their addresses with them. */
__attribute__((noinline)) void slab_not_purged(const struct slab_cache *cache)
{
	page_count_hollow(-(long)(object_bytes(cache) >> PAGE_SHIFT));
}

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
	if (purged) {
		page_count_purged(purged);
		page_count_hollow((long)purged);
	}
}
