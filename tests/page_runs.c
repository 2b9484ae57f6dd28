/* SPDX-License-Identifier: MIT */
/*
 * page_runs: page runs do not overlap, are aligned, have their ids in the page map, are zero where that is
 * claimed, coalesce, grow and shrink in place, go back to the system by age and by amount, and end at the
 * heap's limit.
 *
 *   page_runs full   behaviour of a heap of small `reserve` when nothing is left; started by page_runs itself
 */
#include "check.h"

#include "heap.h"
#include "magazine/magazine.h"
#include "options/options.h"
#include "page/headroom.h"

enum { SLOTS = 256, LIVE_PAGES = 6000, SHADOW = 1 << 16, LONGEST = 600 };
enum { SOME_SLAB = 40000, OTHER_SLAB = 40008 }; /* ids of no cache */

struct live {
	char *run;
	size_t pages;
	uint16_t id;
	uint64_t stamp;
};

static struct live live[SLOTS];
static size_t live_pages, large_pages, large_runs;
static uint16_t owner[SHADOW]; /* by page of the heap: slot + 1, or 0 */
static struct page_statistics start;
static uint64_t random_state = 42, stamp;

static size_t number_of(const void *run)
{
	CHECK(page_is_heap(run) && (uintptr_t)run % PAGE_BYTES == 0);
	size_t number = page_of(run) - page_front.heap_page;
	CHECK(number < SHADOW);
	return number;
}

static uint64_t *word_of(struct live *slot, size_t page)
{
	return (uint64_t *)(void *)(slot->run + page * PAGE_BYTES + page % 500 * 8);
}

static void claim(struct live *slot, size_t from, size_t to)
{
	size_t first = number_of(slot->run);
	for (size_t i = from; i < to; i++) {
		CHECK(owner[first + i] == 0, "page %zu has two owners", first + i);
		owner[first + i] = (uint16_t)(slot - live + 1);
		*word_of(slot, i) = slot->stamp + i;
	}
	live_pages += to - from;
	large_pages += slot->id == PAGE_LARGE ? to - from : 0;
}

static void disclaim(struct live *slot, size_t from, size_t to)
{
	size_t first = number_of(slot->run);
	for (size_t i = from; i < to; i++) {
		CHECK(owner[first + i] == slot - live + 1);
		CHECK(*word_of(slot, i) == slot->stamp + i, "page %zu of a run of %zu changed", i,
		      slot->pages);
		owner[first + i] = 0;
	}
	live_pages -= to - from;
	large_pages -= slot->id == PAGE_LARGE ? to - from : 0;
}

static void check_ids(const struct live *slot)
{
	if (slot->id == PAGE_LARGE) {
		CHECK(page_id(slot->run) == PAGE_LARGE && page_large_pages(slot->run) == slot->pages);
		CHECK(slot->pages == 1 ||
		      page_id(slot->run + (slot->pages - 1) * PAGE_BYTES) == PAGE_LARGE_TAIL);
		for (size_t i = 1; i + 1 < slot->pages; i++)
			CHECK(page_id(slot->run + i * PAGE_BYTES) == PAGE_FREE);
	} else {
		for (size_t i = 0; i < slot->pages; i++)
			CHECK(page_id(slot->run + i * PAGE_BYTES) == slot->id);
	}
}

static size_t some_length(void)
{
	/* Mostly short, and every length around the bins' borders. */
	size_t bits = check_below(&random_state, 10);
	return 1 + check_below(&random_state, (size_t)1 << bits) % LONGEST;
}

static void take(struct live *slot)
{
	static const uint16_t ids[] = {PAGE_LARGE, PAGE_LARGE, SOME_SLAB, OTHER_SLAB};
	size_t pages = some_length(), alignment = 1;
	if (check_below(&random_state, 4) == 0)
		alignment = (size_t)1 << check_below(&random_state, 9);
	bool zeroed = false, grows = check_below(&random_state, 8) == 0;
	slot->id = grows ? PAGE_LARGE : ids[check_below(&random_state, 4)];
	if (grows)
		alignment = 1;
	slot->run =
		grows ? page_alloc_to_grow(pages, &zeroed) : page_alloc(pages, alignment, slot->id, &zeroed);
	CHECK(slot->run);
	CHECK((uintptr_t)slot->run % (alignment * PAGE_BYTES) == 0, "%p is not aligned to %zu pages",
	      (void *)slot->run, alignment);
	slot->pages = pages;
	slot->stamp = stamp += 1000000;
	check_ids(slot);
	if (zeroed)
		CHECK(check_all_bytes(slot->run, pages * PAGE_BYTES, 0), "%zu pages are not zero", pages);
	large_runs += slot->id == PAGE_LARGE;
	claim(slot, 0, pages);
}

