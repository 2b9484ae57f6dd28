/* SPDX-License-Identifier: MIT */
/* magazine/cache: what a cache is; see magazine.h. */
#ifndef CPUSLAB_MAGAZINE_CACHE_H
#define CPUSLAB_MAGAZINE_CACHE_H

#include "depot/depot.h"
#include "page/page.h"

struct cache {
	struct depot depot;
	const void *map; /* page_front.map, or its counterpart in the cache's bank */
	uint16_t offset; /* of its word, within an area */
	uint16_t id;     /* entry of its pages in the page map */
	unsigned number;
	uint16_t returns; /* of a hardened cache: the word that frees push onto, see hardened.h; else 0 */
	unsigned returns_number; /* number of that word */
	void *owner;             /* of the room above; NULL for malloc's */
};

/* Whether a cache is debugged; if so, its misses end in magazine_alloc_checked() and magazine_free_checked().
 */
static inline bool magazine_is_checked(const struct cache *cache)
{
	return __builtin_expect(cache->depot.slabs.traits.checks != NULL, 0);
}

/* Whether a cache is hardened (hardened.h); if so, its objects come and go by the functions there alone. */
static inline bool magazine_is_hardened(const struct cache *cache)
{
	return cache->depot.slabs.traits.hardened;
}

/* Bytes of an object that a program can have, without what surrounds it. */
static inline uint32_t magazine_object_bytes(const struct cache *cache)
{
	const struct slab_traits *traits = &cache->depot.slabs.traits;

	return traits->checks ? traits->checks->zones.object_bytes : traits->size;
}

/* The alignment of all objects of a cache. */
static inline uint32_t magazine_alignment(const struct slab_traits *traits)
{
	uint32_t divisor = traits->size & -traits->size, slab = traits->alignment * PAGE_BYTES;

	if (slab < PAGE_BYTES)
		slab = PAGE_BYTES;
	return divisor < slab ? divisor : slab;
}

#endif
