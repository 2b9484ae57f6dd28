/* SPDX-License-Identifier: MIT */
/*
 * inspect/census: what a target's allocator holds at (about) one instant.
 *
 * The target runs on while it is read, so figures of different places belong to slightly different instants.
 * What stands under one lock is read until two readings agree, so that a cache's slabs and objects fit each
 * other; `unsettled` counts the caches for which that did not happen.  The rest follows from these by
 * subtraction, never below zero.
 *
 * A reader that loses its CPU in the middle would put figures together that are a turn of others apart, and
 * count what went from one place to another meanwhile twice, or not at all.  It reads everything again then,
 * a few times; `interrupted` tells that it lost its CPU each time.
 */
#ifndef CPUSLAB_TOOLS_CENSUS_H
#define CPUSLAB_TOOLS_CENSUS_H

#include <time.h>

#include "inspect/target.h"

enum { CENSUS_NAME = 128, CENSUS_PAGE = 4096 };

struct census_cache {
	char name[CENSUS_NAME]; /* cut short where longer */
	uint64_t address;       /* of the cache's structure in the target */
	uint32_t number;
	uint32_t size; /* from the start of an object to the next, bytes */
	uint32_t alignment;
	uint32_t per_slab, pages_per_slab;
	uint32_t capacity, batch, sharedfactor; /* the tunables */
	uint32_t object_size;  /* as asked for; of several caches in one memory, the largest */
	uint64_t owner;        /* not 0: made by the program, not one of malloc's classes */
	uint32_t named;        /* caches of the program in this memory: */
	size_t first_handle;   /* so many from this one on */
	uint32_t aliases;      /* of these, all but one */
	bool linked;           /* of the linked engine: lists in place of magazines */
	uint64_t link, secret; /* of its lists: where in an object, and stored with what */
	uint8_t shareable;     /* a cache that is alike would share it */
	bool constructed;      /* has a constructor */
	bool type_stable;
	/* Slabs: all, those with every object taken, the one kept empty; ever made and given back. */
	uint64_t slabs, full_slabs, empty_slabs, created, freed;
	/* Objects: in slabs; taken from them; of these in vCPUs' magazines and in the depot. */
	uint64_t objects, allocated, in_vcpus, in_depot;
	uint64_t depot_filled, depot_empty; /* magazines */
	uint64_t live;                      /* objects that the program has */
	uint64_t alloc_misses, free_misses, refills, drains, locks;
};

/* One of the program's handles. */
struct census_handle {
	size_t cache; /* index */
	uint32_t size;
	char name[CENSUS_NAME];
};

/* What one vCPU has of one cache. */
struct census_cell {
	uint16_t loaded, spare; /* objects */
	uint32_t alloc_misses, free_misses;
};

struct census {
	struct timespec when; /* CLOCK_MONOTONIC */
	const char *mode;     /* how the library tells vCPUs apart */
	uint32_t vcpus;
	size_t cache_count, unsettled;
	bool interrupted;
	struct census_cache *caches;
	size_t handle_count;
	struct census_handle *handles;
	struct census_cell *cells; /* of cache c on vCPU v: cells[c * vcpus + v] */

	/* Pages of the heap. */
	uint64_t heap_start, tables_start, metadata_end; /* addresses, in this order */
	uint64_t heap_pages;                             /* up to the highest ever used */
	uint64_t clean_pages; /* free, and returned to the system (or never used) */
	uint64_t dirty_pages; /* free and resident */
	uint64_t transit_pages, large_pages, large_runs, slab_pages;
	uint64_t large_allocs, large_frees;

	/* Bytes. */
	uint64_t heap_committed, tables_committed, metadata_committed, metadata_used;
	uint64_t huge_bytes, huge_mappings, huge_cached;
	uint64_t purged; /* returned so far */
	uint64_t fences, aborts;

	/* Of guarding (src/guard/guard.h): 0 slots where it is off. */
	struct {
		uint64_t slots, picked, refused, passed, nanoseconds, live, bytes;
	} guarded;

	uint64_t resident, resident_metadata, resident_huge; /* as census_residents found them */

	/* Sums over the caches, bytes. */
	uint64_t live_bytes, vcpu_bytes, depot_bytes, free_bytes /* in slabs */, slack_bytes, slab_bytes;
};

/* Reads everything but the residents, within bounds (inspect/bounds.h).  `census` is zeroed before the first
 * time; its arrays are reused. */
enum target_status census_take(struct census *census, struct target *target);
/*
 * For a command line: attaches to the process that `text` names, as target_open() does, and takes its census.
 * False with a message on standard error; else both are the caller's to free and to detach.
 */
bool census_open(struct census *census, struct target *target, const char *command, const char *text);
/* Reads /proc/PID/smaps for what of the heap, the metadata and the mappings is resident. */
bool census_residents(struct census *census, const struct target *target);
void census_free(struct census *census);

/* All that the allocator has mapped: the sum of every part below. */
uint64_t census_mapped(const struct census *census);

/* The parts that make up what is mapped, for tables; ends with a NULL name. */
struct census_part {
	const char *name, *text;
	uint64_t bytes;
};
enum { CENSUS_PARTS = 14 };
void census_parts(const struct census *census, struct census_part parts[static CENSUS_PARTS]);

/* What lies in a page of the heap. */
struct census_slab {
	const struct census_cache *cache; /* NULL: no slab of a cache that is known */
	uint64_t start;                   /* of the slab, an address */
	uint32_t in_use;                  /* objects taken from it */
};
enum { CENSUS_PAGES_AT_ONCE = 4096 };
/*
 * The slabs that `count` pages of the heap belong to, CENSUS_PAGES_AT_ONCE at most, from the page of number
 * `first` on: one for each page.
 */
bool census_read_slabs(const struct census *census, const struct target *target, uint64_t first, size_t count,
		       struct census_slab *slabs);

/* Bytes of a cache's slabs, and of those the bytes that no live object has. */
uint64_t census_space(const struct census_cache *cache);
uint64_t census_loss(const struct census_cache *cache);
uint64_t census_partial(const struct census_cache *cache);

#endif
