/* SPDX-License-Identifier: MIT */
/*
 * Shared by the fronts that are not the library's own: separate areas, one for each id, with a place of
 * PLACE_BYTES for each cache.  The table of areas is laid out as the library's is, so that the same
 * instructions work on it.
 */
#ifndef CPUSLAB_BENCH_FRONTS_H
#define CPUSLAB_BENCH_FRONTS_H

#include <string.h>

#include "linked/slab.h"
#include "os/os.h"

enum { PLACE_BYTES = 64, PLACES = 64, IDS_MOST = 1024 };

static struct {
	uintptr_t table[ARCH_VCPUS];
} front_areas;
static uint8_t place_taken[PLACES];
static struct cpuslab_spinlock front_lock = CPUSLAB_SPINLOCK_INITIALIZER;

static inline const void *front_map(void)
{
	return &front_areas + 1;
}

/* Returns the place of a cache in the area of an id. */
static inline void *front_place_of(const struct linked_cache *cache, unsigned id)
{
	return (void *)(front_areas.table[id] + cache->offset);
}

static inline unsigned front_ids(void)
{
	unsigned possible = os_possible_cpus();

	return possible < IDS_MOST ? possible : IDS_MOST;
}

/* Allocates a place; returns its offset in each area, beyond the last if there is none. */
static inline uint16_t front_place(void)
{
	unsigned place = 0;

	cpuslab_spin_lock(&front_lock);
	while (place < PLACES && place_taken[place])
		place++;
	if (place < PLACES)
		place_taken[place] = 1;
	cpuslab_spin_unlock(&front_lock);
	return (uint16_t)(place * PLACE_BYTES);
}

static inline void front_leave_place(uint16_t offset)
{
	if (offset / PLACE_BYTES < PLACES)
		place_taken[offset / PLACE_BYTES] = 0;
}

/* Creates the areas with the first cache. */
static inline bool front_open_areas(struct linked_cache *cache, uint16_t offset)
{
	bool opened = offset / PLACE_BYTES < PLACES;

	cpuslab_spin_lock(&front_lock);
	for (unsigned id = 0; id < front_ids() && opened; id++) {
		if (!front_areas.table[id]) {
			void *area = metadata_alloc(PLACES * PLACE_BYTES);

			/* A small block may be reused memory. */
			front_areas.table[id] = area ? (uintptr_t)memset(area, 0, PLACES * PLACE_BYTES) : 0;
		}
		opened = front_areas.table[id];
	}
	cpuslab_spin_unlock(&front_lock);
	cache->map = front_map();
	return opened;
}

/* The engine's own check on a free: the same slab, another object, and the start of one. */
static inline bool front_accepts(const struct linked_cache *cache, uintptr_t list, uintptr_t object)
{
	return (list ^ object) - 1 < cache->list.slab_mask &&
	       (object & cache->list.slab_mask) * cache->list.reciprocal < cache->list.reciprocal;
}

static inline void front_link(const struct linked_cache *cache, uintptr_t object, uintptr_t next)
{
	uintptr_t at = object + cache->list.link;

	__atomic_store_n((uintptr_t *)at, next ^ at ^ cache->list.secret, __ATOMIC_RELAXED);
}

/* Statistics are not part of the measurement. */
static inline void front_count(const struct linked_cache *cache, uint64_t misses)
{
	(void)cache, (void)misses;
}

#endif
