/* SPDX-License-Identifier: MIT */
/*
 * layout: where the page room's regions lie, and how much of each the system has granted so far.  Private to
 * the page room.
 *
 * A region is a stretch of address space of which the first `committed` bytes are usable.  It grows in steps,
 * in one of two ways:
 *   RESERVED   reserved without access, and made usable step by step.  What is not usable is not accounted
 *              (overcommit=2, RLIMIT_DATA), not locked by mlockall, and not walked through by a core dump.
 *   PIECEWISE  not even reserved, but mapped step by step at the planned addresses, because RLIMIT_AS counts
 *              every reservation: used under such a limit, and with reserve:0, for programs that will set
 *              themselves one later.
 *
 * Core dumps.  A dump has every byte of a mapping of which it has any, and gdb's gcore has even what is only
 * reserved.  So regions are left out of dumps but for their beginnings, of which some bytes are in use, and a
 * little more: a system call for each MiB of the heap and each 128 KiB of another region, or a sixteenth of
 * it where that is more.
 *
 * Where the low addresses are others', the heap is reserved in a hole between them, wherever that lies.  The
 * page map of all addresses below it would not fit there, and has the heap's part alone; free's fast path,
 * which does not compare with the heap's start, then admits nothing (page_front.limit).
 */
#ifndef CPUSLAB_LAYOUT_H
#define CPUSLAB_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The heap starts on this boundary, that of a huge page and of a page of the page map. */
enum { LAYOUT_GRAIN = 8 << 20 };

struct region {
	char *base;
	size_t planned;
	size_t committed;
	uint32_t step;
	uint32_t
		shown; /* pages that core dumps contain; all of what is committed where nothing is left out */
};

struct layout {
	struct region heap, map, slab_of, runs, metadata; /* `map`: only the heap's part of the page map */
	struct region marks;                              /* planned in hardened mode only */
	struct region pages;                              /* records of metadata's pages, see metadata.h */
};
extern struct layout layout;
/* A region has failed to grow since the unused ends of the others were last given back. */
extern bool layout_refused;

/* Chooses and maps the layout, and sets the addresses in page_front; layout_open() sets its limits. */
bool layout_init(void);
/* Admits frees to all of the page map that can be read.  With the page lock, or at start. */
void layout_open(void);
/* Whether layout_open() lets the functions that stand for free take the fast path as well. */
void layout_admit_forwards(bool admitted);
/* Makes the first `bytes` of the region usable.  With the lock that guards the region. */
bool region_grow(struct region *region, size_t bytes);
/* Makes core dumps contain the first `bytes`.  With that lock. */
void region_show(struct region *region, size_t bytes);
/*
 * Gives back what was made usable beyond the first `bytes` and never touched: another region may lack it.
 * With that lock and the page lock.
 */
void region_shrink(struct region *region, size_t bytes);

#endif
