/* SPDX-License-Identifier: MIT */
/*
 * headroom: free pages kept behind large runs that grow.  Private to the page room; page_large_grow is
 * declared in page.h.
 *
 * A vector grows by realloc over and over, each time by a few pages, and each time would take the page lock
 * and cut a free run.  So where a large run has grown, free pages behind it are kept for it: neither free nor
 * used, marked at both ends as in transit.  The run's next growths take them without the lock.  There are a
 * few places, and a run's first page selects its place.  A place holds where its pages begin, which is where
 * their run ends, and how many they are.
 *
 * This costs nobody memory: dirty headroom is released as soon as another allocation would take pages from
 * the system, and all of it at each tick, in an ebb, and when its run is freed (run_recall).
 *
 * Counts.  The page room's counts include what was put here, and learn what the run has taken when they look:
 * before that run is freed or shrinks.
 *
 * Lock-free: page_large_grow.  The others are called with the page lock.
 *
 * Fork.  If another thread was growing into a place, the child's page room rebuilds all of its counts.
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
	uint32_t grown; /* pages that the run has taken since this was last asked */
};

unsigned headroom_place(uint32_t run);
/* Whether pages are kept behind the caller's run, or all have become its own.  Without a lock. */
bool headroom_is_behind(uint32_t first, uint32_t pages);
/* Keeps pages, which the caller has marked, in an empty place. */
void headroom_put(unsigned place, struct headroom headroom);
bool headroom_is_empty(unsigned place);
/* Whether any place is in use. */
bool headroom_is_kept(void);
/*
 * Reads a place, of whose pages the run may have taken all by now.  Returns false if the place is empty, or
 * if a thread is growing into it just now; then headroom_is_empty() is false.
 */
bool headroom_look(unsigned place, struct headroom *headroom);
/* The same, and empties the place. */
bool headroom_take(unsigned place, struct headroom *headroom);
/* Returns how many pages are kept. */
size_t headroom_pages(void);
/*
 * In a forked child: whether another thread was growing into a place.  Its run may have its new length
 * already, which is in no count, and the rest of the pages is in no place.
 */
bool headroom_is_in_hand(void);
/* In a forked child, when everything not marked as used has become free. */
void headroom_repair(void);
/* Names this for a reader of this process's memory (see report/root.h). */
void headroom_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
