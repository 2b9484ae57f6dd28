/* SPDX-License-Identifier: MIT */
/*
 * page: memory in pages; the only room that asks the system for any.
 *
 * Owns, in one plan made at start (layout.c), of which the heap lies lowest and the map behind it:
 *   the page map    16 bits for each page of the address space up to the heap's end: the offset of the word
 *                   that frees into this page, so that free() needs no range check but one.  Below it, in
 *                   the same mapping, the vCPU table (see arch.h).
 *   slab_of         32 bits for each heap page: which slab descriptor it belongs to, 0 for none
 *   runs            what the run allocator knows of each free or large run, at the run's first page
 *   marks           in hardened mode, 16 bits for each 16 bytes of the heap, for the room above: see slab.h
 *   pages           what is known of each page of metadata
 *   metadata        descriptors, magazines, vCPU areas; never next to a user's object.  What is free in it is
 *                   never written to, and pages in which nothing is left go back to the system (metadata.c)
 *   the heap        page runs: slabs, and objects too large for a slab
 *
 * Called by the rooms above it, from any thread.  Locks: page_lock for runs and page ids, metadata_lock for
 * metadata, huge_lock for mappings outside the heap; page_lock may be followed by metadata_lock; else one at
 * a time.  Lock-free: reading the page map and slab_of, which change only while the reader's object cannot
 * (the page belongs to a slab as long as one of its objects is allocated).
 *
 * Fork.  A forked child gets the memory as it was, with locks held by threads that it does not have.  The
 * page map is the truth, written by single stores; free lists, bins and counts follow from it, and
 * page_repair() makes them anew where a lock was held.
 */
#ifndef CPUSLAB_PAGE_H
#define CPUSLAB_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"
#include "os/os.h"

enum { PAGE_SHIFT = OS_PAGE_SHIFT, PAGE_BYTES = 1 << PAGE_SHIFT, PAGE_MARK_UNIT = 16 };

/*
 * What a page map entry can say besides "a slab of the cache whose word is at this offset".  The words at
 * these offsets are void in every area: a free through them always misses into the checks.
 */
enum page_id {
	PAGE_FREE = 0,        /* free, or not ours at all */
	PAGE_LARGE = 8,       /* first page of a large run */
	PAGE_LARGE_TAIL = 16, /* last page of a large run of more than one page */
	PAGE_TRANSIT = 24,    /* first and last page of a free run that is being purged */
	PAGE_SLAB = 32,       /* of a cache whose word has no offset of 16 bits: slab_of tells */
	PAGE_LINKED = 40,     /* of a linked cache: slab_of tells */
	PAGE_WATCHED = 48,    /* of a cache as PAGE_SLAB, with objects whose frees are to be seen */
	PAGE_RETIRED = 56,    /* of a hardened cache that was destroyed: never used again */
	PAGE_ID_RESERVED = 64 /* caches have offsets from here */
};
enum { PAGE_ID_STEP = 8 }; /* all are multiples of it */

/*
 * The fast path's view: written once at start, but for `end` and `limit`, which grow with the heap where the
 * page map does (PIECEWISE in layout.h), so that no free reads a part of the map that is not there yet.
 */
struct page_front {
	uint16_t *map;         /* indexed by address >> PAGE_SHIFT, valid below `end` */
	uintptr_t limit;       /* what free's fast path admits: `end`, but in hardened mode 0 for ever */
	uintptr_t end;         /* the first page number that is not the heap's; 0 until the room is open */
	uintptr_t heap_page;   /* the first page number of the heap; 0 until the room is open */
	uint32_t *slab_of;     /* indexed by page number, as the map */
	uint16_t *marks;       /* indexed by address / PAGE_MARK_UNIT, in hardened mode alone */
	char *metadata;        /* slab_of counts units of METADATA_UNIT from here */
	size_t metadata_bytes; /* planned, not used */
};
extern ARCH_INTERNAL struct page_front page_front;

/*
 * Makes the plan and maps it, and metadata for the start of the rooms above; false when the system does not
 * give that much now: then it may be called again.  Until page_open no address is the heap's.
 */
bool page_init(void);
/* Opens the fast path of free, which needs the vCPU table. */
void page_open(void);
/*
 * In a forked child: frees the locks and repairs what a dead thread left half done, or all of it: when the
 * rooms above have marked pages as free behind this room's back, or that thread was at a repair.
 */
