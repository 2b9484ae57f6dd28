/* SPDX-License-Identifier: MIT */
/*
 * page: memory in units of pages; the only room that asks the system for memory.
 *
 * Owns, at addresses that are all planned at start (layout.c), the heap lowest and the page map behind it:
 *   the page map    16 bits for each page of the address space up to the heap's end: the offset of the word
 *                   that frees into this page, so that free() needs a single range check.  The vCPU table
 *                   lies below it in the same mapping (see arch.h).
 *   slab_of         32 bits for each heap page: the slab descriptor that the page belongs to, 0 for none
 *   runs            the run allocator's record of each free or large run, at the index of its first page
 *   marks           in hardened mode, 16 bits for each 16 bytes of the heap, for the room above: see slab.h
 *   pages           a record of each page of metadata
 *   metadata        descriptors, magazines, vCPU areas; never next to a user's object.  Free units of it are
 *                   never written to, and pages without a block go back to the system (metadata.c)
 *   the heap        page runs (a run: consecutive pages): slabs, and objects too large for a slab
 *
 * Callers: the rooms above, on any thread.  Locks: page_lock for runs and page ids, metadata_lock for
 * metadata, huge_lock for mappings outside the heap.  Order: metadata_lock may be taken under page_lock;
 * otherwise no two are held at once.  Lock-free: reading the page map and slab_of.  This is safe because a
 * page's entries do not change while the reader's object is allocated: the page belongs to its slab until
 * then.
 *
 * Terms.  A free page is clean if it reads as zero and takes no memory, dirty if it is still resident; to
 * purge dirty pages is to return their memory to the system.  Pages in transit are in the hands of a purge,
 * of standby.h or of headroom.h: free neighbours do not coalesce with them.  The decay time (option `decay`)
 * is how long dirty memory may stay.  An ebb is a time in which the program has freed most of its memory, a
 * tick the periodic call of the rooms above by which everything ages.
 *
 * Fork.  The child gets memory as it was, with locks held by threads that it does not have.  The page map is
 * the truth and changes by single stores; free lists, bins and counts follow from it, and page_repair()
 * rebuilds them where a lock was held.
 */
#ifndef CPUSLAB_PAGE_H
#define CPUSLAB_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "page/map.h"

/*
 * Plans and maps the layout, and provides metadata for the rooms above to start.  Returns false when the
 * system cannot give that much now; it may be called again then.  Until page_open() no address is the heap's.
 */
bool page_init(void);
/*
 * Opens the fast path of free, and with `all_ours` that of functions that stand for it.  The vCPU table must
 * exist.
 */
void page_open(bool all_ours);
/* In a forked child: whether a thread of the parent's left anything half done. */
bool page_is_torn(void);
/*
 * In a forked child: releases the locks and repairs what a dead thread left half done.  With `all` it
 * rebuilds everything: for when the rooms above have marked pages free behind this room's back, or the dead
 * thread was itself in a repair.
 */
void page_repair(bool all);
/*
 * Returns the number of pages between the heap's start and the highest page ever used.  Takes no lock, for
 * use in a forked child.
 */
size_t page_heap_pages(void);
/* Returns the limit RLIMIT_AS at start if there was one; SIZE_MAX if not. */
size_t page_address_space_most(void);
/* Returns the bytes that the heap may grow to under RLIMIT_AS and the option `reserve`. */
size_t page_heap_most(void);

/* ---- runs: `pages` pages in a row ---------------------------------------------------------------------- */

/*
 * Allocates a run aligned to `alignment` pages, a power of two; returns NULL if that exceeds 8 MiB.  Every
 * page gets `id`, except that PAGE_LARGE marks only the first page, and PAGE_LARGE_TAIL the last.  *zeroed
 * tells whether the whole run reads as zero.
 */
void *page_alloc(size_t pages, size_t alignment, uint16_t id, bool *zeroed);
/* The same, but returns NULL rather than wait for another thread. */
void *page_try_alloc(size_t pages, size_t alignment, uint16_t id, bool *zeroed);
/* Allocates a run of which few pages may be touched, where possible from pages that take no memory yet. */
void *page_alloc_sparse(size_t pages, uint16_t id, bool *zeroed);
/* Allocates a large run, where possible at a place where it can grow. */
void *page_alloc_to_grow(size_t pages, bool *zeroed);
void page_free(void *run, size_t pages);
/* The same for a large run whose pages have gone elsewhere: it reads as zero and takes no memory. */
void page_free_emptied(void *run, size_t pages);
/*
 * Returns a run's memory to the system and never reuses its addresses; revokes access to them if `forbidden`.
 */
