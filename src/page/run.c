/* SPDX-License-Identifier: MIT */
#include "page/run.h"

#include <assert.h>

#include "arch/minmax.h"
#include "page/allowance.h"
#include "page/block.h"
#include "page/limit.h"
#include "page/metadata.h"
#include "page/omit.h"
#include "page/pocket.h"
#include "page/purge.h"

/*
 * Free runs lie in bins by length: one bin for each length up to EXACT pages, then four for each doubling.
 * Dirty and clean runs have bins of their own and do not coalesce with each other, so that a request is
 * served from resident memory first and a clean run stays known to read as zero.
 */
enum { EXACT = 64, BINS = EXACT + 4 * 24, BITMAP_WORDS = (BINS + 63) / 64 };

enum {
	SPAN_LEAST = 64,   /* pages of a request worth a search for spans */
	BARE_LEAST = 512,  /* pages of a clean run whose records go back */
	HEADROOM_PART = 4, /* most non-resident pages kept behind a growing run, per page of its own */
};

struct bins {
	uint64_t filled[BITMAP_WORDS];
	uint32_t head[BINS];
};

struct cpuslab_spinlock page_lock = CPUSLAB_SPINLOCK_INITIALIZER;
struct run_pages run_pages;
static struct bins bins[2];
uint32_t run_oldest = RUN_NONE;
static uint32_t newest = RUN_NONE;
static size_t large_runs, lock_acquires; /* pockets count their own takes and puts */
bool run_has_waited;

void run_lock(void)
{
	bool waits = cpuslab_spin_is_locked(&page_lock);

	lock_spin_single(&page_lock);
	run_has_waited = waits;
	lock_acquires++;
}

