/* SPDX-License-Identifier: MIT */
/*
 * block: which blocks of 2 MiB of the heap may be huge pages.  For the page room's own files.
 *
 * The option huge_pages says always or never, for the whole heap.  By default, auto: the heap's first
 * BLOCK_SMALL_HEAP bytes are not, for there a block that is used in part would be a large part of the
 * program.  What the heap grows by after that is advised to be huge, if nearly all of the heap as it is then
 * is resident: a program that fills what it has will fill the next block as well.  What it has not touched,
 * and what was given back, speaks against it.  A program that has BLOCK_LARGE_PROGRAM bytes resident, heap or
 * not, may have huge pages from BLOCK_LEAST_HEAP on, and then half of the heap will do.  So may, wherever
 * they lie, the blocks of a large object, if one of half its size at least was resident when it was freed, or
 * when the next one came.  Pages that are resident already stay as they are until such objects have been made
 * of them many times: then they go back, and come as huge ones.
 *
 * What a huge page takes depends on where the system finds one: 0.2 ms to zero it, but 4.5 where a virtual
 * machine has lent its free memory to its host, or others must be moved to make room, while ordinary pages
 * come from what was freed of late, 0.8 ms for as many.  So of what is advised the first block is touched
 * here and the time taken (block_prove): if it was too dear, the rest does without, and the next ones too.
 *
 * Giving back a part of an advised block would be undone by the system, which makes such blocks whole again
 * in its own time.  So whole blocks go back where there are any, and a block of which a part goes back loses
 * the advice, until it goes back whole.
 */
#ifndef CPUSLAB_BLOCK_H
#define CPUSLAB_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "page/page.h"

/* Page numbers here count from the heap's start, as in run.h. */
enum { BLOCK_BYTES = 2 << 20, BLOCK_PAGES = BLOCK_BYTES >> PAGE_SHIFT };
enum { BLOCK_LEAST_HEAP = 4 << 20, BLOCK_SMALL_HEAP = 32 << 20, BLOCK_LARGE_PROGRAM = 64 << 20 };

/* Once, when the layout is made; `reserved` when the heap is one mapping from the start. */
void block_init(bool reserved);
/* Blocks that may be huge pages from now on, and the first of them as yet untouched; none if count is 0. */
struct blocks {
	uint32_t first, count;
};

/*
 * After the heap may have got more usable memory: `top` of its pages have been used, and those up to `end`
 * will be.  With the page lock.
 */
struct blocks block_heap_grown(uint32_t top, uint32_t end);
/* After the unused end of it was given back.  With the page lock. */
void block_heap_shrunk(void);
/* Where these bytes of the heap, from one to another, were reserved anew, without any advice.  Likewise. */
void block_unadvised(size_t from, size_t to);
/* Before a run of pages that are not resident yet is a large object.  With the page lock. */
struct blocks block_large(uint32_t first, uint32_t pages);
/*
 * Touches the first of these blocks, whose first page is the caller's and nobody has seen yet; takes the
 * advice from the others if it was dear.
 */
void block_prove(struct blocks blocks);
/* What is dear, in nanoseconds of CPU time: tests change it. */
extern ARCH_INTERNAL uint64_t block_dear;
/* Whether a block may be, or have been, a huge page.  With the page lock. */
bool block_was_advised(uint32_t block);
/* A run of resident pages is a large object: whether to renew its blocks.  With the page lock. */
bool block_reused(uint32_t first, uint32_t pages);
/* Gives the memory of its blocks back, to be huge when it comes again.  Nobody has the object yet. */
void block_renew(uint32_t first, uint32_t pages);
/* Before a large object is freed: it tells whether the program fills such. */
void block_large_freed(uint32_t first, uint32_t pages);
/*
 * Which part of a free run to give back, when `surplus` of its pages are too many: whole blocks, where it has
 * such as are advised.  Returns how many pages; *first is the run's first page, and then the part's.
 */
uint32_t block_surplus(uint32_t *first, uint32_t pages, uint32_t surplus);
/* Before pages that are in transit are given back. */
void block_purge(uint32_t first, uint32_t pages);
/* For a mapping outside the heap that has just been made (old_bytes is 0) or enlarged. */
void block_mapping(void *address, size_t old_bytes, size_t bytes);

#endif
