/* SPDX-License-Identifier: MIT */
/*
 * report/statistics: what the rooms know about themselves, added up.
 *
 * Reads counters under each room's own lock, one at a time, so that a running program gives figures that
 * belong to slightly different instants.  Allocates nothing.  The library must have started.
 */
#ifndef CPUSLAB_STATISTICS_H
#define CPUSLAB_STATISTICS_H

#include <stdint.h>

#include "guard/guard.h"
#include "magazine/magazine.h"
#include "page/page.h"

enum { REPORT_NAME = 256 };

struct cache_report {
	char name[REPORT_NAME]; /* the cache may be gone when this is read; a longer name is cut short */
	uint32_t size;          /* from one object to the next */
	uint32_t object_bytes;  /* of it the program's */
	uint32_t objects_per_slab, pages_per_slab;
	struct depot_tunables tunables;
	uint64_t live;     /* objects that the program has */
	uint64_t hoarded;  /* objects in magazines, loaded, spare or in the depot */
	uint64_t total;    /* objects that the slabs hold */
	uint64_t in_depot; /* objects in the depot */
	uint64_t slabs, slabs_empty, slabs_created, slabs_freed;
	uint64_t alloc_misses, free_misses, refills, drains, lock_acquires;
};

struct report {
	struct page_statistics pages;
	struct guard_statistics guarded;
	uint64_t live_bytes, hoarded_bytes, slab_bytes; /* of all caches */
	uint64_t alloc_misses, free_misses, refills, drains, slabs_created, slabs_freed, lock_acquires;
};

/*
 * The cache of the number *next, or of the first one after it, and sets *next to where to go on; false past
 * the last.  Starts at 0.
 */
bool report_cache(unsigned *next, struct cache_report *report);
void report_all(struct report *report);

#endif
