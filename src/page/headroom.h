/* SPDX-License-Identifier: MIT */
/*
 * headroom: free pages that are kept behind large runs that grow.  For the page room's own files;
 * page_large_grow is in page.h.
 *
 * A vector grows by realloc over and over, each time by a few pages, and each time that would take the page
 * lock and cut a free run.  So where a large run has grown, what is free behind it is kept for it: neither
 * free nor used, marked at both ends as a run in transit.  The next times the run grows into it without the
 * lock.  There are a few places, and a run's is by its first page; a place holds where its pages begin, which
 * is where their run ends, and how many they are.
 *
 * Nobody loses by it: what is resident of it is free as soon as anybody else would take pages from the
 * system, and all of it at each tick, in an ebb, and when its run is freed (run_recall).
 *
 * Counts.  The page room's know what was put here, and hear of what became a run's when they look: before
 * that run is freed or shrinks.
 *
 * Without a lock: page_large_grow.  The others with the page lock.
 *
 * Fork.  What another thread had in between makes the child's page room begin with all of its counts anew.
 */
#ifndef CPUSLAB_HEADROOM_H
#define CPUSLAB_HEADROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HEADROOM_PLACES = 4, HEADROOM_MOST = 256 /* pages */ };

struct headroom {
	uint32_t start, pages;
	bool clean;
	uint32_t grown; /* how many more of them have become the run's since this was last asked */
};

unsigned headroom_place(uint32_t run);
/* Keeps pages, which the caller has marked, in an empty place. */
void headroom_put(unsigned place, struct headroom headroom);
bool headroom_is_empty(unsigned place);
/* Whether any place is not. */
bool headroom_is_kept(void);
/*
 * What is in a place, of which all may be the run's by now.  False where there is nothing, or just now
 * somebody grows into it: then it is not empty.
 */
bool headroom_look(unsigned place, struct headroom *headroom);
/* The same, and empties the place. */
bool headroom_take(unsigned place, struct headroom *headroom);
/* How many pages are kept. */
size_t headroom_pages(void);
/*
 * In a forked child: whether another thread was growing into one.  Its run may have its new length by then,
 * which is in no count, and what was left of the pages is in no place.
 */
bool headroom_is_in_hand(void);
/* In a forked child, when all that is not marked as used has become free. */
void headroom_repair(void);
/* Names all this for a reader of this process's memory (see report/root.h). */
void headroom_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