void page_retire(void *run, size_t pages, bool forbidden);
/*
 * Of pages that their owner keeps while their memory went back: core dumps leave them out, in whole units
 * (omit.h), until the owner says that dumps must contain them, before it uses them.
 */
void page_omit(const void *address, size_t pages);
void page_contain(const void *address, size_t pages);

/*
 * Returns pages of runs in use to the system, at most OS_RANGES ranges.  They stay the caller's and read as
 * zero.  Returns how many of the ranges, in order, the system took.
 */
unsigned page_hollow(const struct os_range *ranges, unsigned count);
/* Adds to the statistics pages that the slab room returned itself. */
void page_count_purged(size_t pages);
/*
 * Changes the number of hollow pages by `more`: pages that count as used, but take no memory until touched.
 */
void page_count_hollow(long more);
/*
 * Changes the number of pages of which the program touches each by `more`: those of slabs whose objects are
 * no larger than a page.  A child forked in between may count a slab too many or too few.
 */
void page_count_touched(long more);

/*
 * Paths that rarely take the page lock: for a length that the program allocates and frees by turns
 * (standby.h), and for any length once threads have waited for that lock (pocket.h).  page_take_standby()
 * returns a large run of exactly `pages` pages, or NULL; page_put_standby() frees the large run of an object
 * that way and returns its pages, or 0, as it does if no object begins there.  `vcpu` may be any number, but
 * should be the caller's.
 */
void *page_take_standby(size_t pages, unsigned vcpu);
size_t page_put_standby(void *object, unsigned vcpu);
/* Counts the calls of these two that succeeded. */
void page_standby_calls(uint64_t *takes, uint64_t *puts);

/* Returns the length of the large run in whose first page an address lies. */
size_t page_large_pages(const void *run);
/*
 * Notes that the object of a large run begins `offset` bytes into its first page, and returns it.  The owner
 * of the run does so after each allocation, and before anything else.
 */
void *page_large_place(void *run, unsigned offset);
/* For any address in the run's first page. */
unsigned page_large_offset(const void *address);
/* Grows or shrinks a large run in place; returns false when the pages after it are not free. */
bool page_large_resize(void *run, size_t pages);
/*
 * Grows a large run into the pages kept behind it, without the lock; false where there are not enough.  Never
 * shrinks.
 */
bool page_large_grow(void *run, size_t pages);

/*
 * Bounds, in pages, on what one call returns to the system unless it is asked for everything, so that no free
 * has to wait for the return of all that others left behind: PAGE_PURGE_MOST, plus twice what the call itself
 * takes or frees; four times where it frees the last large object in an ebb.  To bound the system calls too,
 * each run counts as at least PAGE_PURGE_RUN.  In an ebb, which many calls follow, page_purge() halves
 * PAGE_PURGE_MOST.
 */
enum { PAGE_PURGE_MOST = (4 << 20) >> PAGE_SHIFT, PAGE_PURGE_RUN = 64 };

/*
 * Returns free runs to the system, those older than the decay time or beyond the allowance (allowance.h), or
 * all, then with the rest of a huge page in which the heap ends; and metadata pages likewise.
 */
void page_purge(bool all);
/* The same at a tick, at which the allowance shrinks as well. */
void page_tick(void);
/* Reads the limits that the options name (limit.h): at start, and by page_options_changed(). */
void page_set_limits(void);
/*
 * Whether use is near the soft limit with `pages` more, and another part of the limit was taken since this
 * last returned true: the rooms above then give back all that they have.  Takes no lock.
 */
bool page_presses(size_t pages);
/* After `decay`, `dirty` or a limit has changed: page_purge(false) looks what is overdue now. */
void page_options_changed(void);
/* Whether the last purge reached its bound before its end; page_purge(false) continues it.  Takes no lock. */
bool page_is_behind(void);
/*
 * Whether an eighth of what the heap has in use, and at least `least` pages, waits to go back by age: what is
 * free and resident, `standing_by` pages, which count as used, and cached mappings.  Mappings in use are not
 * counted.  Takes no lock.
 */
bool page_rests(size_t least, size_t standing_by);
/*
 * Whether large objects in runs were freed or shrunk twice in succession, or for one of the first few times,
 * and none was allocated or grown since.  Does not see those that come and go through standby.  Takes no
 * lock.
 */
