/* SPDX-License-Identifier: MIT */
/*
 * report/statistics: sums up what the rooms know about themselves.
 *
 * Reads counters under each room's own lock, one after the other, so figures of a running program belong to
 * slightly different instants.  Allocates nothing.  The library must have started.
 */
#ifndef CPUSLAB_STATISTICS_H
#define CPUSLAB_STATISTICS_H

#include <stdint.h>

#include "guard/guard.h"
#include "magazine/magazine.h"
#include "page/page.h"

enum { REPORT_NAME = 256 };

struct cache_report {
	char name[REPORT_NAME]; /* a copy, as the cache may be gone; cut short if longer */
	uint32_t size;          /* distance between objects */
	uint32_t object_bytes;  /* bytes of it that are the program's */
	uint32_t objects_per_slab, pages_per_slab;
	struct depot_tunables tunables;
	uint64_t live;     /* objects allocated by the program */
	uint64_t hoarded;  /* objects in magazines, loaded, spare or in the depot */
	uint64_t total;    /* objects in the slabs */
	uint64_t in_depot; /* objects in the depot */
	uint64_t slabs, slabs_empty, slabs_created, slabs_freed;
	uint64_t alloc_misses, free_misses, refills, drains, lock_acquires;
};

struct report {
	struct page_statistics pages;
	struct guard_statistics guarded;
	uint64_t live_bytes, hoarded_bytes, slab_bytes; /* over all caches */
	uint64_t alloc_misses, free_misses, refills, drains, slabs_created, slabs_freed, lock_acquires;
};

/*
 * Reports the cache numbered *next, or the first one after it, and sets *next to continue from; returns false
 * past the last.  Starts at 0.
 */
bool report_cache(unsigned *next, struct cache_report *report);
void report_all(struct report *report);

#endif