/* Marks a run as used or free: a large one at both ends, any other on every page. */
static void mark(uint32_t first, uint32_t pages, uint16_t id)
{
	if (id == PAGE_LARGE) {
		run_at(first)->pages = pages;
		run_set_id(first + pages - 1, PAGE_LARGE_TAIL);
		run_set_id(first, PAGE_LARGE);
		return;
	}
	for (uint32_t page = first; page < first + pages; page++)
		run_set_id(page, id);
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
	run_pages.free[state] += pages;
	if (state == RUN_DIRTY) {
		run->newer = RUN_NONE;
		run->older = newest;
		if (newest != RUN_NONE)
			run_at(newest)->newer = first;
		else
			run_oldest = first;
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
	run_pages.free[run->state] -= run->pages;
	if (run->state == RUN_DIRTY) {
		if (run->newer != RUN_NONE)
			run_at(run->newer)->older = run->older;
		else
			newest = run->older;
		if (run->older != RUN_NONE)
			run_at(run->older)->newer = run->newer;
		else
			run_oldest = run->newer;
	}
}

void run_stay_oldest(uint32_t first)
{
	struct run *run = run_at(first);

	if (run_oldest == first)
		return;
	run_at(run->older)->newer = run->newer;
	if (run->newer != RUN_NONE)
		run_at(run->newer)->older = run->older;
	else
		newest = run->older;
	run->older = RUN_NONE;
	run->newer = run_oldest;
	run_at(run_oldest)->older = first;
	run_oldest = first;
}

/*
 * Returns the smallest run of at least `pages` pages, and of equal ones the lowest, as far as a short look
 * into each bin tells; RUN_NONE for none.
 */
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

void run_insert(uint32_t first, uint32_t pages, enum run_state state, uint64_t freed_at)
{
	const uint32_t from = first, to = first + pages;

	if (first > 0 && *run_map_at(first - 1) == PAGE_FREE && run_at(first - 1)->state == state) {
		uint32_t before = first - run_at(first - 1)->pages;

		pages += run_at(before)->pages;
		remove_run(before);
		first = before;
	}
	if (first + pages < run_pages.top && *run_map_at(first + pages) == PAGE_FREE &&
	    run_at(first + pages)->state == state) {
		uint32_t after = first + pages;

		pages += run_at(after)->pages;
		remove_run(after);
	}
	insert(first, pages, state, freed_at);
	if (state == RUN_CLEAN && pages >= OMIT_PAGES)
		omit_clean(from, to, first, first + pages);
}

/*
 * Returns the records between the first and the last one of a clean run, as far as they fill pages.  Only the
 * first and the last hold information.  Those between them are never read, and read as zero once they have
 * been given back, as before their first use.
 */
static struct os_range pages_between(const struct run *first, const struct run *last)
{
	uintptr_t from = ((uintptr_t)(first + 1) + PAGE_BYTES - 1) & -(uintptr_t)PAGE_BYTES;
	uintptr_t to = (uintptr_t)last & -(uintptr_t)PAGE_BYTES;

	return (struct os_range){(void *)from, to - from};
}

unsigned run_bare_records(struct os_range *ranges)
{
	unsigned count = 0;

	for (unsigned bin = BINS - 1; bin > bin_of(BARE_LEAST); bin--) {
		uint32_t first = bins[RUN_CLEAN].head[bin];

		while (first != RUN_NONE && count < OS_RANGES) {
			const struct run *run = run_at(first);

			ranges[count++] = pages_between(run, run + run->pages - 1);
			first = run->next;
		}
	}
	return count;
}

/* Marks the ends of a large run that is free from now on. */
static void unmark_large(uint32_t first, uint32_t pages)
{
	/* The end first: page_repair() trusts the beginning of a large run. */
	run_mark_ends(first, pages, PAGE_FREE);
	large_runs--;
}

/* Accounts for headroom that its run has grown into: it counts as taken. */
static void note_grown(const struct headroom *headroom)
{
	if (!headroom->grown)
		return;
	allowance_note_use(headroom->grown, headroom->clean ? headroom->grown : 0);
	allowance_note_large(headroom->grown);
}

/* Makes the headroom of a place a free run.  Returns whether there was any. */
static bool recall_headroom(unsigned place)
{
	struct headroom headroom;

	if (!headroom_take(place, &headroom))
		return false;
	note_grown(&headroom);
	if (!headroom.pages)
		return false;
	run_mark_ends(headroom.start, headroom.pages, PAGE_FREE);
	if (headroom.clean)
		run_insert(headroom.start, headroom.pages, RUN_CLEAN, 0);
	else
		run_insert(headroom.start, headroom.pages, RUN_DIRTY, os_milliseconds());
	return true;
}

bool run_recall_headroom(bool clean)
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

/* Before a large run is freed or shrinks: counts what it has grown by and recalls the headroom behind it. */
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

void run_free_waiting(uint32_t first, uint32_t pages)
{
	run_pages.large -= pages;
	run_mark_ends(first, pages, PAGE_FREE);
	run_insert(first, pages, RUN_DIRTY, os_milliseconds());
}

bool run_recall_standby(void)
{
	uint32_t first, pages;
	bool any = false;

	while ((pages = standby_recall(&first))) {
		large_runs--;
		run_free_waiting(first, pages);
		any = true;
	}
	while (pocket_count && (pages = pocket_recall(&first))) {
		run_free_waiting(first, pages);
		any = true;
	}
	return any;
}

/* Recalls everything dirty that is kept.  Returns whether there was any. */
static bool recall_dirty(void)
{
	bool standby = run_recall_standby();

	return (headroom_is_kept() && run_recall_headroom(false)) || standby;
}

/* ---- spans: neighbouring free runs of either state --------------------------------------------------- */

/* Returns the start of the free run that ends before `page`, where a run starts; RUN_NONE for none. */
static uint32_t free_before(uint32_t page)
{
	return page > 0 && *run_map_at(page - 1) == PAGE_FREE ? page - run_at(page - 1)->pages : RUN_NONE;
}

/* Returns where the row of free runs that ends before `page` begins. */
static uint32_t span_start(uint32_t page)
{
	for (uint32_t before = free_before(page); before != RUN_NONE; before = free_before(page))
		page = before;
	return page;
}

/* Returns where the row of free runs that starts at `page` ends. */
static uint32_t span_end(uint32_t page)
{
	while (page < run_pages.top && *run_map_at(page) == PAGE_FREE)
		page += run_at(page)->pages;
	return page;
}

/*
 * Finds a row of `pages` free pages around a dirty run, trying the longest first, as far as a short look
 * tells.  Sets *first to where the row begins and returns the start of a run at or before it; RUN_NONE for
 * none.  Without this, a request that no dirty run can serve alone would take new memory, and dirty runs
 * would have to be purged to make room for it.
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

uint32_t run_take_span(uint32_t start, uint32_t first, uint32_t end)
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
	if (clean)
		omit_taken(first, end);
	return clean;
}

/* Pages just taken from the free ones. */
struct taking {
	uint32_t first;        /* RUN_NONE for none */
	uint32_t fresh;        /* how many of them are clean */
	struct blocks entered; /* blocks that the heap has grown into for them */
};

static const struct taking nothing = {.first = RUN_NONE};

/* Makes core dumps contain the pages up to `end`, and their entries. */
static __attribute__((noinline)) void show_heap(size_t end)
{
	region_show(&layout.heap, end << PAGE_SHIFT);
	/* As far as what is shown ahead, so that the next call comes with the heap's next. */
	end = layout.heap.shown > end ? layout.heap.shown : end;
	region_show(&layout.map, end * sizeof(uint16_t));
	region_show(&layout.slab_of, end * sizeof(uint32_t));
	region_show(&layout.runs, end * sizeof(struct run));
	if (layout.marks.planned)
		region_show(&layout.marks, (end << PAGE_SHIFT) / PAGE_MARK_UNIT * sizeof(uint16_t));
}

/*
 * Makes pages up to `end` usable, together with their entries in the tables beside the heap.  The tables grow
 * first: if the heap's step is the last that the system grants, it would be of no use without them.
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
	if (end > layout.heap.shown)
		show_heap(end);
	omit_taken(run_pages.top, (uint32_t)end);
	return true;
}

void run_take_over_block(void)
{
	uint32_t first = run_pages.top, end = (first + BLOCK_PAGES - 1) / BLOCK_PAGES * BLOCK_PAGES;

	if (first == end || !block_was_advised(first / BLOCK_PAGES) || !grow_heap(end))
		return;
	run_pages.top = end;
	run_insert(first, end - first, RUN_DIRTY, os_milliseconds());
}

/*
 * Takes pages at the end of the heap: those that are free there, if alignment does not matter, then pages
 * that were never used.  Pages skipped for alignment become a clean run.
 *
 * There may be enough free ones, since the callers look only into some runs, one by one or around dirty ones.
 * Then the end of the heap stays where it is: what lies beyond it counts as zero.
 *
 * A caller that must not wait may leave metadata short; the next thread to grow the heap provides it.
 */
static struct taking extend(uint32_t pages, uint32_t alignment, bool waits)
{
	uint32_t first = alignment > 1 ? (run_pages.top + alignment - 1) & ~(alignment - 1)
				       : span_start(run_pages.top);
	size_t end = (size_t)first + pages;

	if (end <= run_pages.top)
		return (struct taking){.first = first, .fresh = run_take_span(first, first, (uint32_t)end)};
	/* If metadata cannot be provided, the heap itself may still be able to grow. */
	if (end << PAGE_SHIFT > layout.heap.committed)
		(void)(waits ? metadata_provide(end << PAGE_SHIFT) : metadata_try_provide(end << PAGE_SHIFT));
	if (!grow_heap(end))
		return nothing;

	struct taking taking = {
		.first = first, .fresh = pages, .entered = block_heap_grown(run_pages.top, (uint32_t)end)};
	uint32_t skipped = run_pages.top;

	if (first < run_pages.top)
		taking.fresh = (uint32_t)end - run_pages.top + run_take_span(first, first, run_pages.top);
	/* Before the new end is known: what lies behind the skipped pages is no free run for run_insert(). */
	if (skipped < first) {
		run_pages.top = first;
		run_insert(skipped, first - skipped, RUN_CLEAN, 0);
	}
	run_pages.top = (uint32_t)end;
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
	if (run.state == RUN_CLEAN)
		omit_taken(first, first + pages);
	return first;
}

/* Returns the first run of the highest filled bin; RUN_NONE if it has fewer than `pages` pages. */
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

uint32_t run_take_widest(uint32_t least, uint32_t most, uint32_t *first)
{
	uint32_t found = widest(&bins[RUN_DIRTY], least), pages;

	if (found == RUN_NONE)
		return 0;
	pages = min_t(uint32_t, run_at(found)->pages, most);
	*first = carve(found, pages, 1);
	run_mark_ends(*first, pages, PAGE_TRANSIT);
	return pages;
}

/* Passed in place of an alignment. */
enum { TO_GROW = 0, SPARSE = 3 };

/* Takes pages for a run that will grow: where as many again are free behind it, or at the end of the heap. */
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

/* Returns a run that has `pages` aligned pages, although its length alone does not guarantee that. */
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

/* When the heap cannot grow: takes what the short looks missed, or what only happens to be aligned. */
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

/* Takes resident pages first, and memory from the system only if there are none. */
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
					       .fresh = run_take_span(found, first, first + pages)};
	}
	found = best_fit(&bins[RUN_CLEAN], pages + alignment - 1);
	if (found != RUN_NONE)
		return (struct taking){.first = carve(found, pages, alignment), .fresh = pages};

	struct taking taking = extend(pages, alignment, waits);

	return __builtin_expect(taking.first != RUN_NONE, 1) ? taking : take_leavings(pages, alignment);
}

