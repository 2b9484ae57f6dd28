/* SPDX-License-Identifier: MIT */
/*
 * inspect/census: what a target's allocator holds at (about) one instant.
 *
 * The target runs on while it is read, so figures from different places belong to slightly different
 * instants.  What is under one lock is read until two readings agree, so that a cache's slabs and objects
 * match each other; `unsettled` counts the caches for which they never did.  The rest follows from these by
 * subtraction, never below zero.
 *
 * A reader that is preempted in the middle would combine figures a time slice apart, and count what moved
 * from one place to another meanwhile twice or not at all.  It then reads everything again, a few times;
 * `interrupted` says that it was preempted each time.
 */
#ifndef CPUSLAB_TOOLS_CENSUS_H
#define CPUSLAB_TOOLS_CENSUS_H

#include <time.h>

#include "inspect/target.h"

enum { CENSUS_NAME = 128, CENSUS_PAGE = 4096 };

struct census_cache {
	char name[CENSUS_NAME]; /* truncated if longer */
	uint64_t address;       /* of the cache's structure in the target */
	uint32_t number;
	uint32_t size; /* from the start of one object to the next, bytes */
	uint32_t alignment;
	uint32_t per_slab, pages_per_slab;
	uint32_t capacity, batch, sharedfactor; /* the tunables */
	uint32_t object_size;  /* as asked for; the largest, if several caches share the memory */
	uint64_t owner;        /* not 0: made by the program, not one of malloc's classes */
	uint32_t named;        /* the program's caches in this memory: */
	size_t first_handle;   /* that many, from this one on */
	uint32_t aliases;      /* that many less one */
	bool linked;           /* of the linked engine: lists instead of magazines */
	uint64_t link, secret; /* of its lists: the link's offset in an object, and what it is XORed with */
	uint8_t shareable;     /* may share its memory with caches that are alike */
	bool constructed;      /* has a constructor */
	bool type_stable;
	/* Slabs: all; those with every object taken; the one kept empty; ever made, ever given back. */
	uint64_t slabs, full_slabs, empty_slabs, created, freed;
	/* Objects: in slabs; taken from them; of these, in vCPUs' magazines and in the depot. */
	uint64_t objects, allocated, in_vcpus, in_depot;
	uint64_t depot_filled, depot_empty; /* magazines */
	uint64_t live;                      /* objects that the program holds */
	uint64_t alloc_misses, free_misses, refills, drains, locks;
};

/* One of the program's handles. */
struct census_handle {
	size_t cache; /* index */
	uint32_t size;
	char name[CENSUS_NAME];
};

/* What one vCPU holds of one cache. */
struct census_cell {
	uint16_t loaded, spare; /* objects */
	uint32_t alloc_misses, free_misses;
};

struct census {
	/* Read between these two times (CLOCK_MONOTONIC), when the target had used so much CPU time, if
	 * known. */
	struct timespec when, until;
	struct timespec cpu_when, cpu_until;
	bool cpu_known;
	const char *mode;   /* how the library identifies vCPUs */
	char why_slots[80]; /* why it has none, in brackets after a space; empty where it has some */
	uint32_t vcpus;
	size_t cache_count, unsettled;
	bool interrupted;
	struct census_cache *caches;
	size_t handle_count;
	struct census_handle *handles;
	struct census_cell *cells; /* of cache c on vCPU v: cells[c * vcpus + v] */

	/* Pages of the heap. */
	uint64_t heap_start, tables_start, metadata_end; /* addresses, in ascending order */
	uint64_t heap_pages;                             /* up to the highest ever used */
	uint64_t clean_pages;                            /* free, and returned to the system or never used */
	uint64_t dirty_pages;                            /* free and resident */
	uint64_t transit_pages, large_pages, large_runs, slab_pages;
	uint64_t large_allocs, large_frees;

	/* Bytes. */
	uint64_t heap_committed, tables_committed, metadata_committed, metadata_used;
	uint64_t huge_bytes, huge_mappings, huge_cached;
	uint64_t purged; /* returned so far */
	uint64_t fences, aborts;
	uint64_t background; /* the id of the library's own thread; 0 for none */

	/* Guarding (src/guard/guard.h); 0 slots if it is off. */
	struct {
		uint64_t slots, picked, refused, passed, nanoseconds, live, bytes;
	} guarded;

	/* As census_residents found them; 0 where it did not. */
	bool residents_known;
	uint64_t resident, resident_metadata, resident_huge;

	/* Sums over all caches, bytes. */
	uint64_t live_bytes, vcpu_bytes, depot_bytes, free_bytes /* in slabs */, slack_bytes, slab_bytes;
};

/*
 * Reads everything but what is resident, within bounds (inspect/bounds.h).  `census` must be zeroed before
 * the first call; later calls reuse its arrays.
 */
enum target_status census_take(struct census *census, struct target *target);
/*
 * For a command line: attaches to the process that `text` names, as target_open() does, and takes its census.
 * Returns false with a message on standard error; otherwise the caller must free the census and detach the
 * target.
 */
bool census_open(struct census *census, struct target *target, const char *command, const char *text);
/* Reads from /proc/PID/smaps how much of the heap, the metadata and the mappings is resident. */
bool census_residents(struct census *census, const struct target *target);
void census_free(struct census *census);

/* Returns all that the allocator has mapped: the sum of the parts below. */
uint64_t census_mapped(const struct census *census);

/* The parts of what is mapped, for tables; ends with a NULL name. */
struct census_part {
	const char *name, *text;
	uint64_t bytes;
};
enum { CENSUS_PARTS = 14 };
void census_parts(const struct census *census, struct census_part parts[static CENSUS_PARTS]);

/* What a page of the heap belongs to. */
struct census_slab {
	const struct census_cache *cache; /* NULL: no slab of a known cache */
	uint64_t start;                   /* address of the slab */
	uint32_t in_use;                  /* objects taken from it */
};
enum { CENSUS_PAGES_AT_ONCE = 4096 };
/*
 * Finds the slab of each of `count` pages of the heap, at most CENSUS_PAGES_AT_ONCE, from page number `first`
 * on.
 */
bool census_read_slabs(const struct census *census, const struct target *target, uint64_t first, size_t count,
		       struct census_slab *slabs);

/* Returns the bytes of a cache's slabs, or those of them that no live object has. */
uint64_t census_space(const struct census_cache *cache);
uint64_t census_loss(const struct census_cache *cache);
uint64_t census_partial(const struct census_cache *cache);

#endif