static void give(struct live *slot)
{
	check_ids(slot);
	disclaim(slot, 0, slot->pages);
	large_runs -= slot->id == PAGE_LARGE;
	page_free(slot->run, slot->pages);
	slot->run = NULL;
}

/* The free pages behind a run, with none kept for it; at the heap's end there are always more. */
static size_t room_behind(const struct live *slot)
{
	struct page_statistics now;
	page_statistics(&now);
	size_t next = number_of(slot->run) + slot->pages, end = next;
	while (end < page_heap_pages() && heap_id(end) == PAGE_FREE)
		end += heap_run(end)->pages;
	return end == page_heap_pages() ? SIZE_MAX : end - next;
}

static size_t grown_without_lock;

/* Grows into the pages kept behind it, as a vector does: it has grown before, or wanted to. */
static void grow_again(struct live *slot)
{
	for (size_t more = 1 + check_below(&random_state, 8);
	     page_large_grow(slot->run, slot->pages + more);) {
		claim(slot, slot->pages, slot->pages + more);
		slot->pages += more;
		grown_without_lock++;
		check_ids(slot);
	}
}

static void resize(struct live *slot)
{
	grow_again(slot);
	size_t old = slot->pages, pages = check_below(&random_state, 2) ? some_length() : old + 1;
	size_t room = room_behind(slot);
	bool done = page_large_resize(slot->run, pages);
	CHECK(done == (pages <= old || pages - old <= room), "from %zu to %zu pages, with %zu behind", old,
	      pages, room);
	if (done && pages < old)
		disclaim(slot, pages, old);
	if (done)
		slot->pages = pages;
	if (done && pages > old)
		claim(slot, old, pages);
	check_ids(slot);
}

static void check_counts(void)
{
	struct page_statistics now;
	heap_walk();
	page_statistics(&now);
	CHECK(now.used_pages - start.used_pages == live_pages, "%zu pages used, not %zu",
	      now.used_pages - start.used_pages, live_pages);
	CHECK(now.large_pages - start.large_pages == large_pages);
	CHECK(now.large_runs - start.large_runs == large_runs);
}

static void test_random(void)
{
	unsigned long rounds = check_rounds(20000, 200000, 2000);
	size_t grown = 0, top = page_heap_pages();
	for (unsigned long round = 0; round < rounds; round++) {
		struct live *slot = &live[check_below(&random_state, SLOTS)];
		if (!slot->run && live_pages < LIVE_PAGES) {
			take(slot);
		} else if (slot->run && slot->id == PAGE_LARGE && check_below(&random_state, 3)) {
			size_t old = slot->pages;
			resize(slot);
			grown += slot->pages > old;
		} else if (slot->run) {
			give(slot);
		}
		if (round % 500 == 0) {
			check_counts();
			CHECK(page_heap_pages() >= top, "the heap's end moved back");
			top = page_heap_pages();
			if (check_below(&random_state, 4) == 0)
				page_purge(true);
		}
	}
	CHECK(grown > rounds / 1000, "only %zu runs ever grew in place", grown);
	CHECK(grown_without_lock > rounds / 1000, "only %zu did without the lock", grown_without_lock);

	/*
	 * Everything free and given back: one clean run, from which all requests are served without growing.
	 */
	for (struct live *slot = live; slot < live + SLOTS; slot++)
		if (slot->run)
			give(slot);
	check_counts();
	page_purge(true);
	struct heap_walk walk = heap_walk();
	CHECK(walk.dirty_pages == 0);
	top = page_heap_pages();
	size_t ours = top - start.heap_pages;
	CHECK(heap_id(top - 1) == PAGE_FREE && heap_run(top - 1)->pages >= ours,
	      "the last clean run has %u of %zu pages", heap_run(top - 1)->pages, ours);
	bool zeroed = false;
	char *all = page_alloc(ours, 1, PAGE_LARGE, &zeroed);
	CHECK(all && zeroed && page_heap_pages() == top);
	CHECK(check_all_bytes(all, ours * PAGE_BYTES, 0));
	page_free(all, ours);
}

