/* SPDX-License-Identifier: MIT */
#include "page/page.h"

#include <assert.h>

#include "arch/minmax.h"
#include "arch/probe.h"
#include "lock/single.h"
#include "options/options.h"
#include "page/block.h"
#include "page/headroom.h"
#include "page/layout.h"
#include "page/metadata.h"
#include "page/run.h"
#include "page/standby.h"
#include "page/tide.h"

/*
 * Free runs lie in bins by length: one bin for each length up to EXACT pages, then four for each doubling.
 * Dirty and clean runs have bins of their own and do not coalesce with each other, so that a request is
 * served from resident memory first and a clean run stays known to read as zero.
 */
enum { EXACT = 64, BINS = EXACT + 4 * 24, BITMAP_WORDS = (BINS + 63) / 64 };

enum {
	HOARDS_PART = 16,                        /* of the heap, when taken, brings hoards back */
	HOARDS_FRESH = (1 << 20) >> PAGE_SHIFT,  /* but at least so many pages from the system */
	HOARDS_ANY = (4 << 20) >> PAGE_SHIFT,    /* or from wherever: small heaps turn over fast */
	DIRTY_FLOOR = (512 << 10) >> PAGE_SHIFT, /* pages that may be dirty in any case */
	PEAK_SLACK = 32,                         /* and this part of the peak */
	WINDOW_PARTS = 8,                        /* pages taken that make the past, in parts of the peak */
	MISSED_MOST = 2,                         /* of the peak may stay of what was given back and missed */
	REGRET = 2,                              /* a page counts as so many: it is learned sooner */
	SPAN_LEAST = 64,                         /* pages worth a look for neighbours */
	TIDE_FORGET = 64,                        /* ticks until one fall in vain is forgotten */
	GATHERED_PART = 8,                       /* of the pages in use, that gather in an ebb */
	GATHERED_MOST = 64,                      /* but no more pages than this */
	EBB_TAKEN = 32,                          /* pages, that may be taken while it lasts */
	FEW_FREED = 32,                          /* large objects, of which none is one that is replaced */
	BARE_LEAST = 512,                        /* pages of a clean run, of which the records go back */
	RESTS_PART = 8,                          /* of the pages in use: so many wait */
	PURGE_TIMES = 2,      /* as many pages as a call takes or frees it gives back, and PAGE_PURGE_MOST */
	PURGE_TIMES_LAST = 4, /* where it frees the last large object of all, in an ebb */
	HEADROOM_PART = 4,    /* so many times its pages are kept behind a run that grows, if they are new */
};

struct bins {
	uint64_t filled[BITMAP_WORDS];
	uint32_t head[BINS];
};

static struct cpuslab_spinlock page_lock = CPUSLAB_SPINLOCK_INITIALIZER;
static struct bins bins[2];
static uint32_t oldest = RUN_NONE, newest = RUN_NONE; /* dirty runs */
static uint32_t top;                                  /* pages from here on have never been used */
static size_t peak; /* the most pages that were in use at once of late; fades with every tick */
static struct {
	size_t most;  /* pages in use at once since it began */
	size_t taken; /* pages */
} window;
static bool ebbing;      /* since page_ebb, or an ebb of large objects, only few pages were taken */
static size_t ebb_taken; /* these */
static bool bare_due;    /* since page_ebb no records have gone back */
/* Of large_pages. */
static struct tide large_tide = {.lasts = true, .passed_log = 4, .more_log = 4, .most_log = 12};
static bool large_freed;  /* a large object was, since one was taken */
static bool large_fell;   /* two in turn were, or more; or it was one of the first */
static uint8_t few_freed; /* large objects, up to FEW_FREED */
static size_t missed;     /* pages that were given back too soon; fades with every tick */
static size_t given_back; /* pages that were too many, and may turn out to be missed; fades as well */
static size_t in_transit; /* pages that are being purged, without the lock */
static size_t retired;    /* pages that are never used again */
static size_t hollow;     /* pages in use that take no memory; without the lock */
static bool behind;       /* the last purge met its bound before its end */
static size_t free_pages[2], large_pages, large_runs, purged_total, lock_acquires;
static size_t taken, taken_fresh; /* pages since page_wants_hoards said so; of them, those from the system */

static void lock_pages(void)
{
	lock_spin_single(&page_lock);
	lock_acquires++;
}

static void unlock_pages(void)
{
	cpuslab_spin_unlock(&page_lock);
}

static struct run *run_at(uint32_t page)
{
	return (struct run *)layout.runs.base + page;
}

static uint16_t *map_at(uint32_t page)
{
	return page_front.map + page_front.heap_page + page;
}

static char *address_of(uint32_t page)
{
	return layout.heap.base + ((size_t)page << PAGE_SHIFT);
}

static uint32_t number_of(const void *address)
{
	return (uint32_t)(page_of(address) - page_front.heap_page);
}

static void set_id(uint32_t page, uint16_t id)
{
	__atomic_store_n(map_at(page), id, __ATOMIC_RELEASE);
}

static size_t used_pages(void)
{
	return top - free_pages[RUN_CLEAN] - free_pages[RUN_DIRTY] - headroom_pages() - in_transit - retired;
}

/* How much of what was missed may stay the next time. */
static size_t missed_allowance(void)
{
	return min_t(size_t, missed, peak / MISSED_MOST);
}

/* Pages in use that take memory. */
static size_t filled_pages(void)
{
	size_t used = used_pages(), empty = __atomic_load_n(&hollow, __ATOMIC_RELAXED);

	return used > empty ? used - empty : 0;
}

/*
 * How many dirty pages may lie around: what the program has needed of late beyond what it uses now.  Kept,
 * they save page faults and never raise the peak of resident memory, since used and dirty pages together
 * stay within what was in use at once.  In an ebb no more than it still uses.  The floor is for programs too
 * small to have a history.  But blocks of many sizes leave gaps that the next one does not fit into: what was
 * given back for being too much, and soon taken from the system again, may stay the next time, up to half of
 * the peak beyond it.
 */
static size_t dirty_allowance(void)
{
	size_t used = filled_pages(), limit = options.dirty >> PAGE_SHIFT;
	size_t allowance =
		DIRTY_FLOOR + peak / PEAK_SLACK + (peak > used ? peak - used : 0) + missed_allowance();

	if (ebbing && allowance > used)
		allowance = used;
	return allowance < limit ? allowance : limit;
}

