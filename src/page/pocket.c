/* SPDX-License-Identifier: MIT */
#include "page/pocket.h"

#include "arch/minmax.h"
#include "cpuslab/lock.h"
#include "options/options.h"
#include "page/allowance.h"
#include "page/block.h"
#include "page/handover.h"
#include "page/headroom.h"
#include "page/page.h"
#include "page/run.h"

enum {
	POCKETS = 8, /* vCPUs beyond that share them */
	EXTENTS = 12,
	EARNED = 32,               /* waits for the page lock between two ticks that open the pockets */
	TURNS = 1024,              /* one free in so many takes the usual path, and with it the ticks */
	LONGEST = BLOCK_PAGES - 1, /* block.h advises on longer runs */
	STEP = 16,                 /* pages; granularity of the bound, a line that every free reads */
};

struct extent {
	uint32_t first, pages;
};

/* Written with the pocket's lock; the counts may be read without it. */
static struct pocket {
	uint64_t takes, puts, pages;
	struct cpuslab_spinlock lock;
	uint32_t count; /* of extents */
	uint32_t turns;
	bool freed; /* the last call was a free */
	struct extent extents[EXTENTS];
} pockets[POCKETS] ARCH_SPARSE __attribute__((aligned(128)));

bool pocket_open;
unsigned pocket_count;
uint8_t pocket_earned;
static uint32_t most; /* pages that each pocket may hold */

static void add(uint64_t *count, uint64_t more)
{
	__atomic_store_n(count, *count + more, __ATOMIC_RELAXED);
}

static uint64_t pages_in(const struct pocket *pocket)
{
	return __atomic_load_n(&pocket->pages, __ATOMIC_RELAXED);
}

static unsigned all_in_use(void)
{
	return __atomic_load_n(&pocket_count, __ATOMIC_RELAXED);
}

static bool is_open(void)
{
	return __atomic_load_n(&pocket_open, __ATOMIC_RELAXED);
}

static void push(struct pocket *pocket, uint32_t first, uint32_t pages)
{
	pocket->extents[pocket->count++] = (struct extent){first, pages};
}

static void drop(struct pocket *pocket, unsigned place)
{
	pocket->extents[place] = pocket->extents[--pocket->count];
}

/* ---- taking ------------------------------------------------------------------------------------------ */

/* The shortest extent of at least that many pages; NULL for none. */
static struct extent *shortest(struct pocket *pocket, uint32_t pages)
{
	struct extent *best = NULL;

	for (unsigned i = 0; i < pocket->count; i++) {
		struct extent *extent = &pocket->extents[i];

		if (extent->pages >= pages && (!best || extent->pages < best->pages))
			best = extent;
	}
	return best;
}

/*
 * Makes a large run of an extent's first pages.  The rest is marked first: a thread that frees this run, or
 * carves the one behind the extent, looks at the marks of its neighbours.
 */
static uint32_t cut(struct pocket *pocket, struct extent *extent, uint32_t pages)
{
	uint32_t first = extent->first;

	run_at(first)->pages = pages;
	if (extent->pages > pages)
		run_set_id(first + pages, PAGE_TRANSIT);
	if (pages > 1)
		run_set_id(first + pages - 1, PAGE_LARGE_TAIL);
	extent->first += pages;
	extent->pages -= pages;
	if (!extent->pages)
		drop(pocket, (unsigned)(extent - pocket->extents));
	add(&pocket->pages, -(uint64_t)pages);
	add(&pocket->takes, 1);
	run_set_id(first, PAGE_LARGE);
	return first;
}

static void *take(struct pocket *pocket, uint32_t pages)
{
	if (!cpuslab_spin_trylock(&pocket->lock))
		return NULL;
	pocket->freed = false;

	struct extent *extent = shortest(pocket, pages);
	void *run = extent ? run_address(cut(pocket, extent, pages)) : NULL;

	cpuslab_spin_unlock(&pocket->lock);
	return run;
}

/* Exchanges the pocket's extents for the longest dirty run, and cuts a run from it.  With both locks. */
static void *exchange(struct pocket *pocket, uint32_t pages)
{
	while (pocket->count) {
		struct extent extent = pocket->extents[--pocket->count];

		add(&pocket->pages, -(uint64_t)extent.pages);
		run_free_waiting(extent.first, extent.pages);
	}

	uint32_t first, got = run_take_widest(pages, max_t(uint32_t, most, pages), &first);

	if (!got)
		return NULL;
	push(pocket, first, got);
	add(&pocket->pages, got);
	first = cut(pocket, pocket->extents, pages);
	allowance_note_large(got);
	allowance_note_in_ebb(pages);
	return run_address(first);
}

static __attribute__((noinline)) void *exchange_and_take(struct pocket *pocket, uint32_t pages)
{
	unsigned vcpu = (unsigned)(pocket - pockets);
	void *run = NULL;

	run_lock();
	if (is_open() && cpuslab_spin_trylock(&pocket->lock)) {
		if (vcpu >= pocket_count)
			__atomic_store_n(&pocket_count, vcpu + 1, __ATOMIC_RELAXED);
		run = exchange(pocket, pages);
		cpuslab_spin_unlock(&pocket->lock);
	}
	run_unlock();
	return run;
}

void *pocket_take(size_t pages, unsigned vcpu)
{
	struct pocket *pocket = &pockets[vcpu % POCKETS];

	if (pages > LONGEST)
		return NULL;
	void *run = take(pocket, (uint32_t)pages);

	return __builtin_expect(run != NULL, 1) ? run : exchange_and_take(pocket, (uint32_t)pages);
}

/* ---- freeing ----------------------------------------------------------------------------------------- */