void page_repair(bool all);
/* Pages between the heap's start and the highest ever used; without a lock, for a forked child. */
size_t page_heap_pages(void);
/* Bytes that the heap can grow to, as RLIMIT_AS and the option `reserve` let it. */
size_t page_heap_most(void);

static inline uintptr_t page_of(const void *address)
{
	return (uintptr_t)address >> PAGE_SHIFT;
}

/* Of the unit that an address of the heap lies in. */
static inline uint16_t *page_mark(const void *address)
{
	return &page_front.marks[(uintptr_t)address / PAGE_MARK_UNIT];
}

static inline bool page_is_heap(const void *address)
{
	return page_of(address) - page_front.heap_page < page_front.end - page_front.heap_page;
}

static inline uint16_t page_id(const void *address)
{
	return __atomic_load_n(&page_front.map[page_of(address)], __ATOMIC_ACQUIRE);
}

/* ---- runs: `pages` pages in a row ---------------------------------------------------------------------- */

/*
 * A run of pages aligned to `alignment` pages (a power of two; NULL beyond 8 MiB).  Every page of it gets
 * `id`, except for PAGE_LARGE, which marks first and last page alone.  *zeroed: whether all of it reads as
 * zero.
 */
void *page_alloc(size_t pages, size_t alignment, uint16_t id, bool *zeroed);
/* The same, or NULL where that would have to wait for another thread. */
void *page_try_alloc(size_t pages, size_t alignment, uint16_t id, bool *zeroed);
/* A large run where it can grow, as far as that can be had. */
void *page_alloc_to_grow(size_t pages, bool *zeroed);
void page_free(void *run, size_t pages);
/*
 * Gives a run's memory to the system and keeps its addresses from use for good, without access if `forbidden`
 * says so.
 */
void page_retire(void *run, size_t pages, bool forbidden);

/*
 * Gives pages of runs that are in use back to the system, of OS_RANGES ranges at most: they read as zero
 * then, and stay the caller's.  Returns how many ranges, in their order; fewer where the system does not take
 * them.
 */
unsigned page_hollow(const struct os_range *ranges, unsigned count);
/* For the statistics: pages that a slab's room gave back itself. */
void page_count_purged(size_t pages);
/* By how many there are more of them, or fewer: they count as used, but take no memory until touched. */
void page_count_hollow(long more);

/*
 * Without the lock, where a program allocates and frees a length by turns: a large run of just so many pages,
 * as it was freed, or NULL; and to free a large run so: its pages, or 0.  `vcpu`: any number, the caller's
 * by rights.
 */
void *page_take_standby(size_t pages, unsigned vcpu);
size_t page_put_standby(void *run, unsigned vcpu);
/* How many calls of these two have been of use. */
void page_standby_calls(uint64_t *takes, uint64_t *puts);

/* The length of the large run that starts at `run`. */
size_t page_large_pages(const void *run);
/* Grows or shrinks a large run where it is; false when the pages after it are not free. */
bool page_large_resize(void *run, size_t pages);
/* Without the lock, where pages are kept behind a large run that grows; else false.  Never shrinks it. */
bool page_large_grow(void *run, size_t pages);

/*
 * The most that one call gives back to the system unless it is asked for all, in pages, lest somebody's free
 * wait for the whole of what others left behind: so many, and twice as many as the call itself takes or
 * frees, four times where it frees the last large object in an ebb; each run that is given back counts as
 * PAGE_PURGE_RUN at least, which bounds the system calls, or where one system call does for several runs as
 * PAGE_PURGE_PART.  Half of that in an ebb, which many calls come to follow.
 */
enum { PAGE_PURGE_MOST = (4 << 20) >> PAGE_SHIFT, PAGE_PURGE_RUN = 64, PAGE_PURGE_PART = 8 };

/*
 * Returns free runs to the system: those older than the decay time or beyond the allowance, or all of them;
 * and pages of metadata likewise.
 */
void page_purge(bool all);
/* The same as time passes: the allowance shrinks. */
void page_tick(void);
/* Whether the last purge met its bound before its end: page_purge(false) goes on with it.  Without a lock. */
bool page_is_behind(void);
/*
 * Whether an eighth of what the heap has in use waits to go back by age, and so many pages at least: what is
 * free and resident, and `standing_by` pages, which count as used.  Mappings that wait count, those in use do
 * not.  Without a lock.
 */
bool page_rests(size_t least, size_t standing_by);
/*
 * Whether large objects in runs became fewer or shorter twice in turn, or for one of the first few times, and
 * none has come or grown since; of those that come and go standing by nothing is known.  The same.
 */