static size_t dirty_pages(void)
{
	struct page_statistics now;
	page_statistics(&now);
	return now.dirty_pages;
}

/* A run and a page behind it that keeps it from coalescing with the next such run. */
struct island {
	char *run, *shore;
};

static struct island make_island(size_t pages)
{
	bool zeroed;
	struct island island = {page_alloc(pages, 1, PAGE_LARGE, &zeroed), NULL};
	CHECK(page_large_resize(island.run, pages + 1) && page_large_resize(island.run, pages));
	island.shore = page_alloc(1, 1, PAGE_LARGE, &zeroed);
	CHECK(island.shore == island.run + pages * PAGE_BYTES);
	return island;
}

static void sleep_milliseconds(unsigned milliseconds)
{
	for (uint64_t end = os_milliseconds() + milliseconds; os_milliseconds() < end;)
		usleep(1000);
}

/*
 * Pages skipped for alignment at the heap's end have no neighbour behind them, whatever the never-used pages
 * there seem to say; with the heap's first run free, that confusion would hand it out twice.
 */
static void test_skipped(void)
{
	enum { ALIGNMENT = 64, RUNS = 8 };
	static char *runs[RUNS];
	bool zeroed;

	/* Some builds' runtimes allocate before main() and keep the page; the other builds run the check. */
	if (heap_id(0) != PAGE_FREE)
		return;
	size_t before = page_heap_pages();
	char *aligned = page_alloc(ALIGNMENT, ALIGNMENT, SOME_SLAB, &zeroed);

	CHECK(aligned && number_of(aligned) > before);
	for (int i = 0; i < RUNS; i++) {
		CHECK((runs[i] = page_alloc(1, 1, SOME_SLAB, &zeroed)));
		for (int other = 0; other < i; other++)
			CHECK(runs[i] != runs[other], "%p was handed out twice", (void *)runs[i]);
	}
	heap_walk();
	for (int i = 0; i < RUNS; i++)
		page_free(runs[i], 1);
	page_free(aligned, ALIGNMENT);
	heap_walk();
}

static void test_purge(void)
{
	enum { ISLANDS = 6, PAGES = 40 };
	struct options saved = options;
	struct island islands[ISLANDS];
	page_purge(true);
	CHECK(dirty_pages() == 0);
	struct page_statistics before, after;
	page_statistics(&before);
	for (int i = 0; i < ISLANDS; i++) {
		islands[i] = make_island(PAGES);
		memset(islands[i].run, 1, PAGES * PAGE_BYTES);
	}
	CHECK(dirty_pages() <= 1); /* left over from making the islands */
	page_purge(true);

	/* By age. */
	options.decay = 1000000;
	page_free(islands[0].run, PAGES);
	page_purge(false);
	CHECK(dirty_pages() == PAGES);
	sleep_milliseconds(60);
	uint64_t then = os_milliseconds();
	page_free(islands[1].run, PAGES);
	options.decay = 50;
	page_purge(false);
	/* The young one stays, unless this took a long time after all. */
	CHECK(dirty_pages() == PAGES || os_milliseconds() - then >= 50);
	options.decay = 1000000;

	/* By amount: the oldest go first. */
	options.dirty = 2 * PAGES * PAGE_BYTES;
	for (int i = 2; i < ISLANDS; i++) {
		page_free(islands[i].run, PAGES);
		CHECK(dirty_pages() <= 2 * PAGES);
	}
	CHECK(dirty_pages() == 2 * PAGES);
	CHECK(check_all_bytes(islands[2].run, PAGES * PAGE_BYTES, 0));
	CHECK(check_all_bytes(islands[ISLANDS - 1].run, PAGES * PAGE_BYTES, 1));
	options.dirty = saved.dirty;

	/* A dirty run is preferred to a clean one, and is reported as not zero. */
	bool zeroed = true;
	char *again = page_alloc(PAGES, 1, PAGE_LARGE, &zeroed);
	CHECK(!zeroed && (again == islands[ISLANDS - 1].run || again == islands[ISLANDS - 2].run));
	options.decay = 0;
	page_free(again, PAGES);
	CHECK(dirty_pages() == 0, "decay:0 left %zu pages", dirty_pages());

	page_statistics(&after);
	CHECK(after.purged_pages_total - before.purged_pages_total >= ISLANDS * PAGES);
	options = saved;
	for (int i = 0; i < ISLANDS; i++)
		page_free(islands[i].shore, 1);
	page_purge(true);
	heap_walk();
}