/*
 * What was long ago, by the pages taken since, is no longer likely: time alone would keep the peak of a
 * program that is done within a tick.
 */
static void begin_window(size_t used)
{
	if (peak > window.most)
		peak = window.most;
	window.most = used;
	window.taken = 0;
}

/* After pages were taken, of which `fresh` come from the system. */
static void note_use(uint32_t pages, uint32_t fresh)
{
	size_t used = filled_pages();

	if (used > peak)
		peak = used;
	if (used > window.most)
		window.most = used;
	window.taken += pages;
	if (window.taken > WINDOW_PARTS * peak)
		begin_window(used);
	ebb_taken += pages;
	if (ebb_taken > EBB_TAKEN)
		ebbing = false;
	taken_fresh += fresh;

	size_t regretted = fresh < given_back ? fresh : given_back;

	missed += REGRET * regretted;
	given_back -= regretted;
}

static void begin_ebb(void)
{
	ebbing = true;
	ebb_taken = 0;
}

/* Bytes in large objects: what stands by is none. */
static int64_t large_bytes(void)
{
	size_t runs, pages = standby_pages(&runs);
	int64_t out = (int64_t)large_pages - (int64_t)pages;

	/* What stands by may have grown into its headroom, which is not counted yet. */
	return out > 0 ? out << PAGE_SHIFT : 0;
}

/* Large objects have become more, or longer. */
static void note_large(uint32_t pages)
{
	large_pages += pages;
	large_freed = false;
	__atomic_store_n(&large_fell, false, __ATOMIC_RELAXED);
	tide_rose(&large_tide, large_bytes());
}

/*
 * They have become fewer: maybe for good, and then nobody comes here again.  A program that replaces its
 * largest one falls by more than half as well, until it has allocated the new one.  So a single free between
 * two allocations is no ebb, unless it leaves nothing.  A fall in vain costs a page fault for each page, and
 * programs that take and free all that they have do so often: then many are passed over.
 */
static void note_large_freed(uint32_t pages)
{
	bool replaced = !large_freed;

	large_pages -= pages;
	large_freed = true;
	/* Who replaces a block does so oftener than this. */
	if (few_freed < FEW_FREED)
		few_freed++;
	__atomic_store_n(&large_fell, !replaced || few_freed < FEW_FREED, __ATOMIC_RELAXED);

	int64_t bytes = large_bytes();

	if ((!replaced || !bytes) && tide_fell(&large_tide, bytes))
		begin_ebb();
}

/* As time passes: what the program has needed, and what it missed, is forgotten by an eighth. */
static void fade(void)
{
	static unsigned ticks;
	size_t used = filled_pages();

	if (peak > used)
		peak -= (peak - used) / 8;
	missed -= missed / 8;
	given_back -= given_back / 8;
	if (++ticks % TIDE_FORGET == 0)
		tide_forget(&large_tide);
}

static bool is_old(uint64_t now)
{
	return oldest != RUN_NONE && os_elapsed(run_at(oldest)->freed_at, now) >= options.decay;
}

static bool is_overdue(uint64_t now)
{
	return free_pages[RUN_DIRTY] > dirty_allowance() || is_old(now);
}

/*
 * Whether to purge what is overdue now.  In an ebb slabs become free one after the other: some gather, so
 * that they go by a few system calls instead of one each.
 */
static bool is_purge_due(uint64_t now)
{
	size_t gathered = 0;

	if (ebbing) {
		gathered = filled_pages() / GATHERED_PART;
		if (gathered > GATHERED_MOST)
			gathered = GATHERED_MOST;
	}
	return free_pages[RUN_DIRTY] > dirty_allowance() + gathered || is_old(now);
}

/* How much of a dirty run to purge when too many pages are dirty: not all of a large one, nor bit by bit. */
static uint32_t surplus_of(uint32_t pages)
{
	size_t allowance = dirty_allowance();
	size_t surplus = free_pages[RUN_DIRTY] > allowance ? free_pages[RUN_DIRTY] - allowance : 0;

	if (surplus < PAGE_PURGE_RUN)
		surplus = PAGE_PURGE_RUN;
	return surplus < pages ? (uint32_t)surplus : pages;
}

static void mark_ends(uint32_t first, uint32_t pages, uint16_t id)
{
	set_id(first + pages - 1, id);
	set_id(first, id);
}

/* Marks a run as used (or free again): every page for slabs, both ends for the others. */
static void mark(uint32_t first, uint32_t pages, uint16_t id)
{
	switch (id) {
	case PAGE_LARGE:
		run_at(first)->pages = pages;
		set_id(first + pages - 1, PAGE_LARGE_TAIL);
		set_id(first, PAGE_LARGE);
		break;
	case PAGE_TRANSIT:
		mark_ends(first, pages, id);
		break;
	default:
		for (uint32_t page = first; page < first + pages; page++)
			set_id(page, id);
	}
}

/* ---- bins ------------------------------------------------------------------------------------------- */

static unsigned bin_of(uint32_t pages)
{
	if (pages <= EXACT)
		return pages - 1;
	unsigned log = 31 - (unsigned)__builtin_clz(pages);
	unsigned bin = EXACT + (log - 6) * 4 + ((pages >> (log - 2)) & 3) - 1;

	return bin < BINS ? bin : BINS - 1;
}

static void insert(uint32_t first, uint32_t pages, enum run_state state, uint64_t freed_at)
{
	struct run *run = run_at(first), *last = run_at(first + pages - 1);
	unsigned bin = bin_of(pages);
	uint32_t *head = &bins[state].head[bin];

	last->pages = run->pages = pages;
	last->state = run->state = state;
	run->freed_at = freed_at;
	run->previous = RUN_NONE;
	run->next = *head;
	if (*head != RUN_NONE)
		run_at(*head)->previous = first;
	*head = first;
	bins[state].filled[bin / 64] |= 1ul << bin % 64;
	free_pages[state] += pages;
	if (state == RUN_DIRTY) {
		run->newer = RUN_NONE;
		run->older = newest;
		if (newest != RUN_NONE)
			run_at(newest)->newer = first;
		else
			oldest = first;
		newest = first;
	}
}