/* Takes pages of which few may be touched: leaves resident ones to others, as long as the heap can grow. */
static struct taking take_clean_pages(uint32_t pages)
{
	uint32_t found = best_fit(&bins[RUN_CLEAN], pages);

	if (found != RUN_NONE)
		return (struct taking){.first = carve(found, pages, 1), .fresh = pages};

	struct taking taking = extend(pages, 1, true);

	return __builtin_expect(taking.first != RUN_NONE, 1) ? taking : take_pages(pages, 1, true);
}

/*
 * Takes pages from `start` on: those of one free run, or new ones that cost no system call; at most `pages`
 * unless they are resident.
 */
static struct headroom take_behind(uint32_t start, uint32_t pages)
{
	if (start < run_pages.top) {
		if (*run_map_at(start) != PAGE_FREE)
			return (struct headroom){0};
		/* Resident pages cost nothing as long as nobody else wants them. */
		if (run_at(start)->state == RUN_DIRTY)
			pages = HEADROOM_MOST;
		pages = min_t(uint32_t, pages, run_at(start)->pages);
		return (struct headroom){
			.start = start, .pages = pages, .clean = run_take_span(start, start, start + pages)};
	}
	pages = min_t(uint32_t, pages, (uint32_t)(layout.heap.committed >> PAGE_SHIFT) - run_pages.top);
	/* Stops before a block that may be a huge page: that is left to the allocation that uses it. */
	if (run_pages.top + pages > BLOCK_SMALL_HEAP >> PAGE_SHIFT)
		pages = min_t(uint32_t, pages, -run_pages.top % BLOCK_PAGES);
	if (!pages || extend(pages, 1, true).first == RUN_NONE)
		return (struct headroom){0};
	return (struct headroom){.start = start, .pages = pages, .clean = true};
}

