/* SPDX-License-Identifier: MIT */
/*
 * slab/look: answers questions of the rooms above about objects, slabs and their cache, and sets which pages
 * are watched; it changes nothing else.  Its interface is in slab.h, which says what needs no lock.
 */
#include "page/page.h"
#include "slab/state.h"

void slab_visit_objects(const struct slab_cache *cache, void (*visit)(void *object, void *argument),
			void *argument)
{
	uintptr_t end = page_front.heap_page + page_heap_pages();

	for (uintptr_t page = page_front.heap_page; page < end; page++) {
		char *address = (char *)(page << PAGE_SHIFT);
		const struct slab *slab = page_entries[page] == PAGE_LINKED ? NULL : slab_of_object(address);

		if (!slab || slab->cache != cache || slab->base != address)
			continue;
		for (unsigned i = 0; i < slab->bump; i++)
			if (slab_is_allocated(slab, i, cache->wide))
				visit(address + (size_t)i * cache->traits.size, argument);
	}
}

struct slab_cache *slab_cache_of(const void *address)
{
	const uint32_t *place = &page_front.slab_of[page_of(address)];
	uint32_t reference = __atomic_load_n(place, __ATOMIC_ACQUIRE);
	const struct slab *slab = reference ? metadata_block(reference) : NULL;
	struct slab_cache *cache = slab ? __atomic_load_n(&slab->cache, __ATOMIC_ACQUIRE) : NULL;

	/*
	 * Where the caller holds no object, the slab may just have been given back and its descriptor become
	 * something else: then the page no longer refers to it.  Or it does again, if that memory is now the
	 * descriptor of a new slab there (ABA): then its cache is not what was read while it was something
	 * else.
	 */
	return cache && __atomic_load_n(place, __ATOMIC_ACQUIRE) == reference &&
			       __atomic_load_n(&slab->cache, __ATOMIC_RELAXED) == cache
		       ? cache
		       : NULL;
}

void slab_fetch(const void *object)
{
	const char *slab = (const char *)slab_of_object(object);

	if (slab) {
		__builtin_prefetch(slab);
		__builtin_prefetch(slab + METADATA_UNIT);
	}
}

bool slab_is_object(const struct slab_cache *cache, const void *object)
{
	const struct slab *slab = slab_of_object(object);

	if (!slab || slab->cache != cache)
		return false;
	unsigned i = slab_index(cache, slab, object);

	return slab->base + (size_t)i * cache->traits.size == (const char *)object && i < slab->bump &&
	       slab_is_allocated(slab, i, cache->wide);
}

void *slab_object_of(const struct slab_cache *cache, const void *address)
{
	const struct slab *slab = slab_of_object(address);

	if (!slab || slab->cache != cache)
		return NULL;
	/* The reciprocal of slab_index is exact only for the start of an object. */
	size_t index = (size_t)((const char *)address - slab->base) / cache->traits.size;
	char *object = slab->base + index * cache->traits.size;

	return slab_is_object(cache, object) ? object : NULL;
}

bool slab_place(const struct slab_cache *cache, const void *address, struct check_place *place)
{
	const struct slab *slab = slab_of_object(address);

	if (!slab || slab->cache != cache)
		return false;
	/* The reciprocal of slab_index is exact only for the start of a slot. */
	size_t i = (size_t)((const char *)address - slab->base) / cache->traits.size;

	if (i >= cache->objects)
		return false;
	*place = slab_place_of(cache, slab, (unsigned)i);
	return true;
}

static void walk_list(const struct slab_cache *cache, const struct slab *slab,
		      void (*visit)(const struct check_place *place, void *argument), void *argument)
{
	for (; slab; slab = slab->next)
		for (unsigned i = 0; i < cache->objects; i++) {
			struct check_place place = slab_place_of(cache, slab, i);

			visit(&place, argument);
		}
}