static void remove_run(uint32_t first)
{
	struct run *run = run_at(first);
	unsigned bin = bin_of(run->pages);
	struct bins *set = &bins[run->state];

	if (run->next != RUN_NONE)
		run_at(run->next)->previous = run->previous;
	if (run->previous != RUN_NONE)
		run_at(run->previous)->next = run->next;
	else {
		set->head[bin] = run->next;
		if (run->next == RUN_NONE)
			set->filled[bin / 64] &= ~(1ul << bin % 64);
	}
	free_pages[run->state] -= run->pages;
	if (run->state == RUN_DIRTY) {
		if (run->newer != RUN_NONE)
			run_at(run->newer)->older = run->older;
		else
			newest = run->older;
		if (run->older != RUN_NONE)
			run_at(run->older)->newer = run->newer;
		else
			oldest = run->newer;
	}
}

/* The smallest run of at least `pages` pages, as far as a short look into its bin tells; RUN_NONE if there is
 * none. */
static uint32_t best_fit(const struct bins *set, uint32_t pages)
{
	unsigned bin = bin_of(pages);

	for (unsigned word = bin / 64; word < BITMAP_WORDS; word++) {
		uint64_t filled = set->filled[word];

		if (word == bin / 64)
			filled &= ~0ul << bin % 64;
		for (; filled; filled &= filled - 1) {
			unsigned candidate = word * 64 + (unsigned)__builtin_ctzl(filled);
			uint32_t best = RUN_NONE;
			int looks = 32;

			for (uint32_t first = set->head[candidate]; first != RUN_NONE && looks > 0;
			     first = run_at(first)->next, looks--) {
				uint32_t length = run_at(first)->pages;

				if (length >= pages && (best == RUN_NONE || length < run_at(best)->pages ||
							(length == run_at(best)->pages && first < best)))
					best = first;
			}
			if (best != RUN_NONE)
				return best;
		}
	}
	return RUN_NONE;
}

/* Puts a free run back, together with its free neighbours of the same state. */
static void insert_coalesced(uint32_t first, uint32_t pages, enum run_state state, uint64_t freed_at)
{
	if (first > 0 && *map_at(first - 1) == PAGE_FREE && run_at(first - 1)->state == state) {
		uint32_t before = first - run_at(first - 1)->pages;

		pages += run_at(before)->pages;
		remove_run(before);
		first = before;
	}
	if (first + pages < top && *map_at(first + pages) == PAGE_FREE &&
	    run_at(first + pages)->state == state) {
		uint32_t after = first + pages;

		pages += run_at(after)->pages;
		remove_run(after);
	}
	insert(first, pages, state, freed_at);
}

/* Ends of a large run that is free from now on. */
static void unmark_large(uint32_t first, uint32_t pages)
{
	/* The end first: page_repair() trusts the beginning of a large run. */
	mark_ends(first, pages, PAGE_FREE);
	large_runs--;
}

/* What was kept behind a run and has become its own was taken just as well. */
static void note_grown(const struct headroom *headroom)
{
	if (!headroom->grown)
		return;
	note_use(headroom->grown, headroom->clean ? headroom->grown : 0);
	note_large(headroom->grown);
}

/* What is kept in a place is free as any other run.  Whether there was anything. */
static bool recall_headroom(unsigned place)
{
	struct headroom headroom;

	if (!headroom_take(place, &headroom))
		return false;
	note_grown(&headroom);
	if (!headroom.pages)
		return false;
	mark_ends(headroom.start, headroom.pages, PAGE_FREE);
	if (headroom.clean)
		insert_coalesced(headroom.start, headroom.pages, RUN_CLEAN, 0);
	else
		insert_coalesced(headroom.start, headroom.pages, RUN_DIRTY, os_milliseconds());
	return true;
}

/* All of it, or what is dirty.  Out of line: most programs never have any. */
static __attribute__((noinline)) bool recall_all_headroom(bool clean)
{
	struct headroom headroom;
	bool any = false;

	for (unsigned place = 0; place < HEADROOM_PLACES; place++)
		if (headroom_look(place, &headroom)) {
			note_grown(&headroom);
			if (clean || !headroom.clean)
				any |= recall_headroom(place);
		}
	return any;
}

/* Before a large run is freed or shrinks: what it has grown by is counted, and what is behind it is free. */
static void end_growth(uint32_t first, uint32_t pages)
{
	unsigned place = headroom_place(first);
	struct headroom headroom;

	if (!headroom_look(place, &headroom))
		return;
	note_grown(&headroom);
	if (headroom.start == first + pages)
		(void)recall_headroom(place);
}

/* What stands by is free as any other run.  Whether there was anything. */
static bool recall_standby(void)
{
	uint32_t first, pages;
	bool any = false;

	while ((pages = standby_recall(&first))) {
		large_pages -= pages;
		unmark_large(first, pages);
		insert_coalesced(first, pages, RUN_DIRTY, os_milliseconds());
		any = true;
	}
	return any;
}

/* Whether anything resident that waits for somebody is free as any other run now. */
static bool recall_dirty(void)
{
	bool standby = recall_standby();

	return (headroom_is_kept() && recall_all_headroom(false)) || standby;
}

/* All that waits for somebody. */
static void recall(void)
{
	(void)recall_standby();
	if (headroom_is_kept())
		(void)recall_all_headroom(true);
}

/* ---- spans: neighbouring free runs of either state --------------------------------------------------- */

/* The start of the free run that ends before `page`, where a run starts; RUN_NONE if there is none. */
static uint32_t free_before(uint32_t page)
{
	return page > 0 && *map_at(page - 1) == PAGE_FREE ? page - run_at(page - 1)->pages : RUN_NONE;
}

/* Where the free runs that end before `page` begin. */
static uint32_t span_start(uint32_t page)
{
	for (uint32_t before = free_before(page); before != RUN_NONE; before = free_before(page))
		page = before;
	return page;
}

/* Where the free runs that start at `page` end. */
static uint32_t span_end(uint32_t page)
{
	while (page < top && *map_at(page) == PAGE_FREE)
		page += run_at(page)->pages;
	return page;
}

/*
 * Where `pages` pages lie free in a row from *first on around a dirty run, the largest that will do as far as
 * a short look tells: the start of a run at or before *first, or RUN_NONE.  A request that no dirty run can
 * serve alone would else get new memory, while what is dirty must be purged to make room for it.
 */