/*
 * A request that no dirty run can serve takes dirty and clean neighbours together, rather than new memory;
 * and free memory at the heap's end becomes the start of a run taken there.
 */
static void test_spans(void)
{
	enum { PART = 100 };
	struct options saved = options;
	bool zeroed;
	options.decay = 1000000;
	page_purge(true);
	/* Larger than any remaining hole, so that all lie in a row. */
	size_t large = page_heap_pages();
	char *block = page_alloc(large + 3 * PART, 1, PAGE_LARGE, &zeroed);
	char *shore = page_alloc(1, 1, PAGE_LARGE, &zeroed);
	CHECK(block && zeroed && shore);
	memset(block, 1, large * PAGE_BYTES);
	/* Clean at its end, dirty before. */
	CHECK(page_large_resize(block, large));
	page_purge(true);
	page_free(block, large);
	CHECK(dirty_pages() >= large);

	struct page_statistics before, after;
	page_statistics(&before);
	char *both = page_alloc(large + PART, 1, PAGE_LARGE, &zeroed);
	CHECK(both == block && !zeroed, "%p, not %p", (void *)both, (void *)block);
	CHECK(check_all_bytes(both + large * PAGE_BYTES, PART * PAGE_BYTES, 0));
	/* In place, over the rest of the clean run. */
	CHECK(page_large_resize(both, large + 3 * PART));
	page_statistics(&after);
	CHECK(after.heap_pages == before.heap_pages);
	page_free(both, large + 3 * PART);
	page_free(shore, 1);

	/* The free end and as much again: the heap grows only by the difference. */
	size_t end = page_heap_pages();
	char *tail = page_alloc(2 * (large + 3 * PART), 1, PAGE_LARGE, &zeroed);
	CHECK(tail && tail <= block && !zeroed);
	CHECK(page_heap_pages() < end + large + 3 * PART);
	page_free(tail, 2 * (large + 3 * PART));
	options = saved;
	page_purge(true);
	heap_walk();
}

/* A run expected to grow is placed where it can, even if it would fit elsewhere. */
static void test_to_grow(void)
{
	enum { PAGES = 100 };
	struct options saved = options;
	bool zeroed;
	options.decay = 1000000;
	options.dirty = SIZE_MAX;
	page_purge(true);
	size_t wide = page_heap_pages();
	struct island hole = make_island(PAGES);
	char *block = page_alloc(wide, 1, PAGE_LARGE, &zeroed);
	char *shore = page_alloc(1, 1, PAGE_LARGE, &zeroed);
	CHECK(block && shore);
	page_free(hole.run, PAGES);
	page_free(block, wide);
	char *grows = page_alloc_to_grow(PAGES, &zeroed);
	CHECK(grows && page_large_pages(grows) == PAGES && page_large_resize(grows, wide));
	page_free(grows, wide);
	/* No free run has twice its length: it goes to the heap's end. */
	size_t top = page_heap_pages();
	grows = page_alloc_to_grow(wide, &zeroed);
	CHECK(grows && page_heap_pages() > top);
	CHECK(page_heap_pages() - (number_of(grows) + wide) <= HEADROOM_MOST, "not at the heap's end");
	CHECK(page_large_resize(grows, wide + PAGES));
	page_free(grows, wide + PAGES);
	CHECK(!page_alloc_to_grow(0, &zeroed) && !page_alloc_to_grow(SIZE_MAX, &zeroed));
	page_free(hole.shore, 1);
	page_free(shore, 1);
	options = saved;
	page_purge(true);
	heap_walk();
}

