/* SPDX-License-Identifier: MIT */
/* metadata: what the rest of the page room uses of it.  For the interface see page.h. */
#ifndef CPUSLAB_METADATA_H
#define CPUSLAB_METADATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Record of a page of metadata: METADATA_PAGE_UNITS units, from which blocks are cut.  It lies beside the
 * page, so that free pages can go back to the system: the first METADATA_NEAR_PAGES records are variables of
 * the library, further ones have a region of their own (layout.h).
 */
struct metadata_page {
	uint64_t free; /* a bit for each unit that is in no block */
	uint32_t next; /* in its list; 0: none */
	uint32_t previous : 30;
	uint32_t omitted : 1; /* core dumps leave out the row of pages that this one is in: all are given */
	uint32_t given : 1;   /* all units are free, and the page is the system's until it is touched */
};
enum { METADATA_NEAR_PAGES = 96, METADATA_PAGE_UNITS = 64 };

/* In a forked child; `all` as in page_repair(). */
bool metadata_is_torn(void);
void metadata_repair(bool all);
/* Returns the bytes in pages of metadata that have been used and not been given back since. */
size_t metadata_bytes(void);
void metadata_show(void (*show)(const char *name, uintptr_t value, size_t size));
/*
 * Where memory comes in steps, provides room for the descriptors of a heap of `heap_bytes`, so that a full
 * heap can still be cut anew when its objects are freed; with 0, for what the rooms need at start.
 */
bool metadata_provide(size_t heap_bytes);
/* The same without waiting for another thread; false also where one has the lock. */
bool metadata_try_provide(size_t heap_bytes);
/* Gives back what a step made usable beyond what is in use or provided.  With the page lock. */
void metadata_shrink(void);

/*
 * Returns idle pages to the system, those beyond what may stay, or all: in one system call where it serves
 * several ranges, else in a few.  The functions below do for metadata what page_purge() and its like do for
 * the heap.
 */
void metadata_purge(bool all);
bool metadata_is_behind(void);
/* Whether any page is to go, even if too few for a call before the next tick.  Takes no lock. */
bool metadata_is_due(void);
void metadata_ebb(void);
void metadata_tick(void);

#endif
