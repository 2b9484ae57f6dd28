/* SPDX-License-Identifier: MIT */
/*
 * run: page runs of the heap.  Finds, cuts and coalesces free runs, and marks all runs in the page map.
 * Private to the page room; page_alloc and its like are declared in page.h, which also has the room's rules.
 *
 * Owns the page lock, the records of runs, the bins and the age list of free runs, and the counts of pages.
 * It does not decide what stays resident: allowance.h says how much may, and purge.h gives the rest back.
 *
 * Called with the page lock, except run_init, run_repair, run_show, and the functions that tell where a run
 * lies.
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
 * Record of a page.  The first page of a free run uses all of it, and the last page `pages` and `state`:
 * boundary tags, through which a freed run finds its free neighbours.  The first page of a large run uses
 * `pages` and `offset`.
 */
struct run {
	uint32_t pages;
	uint32_t state; /* enum run_state */
	union {
		uint32_t next;   /* with `previous`: links of the bin's list */
		uint32_t offset; /* see page_large_offset() */
	};
	uint32_t previous;
	uint32_t newer, older; /* links of the dirty runs in the order of their frees */
	uint64_t freed_at;     /* time in milliseconds */
};

enum run_state {
	RUN_CLEAN, /* reads as zero, takes no memory */
	RUN_DIRTY, /* still resident */
};

/* Counts of pages by state. */
struct run_pages {
	size_t free[2];    /* by enum run_state */
	size_t large;      /* in large runs */
	size_t in_transit; /* being purged, without the lock */
	size_t retired;    /* never to be used again */
	size_t purged;     /* total so far */
	uint32_t top;      /* first page that has never been used */
};
extern ARCH_INTERNAL struct run_pages run_pages;
extern ARCH_INTERNAL uint32_t run_oldest; /* the oldest dirty run */

void run_init(void);
bool run_is_torn(void);
void run_repair(bool all);
void run_show(void (*show)(const char *name, uintptr_t value, size_t size));

/* ---- the lock ------------------------------------------------------------------------------------------ */

extern ARCH_INTERNAL struct cpuslab_spinlock page_lock;

void run_lock(void);
/* Whether the last thread to take the lock had to wait. */
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
	return page_entries + page_front.heap_page + page;
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

/* Inserts a free run, coalesced with its free neighbours of the same state. */
void run_insert(uint32_t first, uint32_t pages, enum run_state state, uint64_t freed_at);
/*
 * Takes the free pages from `first` to `end` out of their runs, one of which begins at `start`, at or before
 * `first`.  Returns how many of these pages are clean.
 */
uint32_t run_take_span(uint32_t start, uint32_t first, uint32_t end);
/* Makes what is left of a purged run the oldest again: its age has not changed. */
void run_stay_oldest(uint32_t first);
/*
 * Finds whole pages of records inside long clean runs, which hold no information.  Returns how many ranges,
 * OS_RANGES at most.
 */
unsigned run_bare_records(struct os_range *ranges);
/*
 * Where the heap ends inside a huge page, the rest of that page is resident, too: makes it a free run, so
 * that it can go back with the others.
 */
void run_take_over_block(void);

/* Makes large pages that nobody owns, marked as in transit at their ends, a free dirty run. */
void run_free_waiting(uint32_t first, uint32_t pages);
/*
 * Takes the first pages of the longest dirty run that a short look finds, `least` to `most` of them: marked
 * as in transit at their ends, and not counted.  Returns how many, 0 if there is no such run.
 */
uint32_t run_take_widest(uint32_t least, uint32_t most, uint32_t *first);

/* ---- runs on standby, pockets, headroom ---------------------------------------------------------------- */

/* Makes all runs on standby and all extents of pockets free runs.  Returns whether there were any. */
bool run_recall_standby(void);
/* The same for headroom: all of it, or only what is dirty.  Most programs never have any. */
bool run_recall_headroom(bool clean);

/* Recalls all of these. */
static inline void run_recall(void)
{
	(void)run_recall_standby();
	if (headroom_is_kept())
		(void)run_recall_headroom(true);
}

#endif