/* A run of which little will be touched leaves resident pages to others, whatever fits. */
static void test_sparse(void)
{
	enum { PAGES = 100 };
	struct options saved = options;
	bool zeroed = false;
	options.decay = 1000000;
	options.dirty = SIZE_MAX;
	page_purge(true);
	struct island clean = make_island(PAGES), dirty = make_island(PAGES);
	page_free(clean.run, PAGES);
	page_purge(true);
	page_free(dirty.run, PAGES);
	size_t waiting = heap_walk().dirty_pages, top = page_heap_pages();
	char *first = page_alloc_sparse(PAGES, SOME_SLAB, &zeroed);
	CHECK(first && zeroed && page_id(first + (PAGES - 1) * PAGE_BYTES) == SOME_SLAB);
	CHECK(page_heap_pages() == top, "the heap has grown from %zu to %zu pages", top, page_heap_pages());
	/* Uses up clean runs, so that the heap has to grow. */
	static char *more[4096];
	unsigned count = 0;
	do {
		CHECK(count < 4096);
		more[count] = page_alloc_sparse(PAGES, SOME_SLAB, &zeroed);
		CHECK(more[count] && zeroed);
		count++;
	} while (page_heap_pages() == top);
	CHECK(heap_walk().dirty_pages == waiting, "%zu dirty pages of %zu", heap_walk().dirty_pages, waiting);
	while (count)
		page_free(more[--count], PAGES);
	page_free(first, PAGES);
	page_free(clean.shore, 1);
	page_free(dirty.shore, 1);
	options = saved;
	page_purge(true);
	heap_walk();
}

/*
 * A request for room to grow looks for a run of twice its length.  If there is none, but the free runs at the
 * heap's end suffice, the heap must not grow: otherwise their last pages, which are dirty, would count as
 * never used.
 */
static void test_enough_at_the_end(void)
{
	struct options saved = options;
	bool zeroed;
	options.decay = 1000000;
	options.dirty = SIZE_MAX;
	page_purge(true);
	/* So that no other run has room for any of these. */
	size_t part = page_heap_pages();
	char *before = page_alloc(1 + 2 * part, 1, PAGE_LARGE, &zeroed);
	/* Not a large object, whose free would be an ebb. */
	char *last = page_alloc(2 * part, 1, SOME_SLAB, &zeroed);
	CHECK(before && last && last == before + (1 + 2 * part) * PAGE_BYTES);
	CHECK(page_large_resize(before, 1));
	page_purge(true);
	memset(last, 1, 2 * part * PAGE_BYTES);
	page_free(last, 2 * part);

	size_t top = page_heap_pages();
	char *grows = page_alloc_to_grow(3 * part, &zeroed);
	CHECK(grows == before + PAGE_BYTES && !zeroed, "%p, not %p", (void *)grows,
	      (void *)(before + PAGE_BYTES));
	CHECK(page_heap_pages() == top, "the heap of %zu pages has %zu", top, page_heap_pages());
	char *rest = page_alloc(part, 1, PAGE_LARGE, &zeroed);
	CHECK(rest == grows + 3 * part * PAGE_BYTES && !zeroed);
	page_free(rest, part);
	page_free(grows, 3 * part);
	page_free(before, 1);
	options = saved;
	page_purge(true);
	heap_walk();
}

static void forget_the_past(void)
{
	for (int i = 0; i < 64; i++)
		page_tick();
}

/*
 * Memory that the program has used recently may stay; runs that do not fit a request make room for it, so
 * that resident pages do not exceed the peak in use by much.
 */