bool page_large_fell(void);
/*
 * Whether many pages were taken since it last said so: a sixteenth of the heap from the system, or as much
 * that slabs found free.  The rooms above give back what they hoard then, before the heap grows much further,
 * and before what one cache has freed serves others, with so many of its objects in hoards that the next ones
 * find nothing.
 */
bool page_wants_hoards(void);
/*
 * Most of what the program had is gone, and may be for good: until it takes more than a few pages again, no
 * more free ones stay resident than it uses.  Nor does the rest of a huge page in which the heap ends, nor
 * what the room knew of the pages of long free runs; nor, when little is left (`low`), more than a few free
 * pages of metadata: before that the next frees would need some of them again.  page_purge(false) sees to
 * that, and is due from now on.
 */
void page_ebb(bool low);

struct page_statistics {
	size_t heap_pages;  /* between the heap's start and the highest page ever used */
	size_t used_pages;  /* in slabs and large runs */
	size_t large_pages; /* in large runs */
	size_t large_runs;
	size_t dirty_pages; /* free and resident */
	size_t purged_pages_total;
	size_t metadata_bytes;
	size_t huge_bytes, huge_mappings, huge_cached_bytes;
	size_t lock_acquires;
};
void page_statistics(struct page_statistics *statistics);

/* Names what a reader of this process's memory needs to know of this room (see report/root.h). */
void page_show(void (*show)(const char *name, uintptr_t value, size_t size));

/* ---- metadata ------------------------------------------------------------------------------------------ */

/* Blocks of more bytes than REUSED_MOST are never handed out again. */
enum { METADATA_UNIT = 64, METADATA_REUSED_MOST = 64 * METADATA_UNIT };

/*
 * Aligned to METADATA_UNIT; NULL when the system has no more.  Zeroed the first time it is handed out: blocks
 * that are reused hold what whoever had them before has left, of whatever size it was.
 */
void *metadata_alloc(size_t bytes);
/* The same, or NULL where that would have to wait for another thread. */
void *metadata_try_alloc(size_t bytes);
/*
 * The same of a block that will not be given back but for a mistake: such blocks lie together, up to a page
 * of them, so that others' pages can go back.  `waits`: for another thread.
 */
void *metadata_alloc_lasting(size_t bytes, bool waits);
/* `bytes` as it was asked for.  It may read as zero from then on, and stays mapped. */
void metadata_free(void *block, size_t bytes);

/*
 * So many bytes from page_front.metadata on are blocks, or were, and stay mapped; for who reads what may have
 * been freed meanwhile.  It never becomes less.
 */
size_t metadata_end(void);

static inline uint32_t metadata_reference(const void *block)
{
	return (uint32_t)((size_t)((const char *)block - page_front.metadata) / METADATA_UNIT);
}

static inline bool metadata_contains(const void *address)
{
	return (uintptr_t)address - (uintptr_t)page_front.metadata < page_front.metadata_bytes;
}

static inline void *metadata_block(uint32_t reference)
{
	return page_front.metadata + (size_t)reference * METADATA_UNIT;
}

/* ---- huge: mappings of their own, outside the heap ----------------------------------------------------- */

/*
 * From now on each mapping lies between two pages without access, and those that were freed lose theirs
 * before they go.  Before the first one is made.
 */
void huge_isolate(void);
/* Whether that is so: then mappings are for all large objects. */
bool huge_is_isolated(void);
/* Zeroed when *zeroed says so.  Alignment in bytes, a power of two. */
void *huge_alloc(size_t bytes, size_t alignment, bool *zeroed);
/* The bytes mapped for the object at `address`; 0 when there is no such mapping. */
size_t huge_bytes(const void *address);
/* False when there is no such mapping. */
bool huge_free(void *address);
/* Resizes, moving the mapping where it must; NULL when the system has no more (the old one then stays). */
void *huge_resize(void *address, size_t bytes);
/*
 * Returns cached mappings to the system: those older than the decay time, PAGE_PURGE_MOST pages of them from
 * their ends; or all of them.
 */
void huge_purge(bool all);
/* Whether the last huge_purge left something that is overdue.  Without a lock. */
bool huge_is_behind(void);
/* Pages of mappings that wait to be used again.  Without a lock. */
size_t huge_waiting(void);
void huge_repair(bool all);
void huge_statistics(struct page_statistics *statistics);
void huge_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
