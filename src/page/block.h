/* SPDX-License-Identifier: MIT */
/*
 * block: which blocks, of 2 MiB each, of the heap may be huge pages.  Private to the page room.
 *
 * Policy.  The option huge_pages forces always or never for the whole heap.  The default is auto: the heap's
 * first BLOCK_SMALL_HEAP bytes use ordinary pages, since a partly used block would be a large share of so
 * small a program.  Growth beyond them is advised to be huge if nearly all of the current heap is known to be
 * resident, since objects of up to a page fill it: a program that fills what it has will fill the next block
 * as well.  Larger objects, which it may have asked for and not touched, count against it, and so does purged
 * memory.  The blocks of a large object, wherever they lie, may be huge if one of at least half its size had
 * been written to when it was freed.  The system knows what is resident, but is not asked: libc's malloc
 * would not ask, so a sandbox may kill for it.  Pages that are already resident stay ordinary until such
 * objects have been placed on them many times: then they are purged, and come back huge.
 *
 * Cost.  It depends on where the system finds a huge page: 0.2 ms to zero it, but 4.5 ms where a virtual
 * machine has lent its free memory to its host, or other pages must be moved to make room; as many ordinary
 * pages come from recently freed memory in 0.8 ms.  So block_prove() touches the first advised block and
 * takes the time: if it was too dear, the rest go without; if it was twice in a row, so do the next ones.
 *
 * Purging.  The system would undo the purge of a part of an advised block, since it makes such blocks whole
 * again in its own time.  So whole blocks go back where there are any, and a block of which only a part is
 * purged loses the advice until it is purged whole.
 */
#ifndef CPUSLAB_BLOCK_H
#define CPUSLAB_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "page/page.h"

/* Page numbers count from the heap's start, as in run.h. */
enum { BLOCK_BYTES = 2 << 20, BLOCK_PAGES = BLOCK_BYTES >> PAGE_SHIFT };
enum { BLOCK_SMALL_HEAP = 32 << 20 };

/* Called once, when the layout is made; `reserved` when the heap is one mapping from the start. */
void block_init(bool reserved);
/* Blocks that may be huge pages from now on, the first of them still untouched; none if count is 0. */
struct blocks {
	uint32_t first, count;
};

/*
 * To be called after the usable heap may have grown.  `top` of its pages have been used, and those up to
 * `end` are about to be.  With the page lock.
 */
struct blocks block_heap_grown(uint32_t top, uint32_t end);
/* To be called after the unused end of the heap was given back.  With the page lock. */
void block_heap_shrunk(void);
/* Restores the advice of heap bytes [from, to), which were reserved anew without any.  With the page lock. */
void block_unadvised(size_t from, size_t to);
/*
 * To be called before a run of pages that are not resident yet becomes a large object.  With the page lock.
 */
struct blocks block_large(uint32_t first, uint32_t pages);
/*
 * Touches the first of these blocks, whose first page belongs to the caller and has not been handed out;
 * takes the advice from the others if the touch was dear.
 */
void block_prove(struct blocks blocks);
/* Milliseconds from which a touch seems dear; tests change it. */
extern ARCH_INTERNAL uint64_t block_dear;
/* Whether a block may be a huge page, or was one until a part of it was purged.  With the page lock. */
bool block_was_advised(uint32_t block);
/*
 * A run of resident pages becomes a large object: returns whether to renew its blocks.  With the page lock.
 */
bool block_reused(uint32_t first, uint32_t pages);
/* Purges the run's blocks, so that they come back huge.  The object must not have been handed out yet. */
void block_renew(uint32_t first, uint32_t pages);
/* To be called before a large object is freed; learns whether the program fills such objects. */
void block_large_freed(uint32_t first, uint32_t pages);
/*
 * Chooses the part of a free run to purge when `surplus` of its pages are too many: whole blocks where it has
 * advised ones.  Returns the part's pages; *first is the run's first page on entry and the part's on return.
 */
uint32_t block_surplus(uint32_t *first, uint32_t pages, uint32_t surplus);
/* To be called before pages in transit are purged. */
void block_purge(uint32_t first, uint32_t pages);
/* To be called after a mapping outside the heap was made (old_bytes is 0) or enlarged. */
void block_mapping(void *address, size_t old_bytes, size_t bytes);

#endif