static void test_peak(void)
{
	enum { PIECES = 64, PIECE = 64 };
	struct options saved = options;
	char *piece[PIECES], *between[PIECES];
	bool zeroed;
	options.decay = 1000000;
	options.dirty = SIZE_MAX;
	page_purge(true);
	forget_the_past();
	for (int i = 0; i < PIECES; i++) {
		piece[i] = page_alloc(PIECE, 1, PAGE_LARGE, &zeroed);
		between[i] = page_alloc(1, 1, PAGE_LARGE, &zeroed);
		CHECK(piece[i] && between[i]);
	}
	for (int i = 0; i < PIECES; i++)
		page_free(piece[i], PIECE);
	CHECK(dirty_pages() >= PIECES * PIECE, "%zu dirty pages are left", dirty_pages());
	/* No piece can serve this request: the pieces must go. */
	struct page_statistics statistics;
	char *whole = page_alloc(PIECES * PIECE, 1, PAGE_LARGE, &zeroed);
	page_statistics(&statistics);
	CHECK(whole && statistics.dirty_pages < PIECES * PIECE / 4, "%zu dirty pages are left",
	      statistics.dirty_pages);
	page_free(whole, PIECES * PIECE);
	for (int i = 0; i < PIECES; i++)
		page_free(between[i], 1);
	/* With time the program's past no longer counts. */
	forget_the_past();
	CHECK(dirty_pages() < PIECES * PIECE / 4, "%zu dirty pages are left", dirty_pages());

	/* Nor does it once many times as many pages were taken and freed since. */
	whole = page_alloc(PIECES * PIECE, 1, PAGE_LARGE, &zeroed);
	CHECK(whole);
	page_free(whole, PIECES * PIECE);
	for (int i = 0; i < 4 * PIECES; i++) {
		CHECK((whole = page_alloc(PIECE, 1, PAGE_LARGE, &zeroed)));
		page_free(whole, PIECE);
	}
	CHECK(dirty_pages() >= PIECES * PIECE, "%zu dirty pages are left", dirty_pages());
	for (int i = 0; i < 20 * PIECES; i++) {
		CHECK((whole = page_alloc(PIECE, 1, PAGE_LARGE, &zeroed)));
		page_free(whole, PIECE);
	}
	CHECK(dirty_pages() < PIECES * PIECE / 4, "%zu dirty pages are left", dirty_pages());
	options = saved;
	page_purge(true);
	heap_walk();
}

/* Growth is reported once; reuse by slabs, when as much has been reused; reuse by large runs not. */
static void test_growth(void)
{
	enum { PAGES = 64 };
	bool zeroed;
	while (page_wants_hoards())
		;
	size_t pages = page_heap_pages() / 4 + 1024;
	char *run = page_alloc(pages, 1, PAGE_LARGE, &zeroed);
	CHECK(run && zeroed);
	CHECK(page_wants_hoards() && !page_wants_hoards());
	page_free(run, pages);
	page_purge(true);
	page_free(page_alloc(PAGES, 1, SOME_SLAB, &zeroed), PAGES);
	size_t least = page_heap_pages() / 16 > 1024 ? page_heap_pages() / 16 : 1024, reused = PAGES;
	for (size_t i = 0; i < 2 * least; i += PAGES) {
		CHECK((run = page_alloc(PAGES, 1, PAGE_LARGE, &zeroed)) && !zeroed);
		page_free(run, PAGES);
		CHECK(!page_wants_hoards());
	}
	do {
		run = page_alloc(PAGES, 1, SOME_SLAB, &zeroed);
		CHECK(run && !zeroed);
		page_free(run, PAGES);
		reused += PAGES;
	} while (!page_wants_hoards());
	CHECK(reused >= least && reused < least + PAGES, "after %zu of %zu pages", reused, least);
	page_purge(true);
}

/* The only free memory is a hole that has an aligned part of the requested length at one place only. */
static void fit_aligned(const char *hole, size_t pages, bool clean)
{
	bool zeroed;

	for (size_t alignment = 2; alignment <= pages / 2; alignment *= 2) {
		size_t skipped = -number_of(hole) & (alignment - 1);

		CHECK(skipped < alignment - 1);
		if (clean)
			page_purge(true);
		char *part = page_alloc(pages - skipped, alignment, SOME_SLAB, &zeroed);

		CHECK(part == hole + skipped * PAGE_BYTES, "aligned to %zu pages, %zu skipped", alignment,
		      skipped);
		CHECK(!clean || zeroed);
		CHECK(!page_alloc(pages - skipped, alignment, SOME_SLAB, &zeroed));
		heap_walk();
		page_free(part, pages - skipped);
	}
}