static uint32_t dirty_span(uint32_t pages, uint32_t *first)
{
	int looks = 16;

	for (int word = BITMAP_WORDS - 1; word >= 0; word--)
		for (uint64_t filled = bins[RUN_DIRTY].filled[word]; filled;) {
			unsigned bit = 63 - (unsigned)__builtin_clzl(filled);

			filled &= ~(1ul << bit);
			for (uint32_t run = bins[RUN_DIRTY].head[(unsigned)word * 64 + bit]; run != RUN_NONE;
			     run = run_at(run)->next) {
				uint32_t start = span_start(run), end = span_end(run);

				if (end - start >= pages) {
					*first = end - run >= pages ? run : end - pages;
					return start;
				}
				if (--looks == 0)
					return RUN_NONE;
			}
		}
	return RUN_NONE;
}

/*
 * Takes the free pages from `first` to `end` out of their runs, of which one begins at `start`, at or before
 * `first`.  Returns how many of them are clean.
 */
static uint32_t take_span(uint32_t start, uint32_t first, uint32_t end)
{
	uint32_t clean = 0;

	for (uint32_t at = start, next; at < end; at = next) {
		struct run run = *run_at(at);

		next = at + run.pages;
		if (next <= first)
			continue;
		remove_run(at);
		if (at < first)
			insert(at, first - at, run.state, run.freed_at);
		if (next > end)
			insert(end, next - end, run.state, run.freed_at);
		if (run.state == RUN_CLEAN)
			clean += (next < end ? next : end) - (at > first ? at : first);
	}
	return clean;
}

/* Pages that have just been taken from the free ones. */
struct taking {
	uint32_t first;        /* RUN_NONE where there was nothing to take */
	uint32_t fresh;        /* how many of them are clean */
	struct blocks entered; /* what the heap has grown into for them */
};

static const struct taking nothing = {.first = RUN_NONE};

/*
 * Makes so many pages usable, together with what stands beside them: that first, since the heap's step, where
 * it is the last that the system grants, would be of no use without it.
 */
static bool grow_heap(size_t end)
{
	if (end > layout.heap.planned >> PAGE_SHIFT || !region_grow(&layout.map, end * sizeof(uint16_t)) ||
	    !region_grow(&layout.slab_of, end * sizeof(uint32_t)) ||
	    !region_grow(&layout.runs, end * sizeof(struct run)) ||
	    (layout.marks.planned &&
	     !region_grow(&layout.marks, (end << PAGE_SHIFT) / PAGE_MARK_UNIT * sizeof(uint16_t))) ||
	    !region_grow(&layout.heap, end << PAGE_SHIFT))
		return false;
	layout_open();
	return true;
}

/*
 * Takes pages at the end of the heap: those that are free there, if alignment does not matter, and then such
 * as were never used.  What alignment skips becomes a clean run.
 *
 * There may be enough that are free: the callers look into some runs, one by one or around dirty ones.  The
 * end of the heap stays where it is, then: what lies beyond it counts as zero.
 *
 * Who must not wait leaves what metadata then lacks to whoever grows the heap next.
 */
static struct taking extend(uint32_t pages, uint32_t alignment, bool waits)
{
	uint32_t first = alignment > 1 ? (top + alignment - 1) & ~(alignment - 1) : span_start(top);
	size_t end = (size_t)first + pages;

	if (end <= top)
		return (struct taking){.first = first, .fresh = take_span(first, first, (uint32_t)end)};
	/* If not, the heap itself may still do. */
	if (end << PAGE_SHIFT > layout.heap.committed)
		(void)(waits ? metadata_provide(end << PAGE_SHIFT) : metadata_try_provide(end << PAGE_SHIFT));
	if (!grow_heap(end))
		return nothing;

	struct taking taking = {
		.first = first, .fresh = pages, .entered = block_heap_grown(top, (uint32_t)end)};
	uint32_t skipped = top;

	if (first < top)
		taking.fresh = (uint32_t)end - top + take_span(first, first, top);
	/* Before the new end is known: what lies behind the skipped pages is no free run. */
	if (skipped < first) {
		top = first;
		insert_coalesced(skipped, first - skipped, RUN_CLEAN, 0);
	}
	top = (uint32_t)end;
	return taking;
}

/* Cuts an aligned part out of the free run at `found` and puts the rest back. */
static uint32_t carve(uint32_t found, uint32_t pages, uint32_t alignment)
{
	struct run run = *run_at(found);
	uint32_t first = (found + alignment - 1) & ~(alignment - 1);
	uint32_t before = first - found, after = run.pages - before - pages;

	assert(before + pages <= run.pages);
	remove_run(found);
	if (before)
		insert(found, before, run.state, run.freed_at);
	if (after)
		insert(first + pages, after, run.state, run.freed_at);
	return first;
}

/* The largest run, as far as a short look tells; RUN_NONE if it has not `pages` pages. */
static uint32_t widest(const struct bins *set, uint32_t pages)
{
	for (int word = BITMAP_WORDS - 1; word >= 0; word--)
		if (set->filled[word]) {
			unsigned bin = (unsigned)word * 64 + 63 - (unsigned)__builtin_clzl(set->filled[word]);
			uint32_t first = set->head[bin];

			return run_at(first)->pages >= pages ? first : RUN_NONE;
		}
	return RUN_NONE;
}

/* In place of an alignment. */
enum { TO_GROW = 0 };

/* For a run that will grow: where as much again is free behind it, or at the end of the heap. */
static struct taking take_pages_to_grow(uint32_t pages)
{
	uint32_t found = widest(&bins[RUN_DIRTY], 2 * pages);

	if (found == RUN_NONE && recall_dirty())
		found = widest(&bins[RUN_DIRTY], 2 * pages);
	if (found != RUN_NONE)
		return (struct taking){.first = carve(found, pages, 1)};
	found = widest(&bins[RUN_CLEAN], 2 * pages);
	if (found == RUN_NONE)
		return extend(pages, 1, true);
	return (struct taking){.first = carve(found, pages, 1), .fresh = pages};
}

/* A run that has an aligned part of so many pages, though it may be too short for one that lies elsewhere. */
static uint32_t lucky_fit(const struct bins *set, uint32_t pages, uint32_t alignment)
{
	for (unsigned bin = bin_of(pages), last = bin_of(pages + alignment - 1); bin <= last; bin++)
		for (uint32_t found = set->head[bin]; found != RUN_NONE; found = run_at(found)->next) {
			uint32_t first = (found + alignment - 1) & ~(alignment - 1);

			if (first + pages <= found + run_at(found)->pages)
				return found;
		}
	return RUN_NONE;
}

