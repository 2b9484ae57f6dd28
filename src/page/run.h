/* SPDX-License-Identifier: MIT */
/*
 * run: page runs of the heap: finds, cuts and joins free ones, and marks all in the page map.  For the page
 * room's own files; page_alloc and its like are in page.h, and so are the room's rules.
 *
 * Owns the page lock, the records of runs, the bins and the list by age that free ones are in, and the counts
 * of pages.  It decides nothing about what stays resident: how much may is allowance.h's business, and giving
 * it back is purge.h's.
 *
 * With the page lock, but for run_init, run_repair and run_show, and where a run lies.
 */
#ifndef CPUSLAB_RUN_H
#define CPUSLAB_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock/single.h"
#include "page/headroom.h"
#include "page/layout.h"
#include "page/page.h"

/* Page numbers here count from the heap's start. */
enum { RUN_NONE = UINT32_MAX };

/*
 * Of a free run, at its first page all of this, and at its last page `pages` and `state` (boundary tags: a
 * freed run finds its free neighbours through them).  Of a large run, at its first page `pages`.
 */
struct run {
	uint32_t pages;
	uint32_t state;          /* enum run_state */
	uint32_t next, previous; /* the bin's list */
	uint32_t newer, older;   /* dirty runs by the time of their free */
	uint64_t freed_at;       /* milliseconds */
};

enum run_state {
	RUN_CLEAN, /* reads as zero, takes no memory */
	RUN_DIRTY, /* still resident */
};

/* Pages, by what they are. */
struct run_pages {
	size_t free[2];    /* by enum run_state */
	size_t large;      /* in large runs */
	size_t in_transit; /* that are being purged, without the lock */
	size_t retired;    /* that are never used again */
	size_t purged;     /* in all */
	uint32_t top;      /* from here on they have never been used */
};
extern ARCH_INTERNAL struct run_pages run_pages;
extern ARCH_INTERNAL uint32_t run_oldest; /* of the dirty runs */

void run_init(void);
void run_repair(bool all);
void run_show(void (*show)(const char *name, uintptr_t value, size_t size));

/* ---- the lock ------------------------------------------------------------------------------------------ */

extern ARCH_INTERNAL struct cpuslab_spinlock page_lock;

void run_lock(void);
/* Whether the last one to take it had to wait. */
extern ARCH_INTERNAL bool run_has_waited;

static inline void run_unlock(void)
{
	cpuslab_spin_unlock(&page_lock);
}

/* ---- where a run lies ---------------------------------------------------------------------------------- */

static inline struct run *run_at(uint32_t page)
{
	return (struct run *)layout.runs.base + page;
}

static inline char *run_address(uint32_t page)
{
	return layout.heap.base + ((size_t)page << PAGE_SHIFT);
}

static inline uint32_t run_number(const void *address)
{
	return (uint32_t)(page_of(address) - page_front.heap_page);
}

/* ---- marks in the page map ----------------------------------------------------------------------------- */

static inline uint16_t *run_map_at(uint32_t page)
{
	return page_front.map + page_front.heap_page + page;
}

static inline void run_set_id(uint32_t page, uint16_t id)
{
	__atomic_store_n(run_map_at(page), id, __ATOMIC_RELEASE);
}

static inline void run_mark_ends(uint32_t first, uint32_t pages, uint16_t id)
{
	run_set_id(first + pages - 1, id);
	run_set_id(first, id);
}

/* ---- free runs ----------------------------------------------------------------------------------------- */

static inline size_t run_used_pages(void)
{
	return run_pages.top - run_pages.free[RUN_CLEAN] - run_pages.free[RUN_DIRTY] - headroom_pages() -
	       run_pages.in_transit - run_pages.retired;
}

/* Puts a free run back, together with its free neighbours of the same state. */
void run_insert(uint32_t first, uint32_t pages, enum run_state state, uint64_t freed_at);
/*
 * Takes the free pages from `first` to `end` out of their runs, of which one begins at `start`, at or before
 * `first`.  Returns how many of them are clean.
 */
uint32_t run_take_span(uint32_t start, uint32_t first, uint32_t end);
/* Makes what is left of a purged run, if anything, the oldest again: it is as old as it was. */
void run_stay_oldest(uint32_t first);
/*
 * The records of long clean runs that say nothing: whole pages of them, OS_RANGES at most.  Returns how many
 * ranges.
 */
unsigned run_bare_records(struct os_range *ranges);
/*
 * Where the heap ends in a huge page the rest of that is resident, too.  It becomes a free run, so that it
 * can go back with the others.
 */
void run_take_over_block(void);

/* Large pages that nobody has, marked as in transit at their ends, are free and dirty. */
void run_free_waiting(uint32_t first, uint32_t pages);
/*
 * The first pages of the longest dirty run, as far as a short look tells, `most` of them, and `least` at
 * least: marked as in transit at their ends, and not counted.  Returns how many, 0 where there is no such
 * run.
 */
uint32_t run_take_widest(uint32_t least, uint32_t most, uint32_t *first);

/* ---- runs that wait for somebody: standby.h, pocket.h, headroom.h
 * ------------------------------------------------ */

/* What stands by, or lies in pockets, is free as any other run.  Whether there was anything. */
bool run_recall_standby(void);
/* The same of what is kept as headroom: all of it, or what is dirty.  Most programs never have any. */
bool run_recall_headroom(bool clean);

/* All that waits for somebody. */
static inline void run_recall(void)
{
	(void)run_recall_standby();
	if (headroom_is_kept())
		(void)run_recall_headroom(true);
}

#endif