/* Tests holes at the place of a run of that many pages. */
static void test_fit_aligned(char *run, size_t pages)
{
	bool zeroed;
	size_t before = 2 + number_of(run) % 2;

	/* Uses up what is too short for a run. */
	while (page_alloc(1, 1, SOME_SLAB, &zeroed))
		;
	page_free(run, pages);
	CHECK(page_alloc(before, 1, SOME_SLAB, &zeroed) == run);
	fit_aligned(run + before * PAGE_BYTES, pages - before, false);
	fit_aligned(run + before * PAGE_BYTES, pages - before, true);
	page_free(run, before);
	CHECK(page_alloc(pages, 1, PAGE_LARGE, &zeroed) == run);
}

static void be_full(void)
{
	enum { PAGES = 64, MOST = 1024 };
	static char *runs[MOST];
	bool zeroed;
	size_t count = 0, planned = layout.heap.planned >> PAGE_SHIFT;
	CHECK(planned <= MOST * PAGES);
	heap_walk();
	while ((runs[count] = page_alloc(PAGES, 1, PAGE_LARGE, &zeroed)))
		runs[count++][0] = 1;
	CHECK(count * PAGES > planned / 2, "only %zu of %zu pages were to be had", count * PAGES, planned);
	CHECK(page_heap_pages() <= planned);
	CHECK(!page_alloc(PAGES, 1, PAGE_LARGE, &zeroed));
	CHECK(!page_alloc(0, 1, PAGE_LARGE, &zeroed));
	CHECK(!page_alloc(planned + 1, 1, PAGE_LARGE, &zeroed));
	CHECK(!page_alloc(planned, planned, PAGE_LARGE, &zeroed));
	CHECK(!page_alloc(SIZE_MAX, 1, PAGE_LARGE, &zeroed));
	CHECK(!page_alloc((1ul << 32) + 1, 1, PAGE_LARGE, &zeroed));
	CHECK(!page_large_resize(runs[0], planned) && !page_large_resize(runs[0], 1ul << 33));
	CHECK(page_large_pages(runs[0]) == PAGES);
	heap_walk();

	/* Freed memory can be allocated again, as often as one likes. */
	for (int i = 0; i < 3; i++) {
		page_free(runs[count / 2], PAGES);
		CHECK(page_alloc(PAGES, 1, SOME_SLAB, &zeroed) == runs[count / 2]);
		page_free(runs[count / 2], PAGES);
		CHECK(page_alloc(PAGES, 1, PAGE_LARGE, &zeroed) == runs[count / 2]);
		page_free(runs[count / 2], PAGES);
		CHECK(page_alloc_sparse(PAGES, SOME_SLAB, &zeroed) == runs[count / 2] && !zeroed);
		page_free(runs[count / 2], PAGES);
		CHECK(page_alloc(PAGES, 1, PAGE_LARGE, &zeroed) == runs[count / 2]);
	}
	test_fit_aligned(runs[count / 2], PAGES);
	for (size_t i = 0; i < count; i++)
		page_free(runs[i], PAGES);
	page_purge(true);
	heap_walk();
	CHECK(page_alloc((count - 1) * PAGES, 1, PAGE_LARGE, &zeroed) && zeroed);
}

int main(int argc, char **argv)
{
	check_watchdog(60);
	free(malloc(1));
	if (argc > 1 && strcmp(argv[1], "full") == 0) {
		be_full();
		return 0;
	}
	/* Empty slabs too. */
	magazine_trim();
	test_skipped();
	page_purge(true);
	page_statistics(&start);
	test_random();
	test_purge();
	test_spans();
	test_to_grow();
	test_sparse();
	test_enough_at_the_end();
	test_peak();
	test_growth();

	static const char *const reserves[] = {"reserve:1M", "reserve:8M", "reserve:33M"};
	for (size_t i = 0; i < sizeof reserves / sizeof *reserves; i++)
		check_again(reserves[i], "full");
	return 0;
}