/* Where the heap cannot grow: what a short look has not found, or not dared to count on. */
static __attribute__((noinline, cold)) struct taking take_leavings(uint32_t pages, uint32_t alignment)
{
	uint32_t found = lucky_fit(&bins[RUN_DIRTY], pages, alignment);

	if (found != RUN_NONE)
		return (struct taking){.first = carve(found, pages, alignment)};
	found = lucky_fit(&bins[RUN_CLEAN], pages, alignment);
	if (found == RUN_NONE)
		return nothing;
	return (struct taking){.first = carve(found, pages, alignment), .fresh = pages};
}

/* Resident memory first; only then memory that must be taken from the system. */
static struct taking take_pages(uint32_t pages, uint32_t alignment, bool waits)
{
	uint32_t found = best_fit(&bins[RUN_DIRTY], pages + alignment - 1);

	if (found == RUN_NONE && recall_dirty())
		found = best_fit(&bins[RUN_DIRTY], pages + alignment - 1);
	if (found != RUN_NONE)
		return (struct taking){.first = carve(found, pages, alignment)};
	if (alignment == 1 && pages >= SPAN_LEAST) {
		uint32_t first;

		found = dirty_span(pages, &first);
		if (found != RUN_NONE)
			return (struct taking){.first = first,
					       .fresh = take_span(found, first, first + pages)};
	}
	found = best_fit(&bins[RUN_CLEAN], pages + alignment - 1);
	if (found != RUN_NONE)
		return (struct taking){.first = carve(found, pages, alignment), .fresh = pages};

	struct taking taking = extend(pages, alignment, waits);

	return __builtin_expect(taking.first != RUN_NONE, 1) ? taking : take_leavings(pages, alignment);
}

/*
 * Pages from `start` on that are free in one run, or to be had without asking the system: so many at most
 * where they would be new.
 */
static struct headroom take_behind(uint32_t start, uint32_t pages)
{
	if (start < top) {
		if (*map_at(start) != PAGE_FREE)
			return (struct headroom){0};
		/* What is resident costs nobody anything, as long as nobody else wants it. */
		if (run_at(start)->state == RUN_DIRTY)
			pages = HEADROOM_MOST;
		pages = min_t(uint32_t, pages, run_at(start)->pages);
		return (struct headroom){
			.start = start, .pages = pages, .clean = take_span(start, start, start + pages)};
	}
	pages = min_t(uint32_t, pages, (uint32_t)(layout.heap.committed >> PAGE_SHIFT) - top);
	/* Nor does it begin a block that may be a huge page, which is for who uses it. */
	if (top + pages > BLOCK_SMALL_HEAP >> PAGE_SHIFT)
		pages = min_t(uint32_t, pages, -top % BLOCK_PAGES);
	if (!pages || extend(pages, 1, true).first == RUN_NONE)
		return (struct headroom){0};
	return (struct headroom){.start = start, .pages = pages, .clean = true};
}

/* After a large run has grown: what is free behind it is kept for the next times. */
static void keep_headroom(uint32_t first, uint32_t pages)
{
	unsigned place = headroom_place(first);

	(void)recall_headroom(place);
	if (!headroom_is_empty(place))
		return;

	uint32_t most = min_t(uint32_t, HEADROOM_MOST, HEADROOM_PART * pages);
	struct headroom headroom = take_behind(first + pages, most);

	if (!headroom.pages)
		return;
	mark_ends(headroom.start, headroom.pages, PAGE_TRANSIT);
	headroom_put(place, headroom);
}

/* ---- purging ------------------------------------------------------------------------------------------ */

/* Makes what is left of a purged run, if anything, the oldest again: it is as old as it was. */
static void stay_oldest(uint32_t first)
{
	struct run *run = run_at(first);

	if (oldest == first)
		return;
	run_at(run->older)->newer = run->newer;
	if (run->newer != RUN_NONE)
		run_at(run->newer)->older = run->older;
	else
		newest = run->older;
	run->older = RUN_NONE;
	run->newer = oldest;
	run_at(oldest)->older = first;
	oldest = first;
}

/*
 * With the lock: takes out of the oldest dirty run what is to be purged next, `most` pages of it, and returns
 * how many; 0 when nothing is.  Neither free nor used, they are marked as in transit.
 */
static uint32_t take_overdue(bool all, uint64_t now, size_t most, uint32_t *first)
{
	uint32_t start = oldest, pages, part;

	if (start == RUN_NONE || !(all || is_overdue(now)))
		return 0;
	bool old = all || is_old(now);

	*first = start;
	pages = run_at(start)->pages;
	part = old ? pages : surplus_of(pages);
	if (part > most)
		part = (uint32_t)most;
	if (part < pages)
		part = block_surplus(first, pages, part);
	in_transit += part;
	if (!old)
		given_back += part;

	uint32_t end = *first + part;

	(void)take_span(start, *first, end);
	/*
	 * The part behind first, so that it comes second.  What was too much and is not old had its turn:
	 * runs that lose a part each serve more requests than one that is eaten up.
	 */
	if (old && end < start + pages)
		stay_oldest(end);
	if (old && start < *first)
		stay_oldest(start);
	mark(*first, part, PAGE_TRANSIT);
	return part;
}

/* Runs on their way to the system. */
struct purging {
	unsigned count, purged; /* of them, the first so many are there */
	size_t done;            /* pages, as they count */
	struct purged_run {
		uint32_t first, pages;
	} runs[OS_RANGES];
};

/* With the lock: takes the next ones, while no more than `most` pages are done. */
static void take_several(struct purging *purging, bool all, uint64_t now, size_t most)
{
	const size_t least = os_purges_several() ? PAGE_PURGE_PART : PAGE_PURGE_RUN;

	for (purging->count = 0; purging->count < OS_RANGES && purging->done < most; purging->count++) {
		struct purged_run *run = &purging->runs[purging->count];

		run->pages = take_overdue(all, now, most - purging->done, &run->first);
		if (!run->pages)
			return;
		purging->done += max_t(size_t, run->pages, least);
	}
}

/* Without the lock. */
static void purge_several(struct purging *purging)
{
	struct os_range ranges[OS_RANGES];

	for (unsigned i = 0; i < purging->count; i++) {
		struct purged_run run = purging->runs[i];

		block_purge(run.first, run.pages);
		ranges[i] = (struct os_range){address_of(run.first), (size_t)run.pages << PAGE_SHIFT};
		ARCH_PROBE("purge", (uintptr_t)ranges[i].address, ranges[i].bytes);
	}
	purging->purged = os_purge_several(ranges, purging->count);
}