/* Two extents have become one at page `at`: only the ends of [first, end) stay marked. */
static void join(uint32_t at, uint32_t first, uint32_t end)
{
	if (at - 1 != first)
		run_set_id(at - 1, PAGE_FREE);
	if (at != end - 1)
		run_set_id(at, PAGE_FREE);
}

/* Adds pages whose ends are marked, coalescing them with their neighbours. */
static void put(struct pocket *pocket, uint32_t first, uint32_t pages)
{
	uint32_t end = first + pages, start = first, stop = end;

	for (unsigned i = 0; i < pocket->count;) {
		struct extent beside = pocket->extents[i];

		if (beside.first + beside.pages == first)
			start = beside.first;
		else if (beside.first == end)
			stop = end + beside.pages;
		else {
			i++;
			continue;
		}
		drop(pocket, i);
	}
	if (start < first)
		join(first, start, stop);
	if (stop > end)
		join(end, start, stop);
	push(pocket, start, stop - start);
}

/* Whether the pocket takes one more run of that many pages. */
static bool accepts(struct pocket *pocket, size_t pages)
{
	bool again = pocket->freed;

	pocket->freed = true;
	if (again || pocket->count == EXTENTS ||
	    pocket->pages + pages > __atomic_load_n(&most, __ATOMIC_RELAXED))
		return false;
	pocket->turns = (pocket->turns + 1) % TURNS;
	return pocket->turns != 0;
}

bool pocket_put(uint32_t first, size_t pages, unsigned vcpu)
{
	struct pocket *pocket = &pockets[vcpu % POCKETS];

	if (pages > LONGEST || vcpu % POCKETS >= all_in_use() || headroom_is_behind(first, (uint32_t)pages) ||
	    !cpuslab_spin_trylock(&pocket->lock))
		return false;
	bool accepted = accepts(pocket, pages);

	if (accepted) {
		run_mark_ends(first, (uint32_t)pages, PAGE_TRANSIT);
		put(pocket, first, (uint32_t)pages);
		add(&pocket->pages, pages);
		add(&pocket->puts, 1);
	}
	cpuslab_spin_unlock(&pocket->lock);
	return accepted;
}

/* ---- how much, and for how long ---------------------------------------------------------------------- */

void pocket_calls(uint64_t *takes, uint64_t *puts)
{
	*takes = *puts = 0;
	for (unsigned i = 0; i < all_in_use(); i++) {
		*takes += __atomic_load_n(&pockets[i].takes, __ATOMIC_RELAXED);
		*puts += __atomic_load_n(&pockets[i].puts, __ATOMIC_RELAXED);
	}
}

static void set_open(bool open)
{
	pocket_earned = 0;
	__atomic_store_n(&pocket_open, open, __ATOMIC_RELAXED);
}

void pocket_close(void)
{
	set_open(false);
	__atomic_store_n(&most, 0, __ATOMIC_RELAXED);
}

void pocket_waited(void)
{
	/* Not if freed memory is to go back at once (decay:0), or is not to be used again soon. */
	if (!is_open() && ++pocket_earned >= EARNED && options.decay && !huge_is_isolated())
		set_open(true);
}

void pocket_bound(size_t live, size_t dirty)
{
	size_t pages = pocket_pages();

	if (!is_open())
		return;
	if (live < pages / 2 || !options.decay) {
		pocket_close();
		return;
	}
	size_t bound = min_t(size_t, live + live / 2, dirty) / max_t(unsigned, pocket_count, 2) / STEP * STEP;

	if (bound != most)
		__atomic_store_n(&most, (uint32_t)min_t(size_t, bound, UINT32_MAX), __ATOMIC_RELAXED);
}

size_t pocket_sum(void)
{
	size_t pages = 0;

	for (unsigned i = 0; i < all_in_use(); i++)
		pages += pages_in(&pockets[i]);
	return pages;
}

bool pocket_is_left(void)
{
	return !is_open() && pocket_pages();
}

static bool served_since(uint64_t *last)
{
	uint64_t takes, puts, before = *last;

	pocket_calls(&takes, &puts);
	*last = takes;
	return takes != before;
}

bool pocket_served(void)
{
	static uint64_t last_free;

	return served_since(&last_free);
}

uint32_t pocket_recall(uint32_t *first)
{
	for (unsigned i = 0; i < all_in_use(); i++) {
		struct pocket *pocket = &pockets[i];
		struct extent extent = {0};

		if (!pages_in(pocket) || !cpuslab_spin_trylock(&pocket->lock))
			continue;
		if (pocket->count) {
			extent = pocket->extents[--pocket->count];
			add(&pocket->pages, -(uint64_t)extent.pages);
		}
		cpuslab_spin_unlock(&pocket->lock);
		*first = extent.first;
		if (extent.pages)
			return extent.pages;
	}
	return 0;
}

void pocket_forget(void)
{
	static uint64_t last_tick;

	if (!served_since(&last_tick))
		pocket_close();
}

bool pocket_is_in_hand(void)
{
	for (unsigned i = 0; i < all_in_use(); i++)
		if (cpuslab_spin_is_locked(&pockets[i].lock))
			return true;
	return false;
}

void pocket_repair(void)
{
	for (unsigned i = 0; i < POCKETS; i++) {
		cpuslab_spin_reset(&pockets[i].lock);
		pockets[i].count = 0;
		pockets[i].pages = 0;
	}
}

void pocket_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	/* Each pocket begins with three counts: takes, puts, pages. */
	show("pocket.each", (uintptr_t)pockets, sizeof pockets);
	show("pocket", 0, sizeof(struct pocket));
}