/* After a large run has grown: keeps free pages behind it for its next growths. */
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
	run_mark_ends(headroom.start, headroom.pages, PAGE_TRANSIT);
	headroom_put(place, headroom);
}

/* ---- the room's functions ------------------------------------------------------------------------------ */

/* Work that an allocation leaves for after the unlock. */
struct rest {
	bool over;           /* no dirty run fitted: dirty pages must be purged to make room for fresh ones */
	bool renew;          /* the run is worth huge pages, but has ordinary ones */
	struct blocks prove; /* blocks that may be huge pages if a touch is not dear */
};

/* Called with the page lock. */
static void *alloc_locked(uint32_t pages, uint32_t alignment, uint16_t id, bool *zeroed, bool waits,
			  struct rest *rest)
{
	if (limit_refuses(pages)) {
		*rest = (struct rest){0};
		return NULL;
	}
	struct taking taking = alignment == TO_GROW  ? take_pages_to_grow(pages)
			       : alignment == SPARSE ? take_clean_pages(pages)
						     : take_pages(pages, alignment, waits);
	uint32_t first = taking.first, fresh = taking.fresh;

	*rest = (struct rest){0};
	if (first == RUN_NONE)
		return NULL;
	*zeroed = fresh == pages;
	allowance_note_use(pages, fresh);
	/* Not in grow(), which mostly takes what such a run had the last time. */
	allowance.taken += pages;
	rest->over = fresh && run_pages.free[RUN_DIRTY] > allowance_dirty();
	if (id == PAGE_LARGE) {
		/* Free pages were mostly large before: giving back hoards for them would gain nothing. */
		allowance.taken -= pages - fresh;
		allowance_note_large(pages);
		standby_taken(pages);
		large_runs++;
		if (fresh >= BLOCK_PAGES)
			rest->prove = block_large(first, pages);
		else
			rest->renew = block_reused(first, pages);
	} else if (taking.entered.first * BLOCK_PAGES - first < pages) {
		/*
		 * block_prove() touches the first page of the first block: it must be the run's, not one
		 * skipped for alignment.  Slabs get filled.
		 */
		rest->prove = taking.entered;
	}
	mark(first, pages, id);
	if (alignment == TO_GROW)
		keep_headroom(first, pages);
	return run_address(first);
}