/* With the lock. */
static void put_purged(const struct purging *purging, uint64_t now)
{
	for (unsigned i = 0; i < purging->count; i++) {
		struct purged_run run = purging->runs[i];
		bool purged = i < purging->purged;

		mark_ends(run.first, run.pages, PAGE_FREE);
		in_transit -= run.pages;
		if (purged)
			purged_total += run.pages;
		insert_coalesced(run.first, run.pages, purged ? RUN_CLEAN : RUN_DIRTY, now);
	}
}

/*
 * Gives back what is overdue, or all: `most` pages, in runs of which each counts for some at least, so that
 * what one call does has a bound.  The last run may be larger by less than a block.
 */
static void purge_runs(bool all, size_t most)
{
	uint64_t now = os_milliseconds();
	struct purging purging = {0};

	do {
		lock_pages();
		put_purged(&purging, now);
		bool refused = purging.purged < purging.count;

		take_several(&purging, all, now, refused ? 0 : most);
		if (!purging.count)
			__atomic_store_n(&behind, !refused && is_purge_due(now), __ATOMIC_RELAXED);
		unlock_pages();
		if (purging.count)
			purge_several(&purging);
	} while (purging.count);
}

/*
 * Of a clean run only the first record and the last one say anything.  Those between them read as zero from
 * then on, as they do before their first use; nobody looks at them, and with the lock nobody cuts the run.
 */
static void give_back_records(void)
{
	struct os_range ranges[OS_RANGES];
	unsigned count = 0;

	lock_pages();
	for (unsigned bin = BINS - 1; bin > bin_of(BARE_LEAST); bin--)
		for (uint32_t first = bins[RUN_CLEAN].head[bin]; first != RUN_NONE && count < OS_RANGES;
		     first = run_at(first)->next) {
			uintptr_t from = (uintptr_t)(run_at(first) + 1) + PAGE_BYTES - 1;
			uintptr_t to = (uintptr_t)(run_at(first) + run_at(first)->pages - 1);

			from &= -(uintptr_t)PAGE_BYTES;
			to &= -(uintptr_t)PAGE_BYTES;
			ranges[count++] = (struct os_range){(void *)from, to - from};
		}
	(void)os_purge_several(ranges, count);
	__atomic_store_n(&bare_due, false, __ATOMIC_RELAXED);
	unlock_pages();
}

/*
 * Where the heap ends in a huge page the rest of that is resident, too.  It becomes a free run, so that it
 * can go back with the others.
 */
static void take_over_block(void)
{
	uint32_t first = top, end = (first + BLOCK_PAGES - 1) / BLOCK_PAGES * BLOCK_PAGES;

	if (first == end || !block_was_advised(first / BLOCK_PAGES) || !grow_heap(end))
		return;
	top = end;
	insert_coalesced(first, end - first, RUN_DIRTY, os_milliseconds());
}

/* ---- the room's functions ------------------------------------------------------------------------------ */

/* What an allocation leaves to do without the lock. */
struct rest {
	bool over;           /* what is dirty did not fit, and must make room for what did */
	bool renew;          /* the run is worth huge pages, and has others */
	struct blocks prove; /* it may have huge pages, if they are not dear */
};

/* With the lock. */
static void *alloc_locked(uint32_t pages, uint32_t alignment, uint16_t id, bool *zeroed, bool waits,
			  struct rest *rest)
{
	struct taking taking =
		alignment == TO_GROW ? take_pages_to_grow(pages) : take_pages(pages, alignment, waits);
	uint32_t first = taking.first, fresh = taking.fresh;

	*rest = (struct rest){0};
	if (first == RUN_NONE)
		return NULL;
	*zeroed = fresh == pages;
	note_use(pages, fresh);
	/* Not where a run grows: that mostly takes what such a run had the last time. */
	taken += pages;
	rest->over = fresh && free_pages[RUN_DIRTY] > dirty_allowance();
	if (id == PAGE_LARGE) {
		/* What it found free another one mostly was: hoards would come back for nothing. */
		taken -= pages - fresh;
		note_large(pages);
		standby_taken(pages);
		large_runs++;
		if (fresh >= BLOCK_PAGES)
			rest->prove = block_large(first, pages);
		else
			rest->renew = block_reused(first, pages);
	} else if (taking.entered.first * BLOCK_PAGES - first < pages) {
		/* Its first page is the run's, not one that alignment has skipped.  Slabs are filled. */
		rest->prove = taking.entered;
	}
	mark(first, pages, id);
	if (alignment == TO_GROW)
		keep_headroom(first, pages);
	return address_of(first);
}

/* Runs are aligned by their numbers, which are addresses' only up to where the heap starts. */
static bool is_possible(size_t pages, size_t alignment)
{
	return pages && alignment <= LAYOUT_GRAIN >> PAGE_SHIFT &&
	       pages + alignment <= layout.heap.planned >> PAGE_SHIFT;
}

void *page_alloc(size_t pages, size_t alignment, uint16_t id, bool *zeroed)
{
	struct rest rest;

	if (!is_possible(pages, alignment))
		return NULL;
	lock_pages();
	void *run = alloc_locked((uint32_t)pages, (uint32_t)alignment, id, zeroed, true, &rest);

	unlock_pages();
	block_prove(rest.prove);
	if (rest.renew)
		block_renew(number_of(run), (uint32_t)pages);
	if (rest.over)
		purge_runs(false, PAGE_PURGE_MOST + PURGE_TIMES * pages);
	return run;
}

void *page_alloc_to_grow(size_t pages, bool *zeroed)
{
	return page_alloc(pages, TO_GROW, PAGE_LARGE, zeroed);
}

void *page_try_alloc(size_t pages, size_t alignment, uint16_t id, bool *zeroed)
{
	struct rest rest;

	if (!is_possible(pages, alignment) || !cpuslab_spin_trylock(&page_lock))
		return NULL;
	lock_acquires++;
	void *run = alloc_locked((uint32_t)pages, (uint32_t)alignment, id, zeroed, false, &rest);

	unlock_pages();
	return run;
}