void slab_walk(struct slab_cache *cache, void (*visit)(const struct check_place *place, void *argument),
	       void *argument)
{
	slab_lock_cache(cache);
	for (unsigned bin = 0; bin <= SLAB_FULL_BIN; bin++)
		walk_list(cache, cache->partial[bin], visit, argument);
	walk_list(cache, cache->empty, visit, argument);
	cpuslab_spin_unlock(&cache->lock);
}

/* With the lock. */
static uint64_t count_purged(const struct slab_cache *cache)
{
	uint64_t purged = 0;

	for (const struct slab *slab = cache->partial[0]; slab; slab = slab->next)
		purged += (cpuslab_pagelock_flags(&slab->lock) & SLAB_PURGED) != 0;
	return purged;
}

void slab_statistics(struct slab_cache *cache, struct slab_statistics *statistics)
{
	cpuslab_spin_lock(&cache->lock);
	slab_adopt_made(cache);
	*statistics = (struct slab_statistics){
		.slabs = cache->slabs,
		.purged = count_purged(cache),
		.kept_empty = cache->kept_empty,
		.hollow = __atomic_load_n(&cache->hollow, __ATOMIC_RELAXED),
		.allocated = __atomic_load_n(&cache->allocated, __ATOMIC_RELAXED),
		.capacity = (uint64_t)cache->slabs * cache->objects,
		.created = cache->created,
		.freed = cache->freed,
		.lock_acquires = cache->lock_acquires,
	};
	cpuslab_spin_unlock(&cache->lock);
}

/*
 * Returns the slab of this cache, with objects in use, that a page belongs to; NULL for none.  With the lock,
 * under which such a slab stays.  But the pages of a slab on its way out still refer to it, and its
 * descriptor may at any instant become that of a slab that slab_try_alloc makes without the lock: so `base`
 * is read last.
 */
static const struct slab *slab_to_watch(const struct slab_cache *cache, const void *address)
{
	const struct slab *slab = slab_of_object(address);

	if (!slab || slab->cache != cache || !__atomic_load_n(&slab->in_use, __ATOMIC_ACQUIRE))
		return NULL;
	return page_of(address) - page_of(slab->base) < cache->pages ? slab : NULL;
}

size_t slab_watch_pages(struct slab_cache *cache, const void *address,
			bool (*watched)(const char *first, unsigned count, bool before))
{
	slab_lock_cache(cache);
	const struct slab *slab = slab_to_watch(cache, address);
	unsigned first = 0;

	if (!slab || slab->base != address) {
		cpuslab_spin_unlock(&cache->lock);
		return 1;
	}
	for (uintptr_t page = page_of(address); page < page_of(address) + cache->pages; page++) {
		size_t end = ((page + 1) << PAGE_SHIFT) - (uintptr_t)address;
		unsigned next = (unsigned)((end + cache->traits.size - 1) / cache->traits.size);
		bool before = page_entries[page] == PAGE_WATCHED, now;

		if (next > slab->bump)
			next = slab->bump;
		now = first < next &&
		      watched(slab->base + (size_t)first * cache->traits.size, next - first, before);
		first = next;
		if (now != before)
			__atomic_store_n(&page_entries[page], now ? PAGE_WATCHED : cache->traits.id,
					 __ATOMIC_RELEASE);
	}
	cpuslab_spin_unlock(&cache->lock);
	return cache->pages;
}

void slab_watch_page(struct slab_cache *cache, const void *address)
{
	slab_lock_cache(cache);
	if (slab_to_watch(cache, address))
		__atomic_store_n(&page_entries[page_of(address)], PAGE_WATCHED, __ATOMIC_RELEASE);
	cpuslab_spin_unlock(&cache->lock);
}

void slab_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("slab", 0, sizeof(struct slab));
	show("slab.base", offsetof(struct slab, base), sizeof(char *));
	show("slab.in_use", offsetof(struct slab, in_use), sizeof(uint16_t));
	show("slab.bump", offsetof(struct slab, bump), sizeof(uint16_t));
	show("slab.lock", offsetof(struct slab, lock), sizeof(struct cpuslab_pagelock));
	show("slab.cache", offsetof(struct slab, cache), sizeof(struct slab_cache *));
}