/*
 * Runs are aligned by page numbers; addresses are aligned likewise only up to the alignment of the heap's
 * start.
 */
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
	run_lock();
	void *run = alloc_locked((uint32_t)pages, (uint32_t)alignment, id, zeroed, true, &rest);

	run_unlock();
	block_prove(rest.prove);
	if (rest.renew)
		block_renew(run_number(run), (uint32_t)pages);
	if (rest.over)
		purge_due(PAGE_PURGE_MOST + PURGE_TIMES * pages);
	return run;
}

void *page_alloc_to_grow(size_t pages, bool *zeroed)
{
	return page_alloc(pages, TO_GROW, PAGE_LARGE, zeroed);
}

void *page_alloc_sparse(size_t pages, uint16_t id, bool *zeroed)
{
	return page_alloc(pages, SPARSE, id, zeroed);
}

void *page_try_alloc(size_t pages, size_t alignment, uint16_t id, bool *zeroed)
{
	struct rest rest;

	if (!is_possible(pages, alignment) || !cpuslab_spin_trylock(&page_lock))
		return NULL;
	lock_acquires++;
	void *run = alloc_locked((uint32_t)pages, (uint32_t)alignment, id, zeroed, false, &rest);

	run_unlock();
	return run;
}

static void free_run(void *address, size_t length, enum run_state state)
{
	uint32_t first = run_number(address), pages = (uint32_t)length;
	uint64_t now = os_milliseconds();
	bool large = *run_map_at(first) == PAGE_LARGE;

	if (large && state == RUN_DIRTY)
		block_large_freed(first, pages);
	run_lock();
	if (large) {
		end_growth(first, pages);
		allowance_note_large_freed(pages);
		standby_freed(pages);
		/* Before unmark_large(): neighbours would coalesce with a run that is in no bin yet. */
		if (allowance.ebbing || (pocket_count && pocket_is_left()))
			run_recall();
		unmark_large(first, pages);
	} else {
		mark(first, pages, PAGE_FREE);
	}
	run_insert(first, pages, state, now);

	bool due = large ? allowance_is_overdue(now) : allowance_is_purge_due(now);

	/* In an ebb several slabs become free at a time: the next page_purge() takes their pages. */
	if (due && allowance.ebbing && !large) {
		purge_later();
		due = false;
	}
	/* After the last large object there may be no further call to continue. */
	unsigned times =
		large && allowance.ebbing && !allowance_large_bytes() ? PURGE_TIMES_LAST : PURGE_TIMES;

	run_unlock();
	if (due)
		purge_due(PAGE_PURGE_MOST + times * length);
}

void page_free(void *run, size_t pages)
{
	free_run(run, pages, RUN_DIRTY);
}

void page_free_emptied(void *run, size_t pages)
{
	block_purge(run_number(run), (uint32_t)pages);
	free_run(run, pages, RUN_CLEAN);
}

/*
 * Purges the marks of a retired run, too.  A page of marks that it shares with its neighbours goes when they
 * are retired as well.
 */