void page_free(void *address, size_t length)
{
	uint32_t first = number_of(address), pages = (uint32_t)length;
	uint64_t now = os_milliseconds();
	bool large = *map_at(first) == PAGE_LARGE;

	if (large)
		block_large_freed(first, pages);
	lock_pages();
	if (large) {
		end_growth(first, pages);
		note_large_freed(pages);
		standby_freed(pages);
		/* Before the run here looks free to those beside it: it is in no bin yet. */
		if (ebbing)
			recall();
		unmark_large(first, pages);
	} else {
		mark(first, pages, PAGE_FREE);
	}
	insert_coalesced(first, pages, RUN_DIRTY, now);

	bool due = large ? is_overdue(now) : is_purge_due(now);

	/* In an ebb slabs become free several at a time: their pages go by the next call of page_purge. */
	if (due && ebbing && !large) {
		__atomic_store_n(&behind, true, __ATOMIC_RELAXED);
		due = false;
	}
	/* The last one: there may be no further call to go on. */
	unsigned times = large && ebbing && !large_bytes() ? PURGE_TIMES_LAST : PURGE_TIMES;

	unlock_pages();
	if (due)
		purge_runs(false, PAGE_PURGE_MOST + times * length);
}

/*
 * The marks of a run that is retired go, too.  Of a page of marks that it shares with its neighbours, when
 * they are retired as well.
 */
static void purge_marks(uint32_t first, uint32_t end)
{
	enum { MARKED = PAGE_MARK_UNIT / sizeof(uint16_t) }; /* pages of the heap by one page of marks */

	if (!layout.marks.planned)
		return;
	for (int i = 0; i < MARKED && first > 0 && *map_at(first - 1) == PAGE_RETIRED; i++)
		first--;
	for (int i = 0; i < MARKED && end < top && *map_at(end) == PAGE_RETIRED; i++)
		end++;
	first = (first + MARKED - 1) / MARKED * MARKED;
	end = end / MARKED * MARKED;
	if (first < end)
		(void)os_purge(page_mark(address_of(first)), (size_t)(end - first) / MARKED << PAGE_SHIFT);
}

void page_count_purged(size_t pages)
{
	lock_pages();
	purged_total += pages;
	unlock_pages();
}

void page_retire(void *address, size_t length, bool forbidden)
{
	uint32_t first = number_of(address), pages = (uint32_t)length;

	lock_pages();
	/* The first page first: it tells slab_repair_pages, in a forked child, that the others were next. */
	mark(first, pages, PAGE_RETIRED);
	retired += pages;
	unlock_pages();
	if (os_purge(address, length << PAGE_SHIFT) == 0)
		page_count_purged(pages);
	if (forbidden)
		(void)os_forbid(address, length << PAGE_SHIFT);
	purge_marks(first, first + pages);
}

unsigned page_hollow(const struct os_range *ranges, unsigned count)
{
	size_t pages = 0;

	for (unsigned i = 0; i < count; i++) {
		block_purge(number_of(ranges[i].address), (uint32_t)(ranges[i].bytes >> PAGE_SHIFT));
		ARCH_PROBE("purge", (uintptr_t)ranges[i].address, ranges[i].bytes);
	}
	count = os_purge_several(ranges, count);
	for (unsigned i = 0; i < count; i++)
		pages += ranges[i].bytes >> PAGE_SHIFT;
	lock_pages();
	purged_total += pages;
	/* With less in use fewer free pages may stay in an ebb. */
	if (ebbing)
		__atomic_store_n(&behind, true, __ATOMIC_RELAXED);
	unlock_pages();
	return count;
}

void page_count_hollow(long more)
{
	__atomic_fetch_add(&hollow, (size_t)more, __ATOMIC_RELAXED);
}

size_t page_large_pages(const void *address)
{
	return run_at(number_of(address))->pages;
}

static void shrink(uint32_t first, uint32_t old, uint32_t pages)
{
	end_growth(first, old);
	run_at(first)->pages = pages;
	set_id(first + old - 1, PAGE_FREE);
	if (pages > 1)
		set_id(first + pages - 1, PAGE_LARGE_TAIL);
	insert_coalesced(first + pages, old - pages, RUN_DIRTY, os_milliseconds());
	note_large_freed(old - pages);
}

/* Takes so many pages from `next` on, if they are free, or the heap ends before them. */
static bool take_next(uint32_t next, uint32_t pages, uint32_t *fresh)
{
	uint32_t end = span_end(next);

	if (end - next >= pages) {
		*fresh = take_span(next, next, next + pages);
		return true;
	}
	if (end != top)
		return false;

	struct taking taking = extend(pages, 1, true);

	*fresh = taking.fresh;
	return taking.first == next;
}

/* A large run, where it is. */
static bool grow(uint32_t first, uint32_t old, uint32_t pages, struct blocks *prove)
{
	uint32_t next = first + old, more = pages - old, fresh;

	end_growth(first, old);
	if (!take_next(next, more, &fresh)) {
		/* It may be what waits for others that is in the way. */
		recall();
		if (!take_next(next, more, &fresh))
			return false;
	}
	note_use(more, fresh);
	if (fresh >= BLOCK_PAGES)
		*prove = block_large(next, more);
	/* The length last: a repair in between sees the old, shorter run, and marks its end. */
	if (old > 1)
		set_id(next - 1, PAGE_FREE);
	set_id(first + pages - 1, PAGE_LARGE_TAIL);
	__atomic_store_n(&run_at(first)->pages, pages, __ATOMIC_RELEASE);
	note_large(more);
	keep_headroom(first, pages);
	return true;
}

bool page_large_resize(void *address, size_t wanted)
{
	uint32_t first = number_of(address), pages = (uint32_t)wanted;
	struct blocks prove = {0};
	bool done = true;

	if (wanted > layout.heap.planned >> PAGE_SHIFT)
		return false;
	lock_pages();
	uint32_t old = run_at(first)->pages;

	if (pages < old)
		shrink(first, old, pages);
	else if (pages > old)
		done = grow(first, old, pages, &prove);
	unlock_pages();
	block_prove(prove);
	return done;
}

/* When nothing else is left to go back.  Without the lock. */
static bool bare_is_due(void)
{
	return __atomic_load_n(&bare_due, __ATOMIC_RELAXED) && !__atomic_load_n(&behind, __ATOMIC_RELAXED);
}

/*
 * Steps are a convenience.  Where the system has refused one region even a page, the unused ends of what it
 * granted to others may be what is missing.  With the lock.
 */
static __attribute__((noinline)) void give_back_steps(void)
{
	__atomic_store_n(&layout_refused, false, __ATOMIC_RELAXED);
	region_shrink(&layout.heap, (size_t)top << PAGE_SHIFT);
	block_heap_shrunk();
	region_shrink(&layout.runs, top * sizeof(struct run));
	metadata_shrink();
}

