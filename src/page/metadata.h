/* SPDX-License-Identifier: MIT */
/* metadata: what the page room's own files share of it.  For the interface see page.h. */
#ifndef CPUSLAB_METADATA_H
#define CPUSLAB_METADATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A page of metadata: METADATA_PAGE_UNITS units, from which blocks are cut.  Beside it, so that what is free
 * can be given back to the system; the first METADATA_NEAR_PAGES of them are variables of the library, and
 * those of any further ones a region (layout.h).
 */
struct metadata_page {
	uint64_t free; /* a bit for each unit that is in no block */
	uint32_t next; /* in its list; 0: none */
	uint32_t previous : 31;
	uint32_t given : 1; /* all are free, and the page is the system's until it is touched */
};
enum { METADATA_NEAR_PAGES = 96, METADATA_PAGE_UNITS = 64 };

/* In a forked child; `all` as in page_repair. */
void metadata_repair(bool all);
/* Bytes in pages of metadata that have been used, and were not given back since. */
size_t metadata_bytes(void);
void metadata_show(void (*show)(const char *name, uintptr_t value, size_t size));
/*
 * Where memory comes in steps: makes room for the descriptors of a heap of so many bytes, so that a full heap
 * can still be cut anew when its objects are freed; and, with 0, for what the rooms need at start.
 */
bool metadata_provide(size_t heap_bytes);
/* The same without waiting for another thread; false where one has the lock, too. */
bool metadata_try_provide(size_t heap_bytes);
/* Gives back what a step has taken beyond what is in use or was asked for.  With the page lock. */
void metadata_shrink(void);

/*
 * Gives pages in which nothing is left to the system: those that are more than may stay, by one system call
 * where one does for several pages, else by a few; or all.  The others of page_purge and its like.
 */
void metadata_purge(bool all);
bool metadata_is_behind(void);
/* Whether any page is to go, be it too few to be worth a call before the next tick.  Without a lock. */
bool metadata_is_due(void);
void metadata_ebb(void);
void metadata_tick(void);

#endif