static void purge_marks(uint32_t first, uint32_t end)
{
	enum { MARKED = PAGE_MARK_UNIT / sizeof(uint16_t) }; /* pages of the heap per page of marks */

	if (!layout.marks.planned)
		return;
	for (int i = 0; i < MARKED && first > 0 && *run_map_at(first - 1) == PAGE_RETIRED; i++)
		first--;
	for (int i = 0; i < MARKED && end < run_pages.top && *run_map_at(end) == PAGE_RETIRED; i++)
		end++;
	first = (first + MARKED - 1) / MARKED * MARKED;
	end = end / MARKED * MARKED;
	if (first < end)
		(void)os_purge(page_mark(run_address(first)), (size_t)(end - first) / MARKED << PAGE_SHIFT);
}

void page_retire(void *address, size_t length, bool forbidden)
{
	uint32_t first = run_number(address), pages = (uint32_t)length;

	run_lock();
	/* The first page first: it tells slab_repair_pages, in a forked child, that the others were next. */
	mark(first, pages, PAGE_RETIRED);
	run_pages.retired += pages;
	run_unlock();
	if (os_purge(address, length << PAGE_SHIFT) == 0)
		page_count_purged(pages);
	if (forbidden && (options.hardened_mappings || os_guard(address, length << PAGE_SHIFT) != 0))
		(void)os_forbid(address, length << PAGE_SHIFT);
	purge_marks(first, first + pages);
}

size_t page_large_pages(const void *address)
{
	return run_at(run_number(address))->pages;
}

unsigned page_large_offset(const void *address)
{
	return run_at(run_number(address))->offset;
}

void *page_large_place(void *run, unsigned offset)
{
	run_at(run_number(run))->offset = offset;
	return (char *)run + offset;
}

static void shrink(uint32_t first, uint32_t old, uint32_t pages)
{
	end_growth(first, old);
	run_at(first)->pages = pages;
	run_set_id(first + old - 1, PAGE_FREE);
	if (pages > 1)
		run_set_id(first + pages - 1, PAGE_LARGE_TAIL);
	run_insert(first + pages, old - pages, RUN_DIRTY, os_milliseconds());
	allowance_note_large_freed(old - pages);
}

/* Takes `pages` pages from `next` on, if they are free up to there or up to the end of the heap. */
static bool take_next(uint32_t next, uint32_t pages, uint32_t *fresh)
{
	uint32_t end = span_end(next);

	if (end - next >= pages) {
		*fresh = run_take_span(next, next, next + pages);
		return true;
	}
	if (end != run_pages.top)
		return false;

	struct taking taking = extend(pages, 1, true);

	*fresh = taking.fresh;
	return taking.first == next;
}

/* Grows a large run in place. */
static bool grow(uint32_t first, uint32_t old, uint32_t pages, struct blocks *prove)
{
	uint32_t next = first + old, more = pages - old, fresh;

	if (limit_refuses(more))
		return false;
	end_growth(first, old);
	if (!take_next(next, more, &fresh)) {
		/* Pages kept for other requests may be in the way. */
		run_recall();
		if (!take_next(next, more, &fresh))
			return false;
	}
	allowance_note_use(more, fresh);
	if (fresh >= BLOCK_PAGES)
		*prove = block_large(next, more);
	/* The length last: a repair in between sees the old, shorter run, and marks its end. */
	if (old > 1)
		run_set_id(next - 1, PAGE_FREE);
	run_set_id(first + pages - 1, PAGE_LARGE_TAIL);
	__atomic_store_n(&run_at(first)->pages, pages, __ATOMIC_RELEASE);
	allowance_note_large(more);
	keep_headroom(first, pages);
	return true;
}

bool page_large_resize(void *address, size_t wanted)
{
	uint32_t first = run_number(address), pages = (uint32_t)wanted;
	struct blocks prove = {0};
	bool done = true;

	if (wanted > layout.heap.planned >> PAGE_SHIFT)
		return false;
	run_lock();
	uint32_t old = run_at(first)->pages;

	if (pages < old)
		shrink(first, old, pages);
	else if (pages > old)
		done = grow(first, old, pages, &prove);
	run_unlock();
	block_prove(prove);
	return done;
}

/* Large runs that became extents of pockets, less those cut from extents: may wrap below zero. */
static size_t runs_in_pockets(void)
{
	uint64_t takes, puts;

	pocket_calls(&takes, &puts);
	return puts - takes;
}