void page_purge(bool all)
{
	if (all) {
		lock_pages();
		recall();
		if (__atomic_load_n(&layout_refused, __ATOMIC_RELAXED))
			give_back_steps();
		unlock_pages();
	}
	size_t most = __atomic_load_n(&ebbing, __ATOMIC_RELAXED) ? PAGE_PURGE_MOST / 2 : PAGE_PURGE_MOST;

	purge_runs(all, all ? SIZE_MAX : most);
	huge_purge(all);
	metadata_purge(all);
	if (all || bare_is_due())
		give_back_records();
}

/* What gives pages back is called where there are some alone: it lies where a small program has no pages. */
void page_tick(void)
{
	lock_pages();
	fade();
	recall();
	standby_forget();
	bool due = is_overdue(os_milliseconds());

	unlock_pages();
	metadata_tick();
	if (due || page_is_behind() || metadata_is_due())
		page_purge(false);
	else
		huge_purge(false);
}

void page_ebb(bool low)
{
	lock_pages();
	recall();
	take_over_block();
	begin_ebb();
	__atomic_store_n(&behind, true, __ATOMIC_RELAXED);
	__atomic_store_n(&bare_due, true, __ATOMIC_RELAXED);
	unlock_pages();
	if (low)
		metadata_ebb();
}

bool page_is_behind(void)
{
	return __atomic_load_n(&behind, __ATOMIC_RELAXED) || huge_is_behind() || metadata_is_behind() ||
	       bare_is_due();
}

bool page_large_fell(void)
{
	return __atomic_load_n(&large_fell, __ATOMIC_RELAXED);
}

bool page_rests(size_t least, size_t standing_by)
{
	size_t dirty = __atomic_load_n(&free_pages[RUN_DIRTY], __ATOMIC_RELAXED) + standing_by;
	size_t clean = __atomic_load_n(&free_pages[RUN_CLEAN], __ATOMIC_RELAXED);
	size_t waits = dirty + huge_waiting();

	return waits >= least &&
	       clean + dirty + RESTS_PART * waits >= __atomic_load_n(&top, __ATOMIC_RELAXED);
}

/* Without the lock: a late answer costs little, and the next caller sees it. */
static bool many_taken(void)
{
	size_t part = __atomic_load_n(&top, __ATOMIC_RELAXED) / HOARDS_PART;

	return __atomic_load_n(&taken_fresh, __ATOMIC_RELAXED) >= max_t(size_t, part, HOARDS_FRESH) ||
	       __atomic_load_n(&taken, __ATOMIC_RELAXED) >= max_t(size_t, part, HOARDS_ANY);
}

bool page_wants_hoards(void)
{
	if (!many_taken())
		return false;
	lock_pages();
	bool many = many_taken();

	if (many)
		taken = taken_fresh = 0;
	unlock_pages();
	return many;
}

void run_init(void)
{
	for (int state = 0; state < 2; state++)
		for (unsigned bin = 0; bin < BINS; bin++)
			bins[state].head[bin] = RUN_NONE;
}

/*
 * Makes bins, lists and counts anew from the page map.  What is not marked as used is free, and dirty for
 * all we know; a run whose owner died between taking and using it keeps its marks and is the loss.
 */
void run_repair(bool all)
{
	if (!cpuslab_spin_is_locked(&page_lock) && !all && !in_transit && !headroom_is_in_hand())
		return;
	cpuslab_spin_reset(&page_lock);
	in_transit = 0;

	run_init();
	for (int state = 0; state < 2; state++) {
		for (unsigned word = 0; word < BITMAP_WORDS; word++)
			bins[state].filled[word] = 0;
		free_pages[state] = 0;
	}
	oldest = newest = RUN_NONE;
	large_pages = large_runs = retired = 0;
	standby_repair();
	headroom_repair();

	uint64_t now = os_milliseconds();
	uint32_t start = 0;

	for (uint32_t page = 0; page <= top;) {
		uint16_t id = page < top ? *map_at(page) : PAGE_ID_RESERVED;

		if (id == PAGE_FREE || id == PAGE_TRANSIT || id == PAGE_LARGE_TAIL) {
			set_id(page++, PAGE_FREE);
			continue;
		}
		if (start < page)
			insert(start, page - start, RUN_DIRTY, now);
		if (id == PAGE_LARGE) {
			large_pages += run_at(page)->pages;
			large_runs++;
			/* A free or a resize may have been caught before the end was marked, or after. */
			if (run_at(page)->pages > 1)
				set_id(page + run_at(page)->pages - 1, PAGE_LARGE_TAIL);
			page += run_at(page)->pages;
		} else {
			retired += id == PAGE_RETIRED;
			page++;
		}
		start = page;
	}
}

size_t page_heap_pages(void)
{
	return __atomic_load_n(&top, __ATOMIC_RELAXED);
}

size_t page_heap_most(void)
{
	return layout.heap.planned;
}

void run_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("page.top", (uintptr_t)&top, sizeof top);
	/* Two counts: clean pages, dirty pages. */
	show("page.free", (uintptr_t)free_pages, sizeof free_pages);
	show("page.in_transit", (uintptr_t)&in_transit, sizeof in_transit);
	show("page.large", (uintptr_t)&large_pages, sizeof large_pages);
	show("page.large_runs", (uintptr_t)&large_runs, sizeof large_runs);
	show("page.purged", (uintptr_t)&purged_total, sizeof purged_total);
	show("page.lock_acquires", (uintptr_t)&lock_acquires, sizeof lock_acquires);
	standby_show(show);
	headroom_show(show);
	show("run", 0, sizeof(struct run));
	show("run.pages", offsetof(struct run, pages), sizeof(uint32_t));
	show("run.state", offsetof(struct run, state), sizeof(uint32_t));
}

void page_statistics(struct page_statistics *statistics)
{
	*statistics = (struct page_statistics){0};
	lock_pages();
	/* So that each page is either used or free. */
	(void)recall_all_headroom(true);

	size_t runs, pages = standby_pages(&runs);

	statistics->heap_pages = top;
	statistics->used_pages = used_pages() - pages;
	statistics->large_pages = large_pages - pages;
	statistics->large_runs = large_runs - runs;
	statistics->dirty_pages = free_pages[RUN_DIRTY] + pages;
	statistics->purged_pages_total = purged_total;
	statistics->lock_acquires = lock_acquires;
	statistics->metadata_bytes = metadata_bytes();
	unlock_pages();
	huge_statistics(statistics);
}
