/* SPDX-License-Identifier: MIT */
/*
 * layout: where the page room's regions lie, and how much of each the system has been asked for so far.
 *
 * A region is a stretch of address space of which the first `committed` bytes are usable.  It grows in steps:
 *   RESERVED   reserved without access, and made usable step by step.  What is not usable is not accounted
 *              (overcommit=2, RLIMIT_DATA), not locked by mlockall, and not walked through by a core dump.
 *   PIECEWISE  not even reserved, but mapped step by step at the planned addresses, because RLIMIT_AS counts
 *              every reservation: under such a limit, and with reserve:0 for programs that set
 *              themselves one later.
 */
#ifndef CPUSLAB_LAYOUT_H
#define CPUSLAB_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

/* The heap starts on this boundary: a huge page's, and a page's in the page map. */
enum { LAYOUT_GRAIN = 8 << 20 };

struct region {
	char *base;
	size_t planned;
	size_t committed;
	size_t step;
};

struct layout {
	struct region heap, map, slab_of, runs, metadata; /* `map`: the page map's part for the heap */
	struct region marks;                              /* planned in hardened mode alone */
	struct region pages;                              /* what is known of metadata's, see metadata.h */
};
extern struct layout layout;
/* A region could not grow since the unused ends of others were given back. */
extern bool layout_refused;

/* Chooses and maps the layout, and sets the addresses in page_front; layout_open() its limit. */
bool layout_init(void);
/* Lets frees through to all of the page map that can be read.  Called with the page lock, or at start. */
void layout_open(void);
/* Makes the first `bytes` of the region usable.  The caller has the lock that guards the region. */
bool region_grow(struct region *region, size_t bytes);
/*
 * Gives back what a step has made usable beyond the first `bytes`, which nobody has touched: another region
 * may lack it.  With the same lock, and the page lock.
 */
void region_shrink(struct region *region, size_t bytes);

#endif