void run_init(void)
{
	for (int state = 0; state < 2; state++)
		for (unsigned bin = 0; bin < BINS; bin++)
			bins[state].head[bin] = RUN_NONE;
}

bool run_is_torn(void)
{
	return cpuslab_spin_is_locked(&page_lock) || run_pages.in_transit || headroom_is_in_hand() ||
	       pocket_is_in_hand();
}

/*
 * Rebuilds bins, lists and counts from the page map.  Pages not marked as used are free, and presumed dirty;
 * a run whose owner died between taking and using it keeps its marks and is lost.
 */
void run_repair(bool all)
{
	if (!run_is_torn() && !all)
		return;
	cpuslab_spin_reset(&page_lock);
	run_pages.in_transit = 0;
	omit_nothing();

	run_init();
	for (int state = 0; state < 2; state++) {
		for (unsigned word = 0; word < BITMAP_WORDS; word++)
			bins[state].filled[word] = 0;
		run_pages.free[state] = 0;
	}
	run_oldest = newest = RUN_NONE;
	run_pages.large = large_runs = run_pages.retired = 0;
	standby_repair();
	pocket_repair();
	headroom_repair();

	uint64_t now = os_milliseconds();
	uint32_t start = 0;

	for (uint32_t page = 0; page <= run_pages.top;) {
		uint16_t id = page < run_pages.top ? *run_map_at(page) : PAGE_ID_RESERVED;

		if (id == PAGE_FREE || id == PAGE_TRANSIT || id == PAGE_LARGE_TAIL) {
			run_set_id(page++, PAGE_FREE);
			continue;
		}
		if (start < page)
			insert(start, page - start, RUN_DIRTY, now);
		if (id == PAGE_LARGE) {
			run_pages.large += run_at(page)->pages;
			large_runs++;
			/* The fork may have caught a free or a resize before or after it marked the end. */
			if (run_at(page)->pages > 1)
				run_set_id(page + run_at(page)->pages - 1, PAGE_LARGE_TAIL);
			page += run_at(page)->pages;
		} else {
			run_pages.retired += id == PAGE_RETIRED;
			page++;
		}
		start = page;
	}
	large_runs += runs_in_pockets();
}

size_t page_heap_pages(void)
{
	return __atomic_load_n(&run_pages.top, __ATOMIC_RELAXED);
}

size_t page_heap_most(void)
{
	return layout.heap.planned;
}

void run_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("page.top", (uintptr_t)&run_pages.top, sizeof run_pages.top);
	/* Two counts: clean pages, dirty pages. */
	show("page.free", (uintptr_t)run_pages.free, sizeof run_pages.free);
	show("page.in_transit", (uintptr_t)&run_pages.in_transit, sizeof run_pages.in_transit);
	show("page.large", (uintptr_t)&run_pages.large, sizeof run_pages.large);
	show("page.large_runs", (uintptr_t)&large_runs, sizeof large_runs);
	show("page.purged", (uintptr_t)&run_pages.purged, sizeof run_pages.purged);
	show("page.lock_acquires", (uintptr_t)&lock_acquires, sizeof lock_acquires);
	standby_show(show);
	pocket_show(show);
	headroom_show(show);
	show("run", 0, sizeof(struct run));
	show("run.pages", offsetof(struct run, pages), sizeof(uint32_t));
	show("run.state", offsetof(struct run, state), sizeof(uint32_t));
}

void page_statistics(struct page_statistics *statistics)
{
	*statistics = (struct page_statistics){0};
	run_lock();
	/* So that every page is either used or free. */
	(void)run_recall_headroom(true);

	size_t runs, pages = standby_pages(&runs) + pocket_pages();

	statistics->heap_pages = run_pages.top;
	statistics->used_pages = run_used_pages() - pages;
	statistics->large_pages = run_pages.large - pages;
	statistics->large_runs = large_runs - runs - runs_in_pockets();
	statistics->dirty_pages = run_pages.free[RUN_DIRTY] + pages;
	statistics->purged_pages_total = run_pages.purged;
	statistics->lock_acquires = lock_acquires;
	statistics->metadata_bytes = metadata_bytes();
	run_unlock();
	huge_statistics(statistics);
}