bool page_large_fell(void);
/* Returns how many free pages are resident.  Takes no lock. */
size_t page_dirty(void);
/*
 * Whether many pages were taken since it last returned true: a sixteenth of the heap from the system, or as
 * much including what slabs found free.  The rooms above then give back what they hoard: before the heap
 * grows much further, and before memory that one cache has freed serves others while so many of its objects
 * sit in hoards that its next allocations find nothing.
 */
bool page_wants_hoards(void);
/*
 * Begins an ebb: most of the program's memory is freed, perhaps for good.  Until the program takes more than
 * a few pages again, no more free pages stay resident than it uses; the rest of a huge page in which the heap
 * ends and the records of the pages of long free runs go too.  When little is left (`low`), so do all but a
 * few free metadata pages; earlier, the next frees would need some of them again.  The work is left to
 * page_purge(false), which is due from now on.
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

/* Names for a reader of this process's memory what it must know of this room (see report/root.h). */
void page_show(void (*show)(const char *name, uintptr_t value, size_t size));

/* ---- metadata ------------------------------------------------------------------------------------------ */

/* Blocks larger than METADATA_REUSED_MOST bytes are never reused. */
enum { METADATA_REUSED_MOST = 64 * METADATA_UNIT };

/*
 * Returns a block aligned to METADATA_UNIT, or NULL when the system has no more memory.  Fresh blocks are
 * zeroed; reused ones hold what their previous owner, of whatever size, left.
 */
void *metadata_alloc(size_t bytes);
/* The same, but returns NULL rather than wait for another thread. */
void *metadata_try_alloc(size_t bytes);
/*
 * The same for a block that will not be freed except on an error path.  Such blocks lie together, up to a
 * page of them, so that other blocks' pages can go back.  `waits`: for another thread.
 */
void *metadata_alloc_lasting(size_t bytes, bool waits);
/* `bytes` as passed to the allocation.  The block may read as zero from now on, but stays mapped. */
void metadata_free(void *block, size_t bytes);

/*
 * Returns how many bytes from page_front.metadata on are, or were, blocks.  They stay mapped, for readers of
 * blocks that may have been freed meanwhile.  Never decreases.
 */
size_t metadata_end(void);

/* ---- huge: mappings of their own, outside the heap ----------------------------------------------------- */

/*
 * From now on puts each mapping between two inaccessible pages, and makes a freed one inaccessible before it
 * is unmapped.  To be called before the first mapping is made.
 */
void huge_isolate(void);
/* Whether mappings are isolated so.  Then all large objects are mappings. */
bool huge_is_isolated(void);
/* Maps `bytes`, aligned to `alignment` bytes, a power of two.  *zeroed tells whether they read as zero. */
void *huge_alloc(size_t bytes, size_t alignment, bool *zeroed);
/* Returns the bytes mapped for the object at `address`; 0 when there is no such mapping. */
size_t huge_bytes(const void *address);
/* The object of the mapping whose first page contains an address; NULL for none. */
void *huge_in_page(const void *address);
/* Returns false when there is no such mapping. */
bool huge_free(void *address);
/*
 * Resizes a mapping, and moves it if necessary.  Returns NULL when the system has no more; the old one then
 * stays.
 */
void *huge_resize(void *address, size_t bytes);
/*
 * Makes an object with a mapping of `bytes` from one of the heap, which begins `offset` bytes into a run of
 * `old` bytes, and takes over its pages.  The caller frees the run; *emptied tells whether nothing is left in
 * it. Returns NULL when there is no memory.  Not for isolated mappings.
 */
void *huge_take_over(void *run, size_t old, unsigned offset, size_t bytes, bool *emptied);
/*
 * Returns cached mappings to the system: of those older than the decay time PAGE_PURGE_MOST pages, from the
 * mappings' ends; or all.
 */
void huge_purge(bool all);
/* Whether the last huge_purge() left something overdue.  Takes no lock. */
bool huge_is_behind(void);
/* Returns the bytes of all mappings in use.  Takes no lock. */
size_t huge_mapped(void);
/* Returns how many pages the cached mappings have.  Takes no lock. */
size_t huge_waiting(void);
bool huge_is_torn(void);
void huge_repair(bool all);
void huge_statistics(struct page_statistics *statistics);
void huge_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
