/* SPDX-License-Identifier: MIT */
/*
 * slab/descriptor: a slab's descriptor, for the slab room and the hardened path.  For the rules see slab.h.
 *
 * Lock-free, for an object that the caller holds, or in a cache whose slabs stay for good (hardened).
 */
#ifndef CPUSLAB_SLAB_DESCRIPTOR_H
#define CPUSLAB_SLAB_DESCRIPTOR_H

#include "page/page.h"
#include "slab/geometry.h"
#include "slab/slab.h"

struct slab {
	struct slab *next, *previous; /* in a bin of its cache; full and kept empty slabs are in none */
	char *base;
	uint16_t in_use, bump, head;  /* head: first free object below bump, or SLAB_NO_INDEX */
	uint8_t bin;                  /* while it is in one */
	struct cpuslab_pagelock lock; /* user flags: enum slab_flags in state.h */
	struct slab_cache *cache;
	uint16_t home;   /* vCPU that its untouched objects serve, or NO_HOME; with the cache's lock */
	bool clean_tail; /* pages beyond the objects below bump take no memory; with the slab's lock */
	uint8_t looked;  /* in_use when gather() last found no page; 0 after a take; with the cache's lock */
	uint32_t hollow; /* a bit for each hollow page; with the slab's lock */
	union {
		uint8_t narrow[0];
		geometry_wide_index wide[0];
	} index;
};

enum { SLAB_ALLOCATED_NARROW = UINT8_MAX, SLAB_ALLOCATED_WIDE = UINT16_MAX };

static inline bool slab_is_allocated(const struct slab *slab, size_t i, bool wide)
{
	return wide ? slab->index.wide[i] == SLAB_ALLOCATED_WIDE
		    : slab->index.narrow[i] == SLAB_ALLOCATED_NARROW;
}

static inline struct slab *slab_of_object(const void *object)
{
	uint32_t reference = __atomic_load_n(&page_front.slab_of[page_of(object)], __ATOMIC_ACQUIRE);

	return reference ? metadata_block(reference) : NULL;
}

/* Exact only for the start of an object. */
static inline unsigned slab_index(const struct slab_cache *cache, const struct slab *slab, const void *object)
{
	return (unsigned)(((uint64_t)(size_t)((const char *)object - slab->base) * cache->reciprocal) >> 32);
}

/* Where a descriptor's indexes end. */
static inline size_t slab_index_end(const struct slab_cache *cache)
{
	return offsetof(struct slab, index) +
	       (cache->wide ? sizeof(geometry_wide_index) : 1) * cache->objects;
}

/* The marks of a hardened slab whose objects are larger than SLAB_MARKED_BY_ADDRESS. */
static inline uint16_t *slab_marks(const struct slab_cache *cache, const struct slab *slab)
{
	return (uint16_t *)((char *)slab + (slab_index_end(cache) + 1) / 2 * 2);
}

/* The mark of an address in a hardened slab of the cache; NULL for one of such objects that starts none. */
static inline uint16_t *slab_mark(const struct slab_cache *cache, const void *object)
{
	if (cache->traits.size <= SLAB_MARKED_BY_ADDRESS)
		return page_mark(object);
	const struct slab *slab = slab_of_object(object);
	unsigned i = slab_index(cache, slab, object);

	return i < cache->objects && slab->base + (size_t)i * cache->traits.size == (const char *)object
		       ? slab_marks(cache, slab) + i
		       : NULL;
}

#endif
