/* SPDX-License-Identifier: MIT */
#include "page/allowance.h"

#include "arch/minmax.h"
#include "page/limit.h"
#include "page/metadata.h"
#include "page/purge.h"
#include "page/tide.h"

enum {
	HOARDS_PART = 16,                        /* part of the heap that, when taken, brings hoards back */
	HOARDS_FRESH = (1 << 20) >> PAGE_SHIFT,  /* but at least so many pages from the system */
	HOARDS_ANY = (4 << 20) >> PAGE_SHIFT,    /* or from anywhere: small heaps turn over fast */
	DIRTY_FLOOR = (512 << 10) >> PAGE_SHIFT, /* pages that may be dirty in any case */
	PEAK_SLACK = 32,                         /* and this part of the peak */
	WINDOW_PARTS = 8,                        /* pages taken per window, as a multiple of the peak */
	MISSED_MOST = 2,                         /* part of the peak that may stay of what was missed */
	REGRET = 2,                              /* weight of a missed page: it is learnt sooner */
	TIDE_FORGET = 64,                        /* ticks until one fall in vain is forgotten */
	GATHERED_PART = 8,                       /* part of the pages in use that may gather in an ebb */
	GATHERED_MOST = 64,                      /* but no more pages than this */
	EBB_TAKEN = 32,                          /* pages that may be taken while an ebb lasts */
	FEW_FREED = 32,                          /* first frees of large objects, which replace nothing */
	RESTS_PART = 8,                          /* part of the pages in use that waits: see page_rests */
};

/* Aligns a variable no more than it needs: the library's variables fill their page. */
#define PACKED_CLOSELY __attribute__((aligned(8)))

struct allowance allowance PACKED_CLOSELY;
static size_t peak; /* most pages in use at once of late; fades at each tick */
static struct {
	size_t most;  /* most pages in use at once since the window began */
	size_t taken; /* pages taken since */
} window PACKED_CLOSELY;
/* The tide of bytes in large objects. */
static struct tide large_tide PACKED_CLOSELY = {
	.lasts = true, .passed_log = 4, .more_log = 4, .most_log = 12};
static bool large_freed;  /* a large object was freed since one was last taken */
static bool large_fell;   /* two or more were freed in succession, or one of the first */
static uint8_t few_freed; /* frees of large objects, up to FEW_FREED */
static size_t missed;     /* pages given back too soon; fades at each tick */
static size_t hollow;     /* pages in use that take no memory; changes without the lock */
static size_t touched; /* pages in use of which the program has touched each, but for hollow ones; likewise */

/* How many of the missed pages may stay the next time. */
static size_t missed_allowance(void)
{
	return min_t(size_t, missed, peak / MISSED_MOST);
}

size_t allowance_filled(void)
{
	size_t used = run_used_pages();
	size_t empty = __atomic_load_n(&hollow, __ATOMIC_RELAXED) + pocket_pages();

	return used > empty ? used - empty : 0;
}

/*
 * How many pages may be dirty, including those in pockets: what the program has needed of late beyond what it
 * uses now.  Keeping these saves page faults and never raises the peak of resident memory, since used and
 * dirty pages together stay within what was in use at once.  In an ebb, no more than the program still uses.
 * DIRTY_FLOOR is for programs too small to have a history.  Blocks of many sizes, however, leave gaps that
 * the next one does not fit into: pages that were given back as too many, and soon taken from the system
 * again, may stay the next time, up to half of the peak beyond it.
 */
static size_t dirty_anywhere(void)
{
	size_t used = allowance_filled(), limit = options.dirty >> PAGE_SHIFT;
	size_t dirty = DIRTY_FLOOR + peak / PEAK_SLACK + (peak > used ? peak - used : 0) + missed_allowance();

	if (allowance.ebbing && dirty > used)
		dirty = used;
	if (limit_is_set())
		limit = min_t(size_t, limit, limit_room() + pocket_pages());
	return dirty < limit ? dirty : limit;
}

size_t allowance_dirty(void)
{
	size_t dirty = dirty_anywhere(), pockets = pocket_pages();

	return dirty > pockets ? dirty - pockets : 0;
}

__attribute__((noinline)) int64_t allowance_large_bytes(void)
{
	size_t runs, pages = standby_pages(&runs) + pocket_pages();
	int64_t out = (int64_t)run_pages.large - (int64_t)pages;

	/* Runs on standby may have grown into headroom that is not counted yet. */
	return out > 0 ? out << PAGE_SHIFT : 0;
}

/* Out of line: few programs have pockets. */
static __attribute__((noinline)) void bound_pockets(void)
{
	pocket_bound((size_t)allowance_large_bytes() >> PAGE_SHIFT, dirty_anywhere());
}

/*
 * Forgets what was in use before the last window, which is measured in pages taken: fading with time alone
 * would keep the peak of a program that is done within a tick.
 */
static void begin_window(size_t used)
{
	if (peak > window.most)
		peak = window.most;
	window.most = used;
	window.taken = 0;
}

void allowance_note_in_ebb(uint32_t pages)
{
	allowance.ebb_taken += pages;
	if (allowance.ebb_taken > EBB_TAKEN)
		allowance.ebbing = false;
}

void allowance_note_use(uint32_t pages, uint32_t fresh)
{
	size_t used = allowance_filled();

	if (used > peak)
		peak = used;
	if (used > window.most)
		window.most = used;
	window.taken += pages;
	if (window.taken > WINDOW_PARTS * peak)
		begin_window(used);
	allowance_note_in_ebb(pages);
	if (limit_is_set())
		limit_note(pages);
	allowance.taken_fresh += fresh;

	size_t regretted = fresh < allowance.given_back ? fresh : allowance.given_back;

	missed += REGRET * regretted;
	allowance.given_back -= regretted;
}

void allowance_note_large(uint32_t pages)
{
	run_pages.large += pages;
	if (large_freed && run_has_waited)
		pocket_waited();
	large_freed = false;
	__atomic_store_n(&large_fell, false, __ATOMIC_RELAXED);
	tide_rose(&large_tide, allowance_large_bytes());
	if (pocket_open)
		bound_pockets();
}

/*
 * The fall may be for good, and this the last call, so an ebb is begun at once.  A program that replaces its
 * largest object also falls by more than half until it has allocated the new one: so a single free between
 * two allocations is no ebb, unless it leaves nothing.  A fall in vain costs a page fault for each page, and
 * programs that take and free everything they have do so often: then many falls are passed over (tide.h).
 */
void allowance_note_large_freed(uint32_t pages)
{
	/* Allocations served from pockets do not clear large_freed. */
	bool replaced = !large_freed || (pocket_count && pocket_served());

	run_pages.large -= pages;
	large_freed = true;
	/* A program that replaces blocks frees more of them than this. */
	if (few_freed < FEW_FREED)
		few_freed++;
	__atomic_store_n(&large_fell, !replaced || few_freed < FEW_FREED, __ATOMIC_RELAXED);

	int64_t bytes = allowance_large_bytes();

	if ((!replaced || !bytes) && tide_fell(&large_tide, bytes))
		allowance_begin_ebb();
	if (pocket_open)
		bound_pockets();
}

/*
 * In an ebb slabs become free one after the other: lets some gather, so that a few system calls purge them
 * instead of one each.
 */
bool allowance_is_purge_due(uint64_t now)
{
	size_t gathered = 0;

	if (allowance.ebbing) {
		gathered = allowance_filled() / GATHERED_PART;
		if (gathered > GATHERED_MOST)
			gathered = GATHERED_MOST;
	}
	return run_pages.free[RUN_DIRTY] > allowance_dirty() + gathered || allowance_is_old(now);
}

/* At a tick: forgets an eighth of what the program has needed, and of what it missed. */
static void fade(void)
{
	static unsigned ticks;
	size_t used = allowance_filled();

	if (peak > used)
		peak -= (peak - used) / 8;
	missed -= missed / 8;
	allowance.given_back -= allowance.given_back / 8;
	if (++ticks % TIDE_FORGET == 0)
		tide_forget(&large_tide);
}

/* ---- the room's functions ------------------------------------------------------------------------------ */

/*
 * Calls what gives pages back only if some are due: its code lies on pages that a small program never
 * touches.
 */
void page_tick(void)
{
	run_lock();
	fade();
	run_recall();
	standby_forget();
	if (pocket_open || pocket_earned)
		pocket_forget();
	bool due = allowance_is_overdue(os_milliseconds());

	run_unlock();
	metadata_tick();
	if (due || page_is_behind() || metadata_is_due())
		page_purge(false);
	else
		huge_purge(false);
}

void page_count_hollow(long more)
{
	__atomic_fetch_add(&hollow, (size_t)more, __ATOMIC_RELAXED);
	if (limit_is_set() && more < 0)
		limit_note((size_t)-more);
}

void page_count_touched(long more)
{
	__atomic_fetch_add(&touched, (size_t)more, __ATOMIC_RELAXED);
}

bool allowance_is_resident(size_t least)
{
	size_t resident = __atomic_load_n(&touched, __ATOMIC_RELAXED) + run_pages.free[RUN_DIRTY];

	return resident >= least + __atomic_load_n(&hollow, __ATOMIC_RELAXED);
}

bool page_large_fell(void)
{
	return __atomic_load_n(&large_fell, __ATOMIC_RELAXED);
}

bool page_rests(size_t least, size_t standing_by)
{
	size_t dirty = __atomic_load_n(&run_pages.free[RUN_DIRTY], __ATOMIC_RELAXED) + standing_by;
	size_t clean = __atomic_load_n(&run_pages.free[RUN_CLEAN], __ATOMIC_RELAXED);
	size_t waits = dirty + huge_waiting();

	return waits >= least &&
	       clean + dirty + RESTS_PART * waits >= __atomic_load_n(&run_pages.top, __ATOMIC_RELAXED);
}

size_t page_dirty(void)
{
	return __atomic_load_n(&run_pages.free[RUN_DIRTY], __ATOMIC_RELAXED);
}

/* Takes no lock: a stale answer costs little, and the next caller sees the change. */
static bool many_taken(void)
{
	size_t part = __atomic_load_n(&run_pages.top, __ATOMIC_RELAXED) / HOARDS_PART;

	return __atomic_load_n(&allowance.taken_fresh, __ATOMIC_RELAXED) >=
		       max_t(size_t, part, HOARDS_FRESH) ||
	       __atomic_load_n(&allowance.taken, __ATOMIC_RELAXED) >= max_t(size_t, part, HOARDS_ANY);
}

bool page_wants_hoards(void)
{
	if (!many_taken())
		return false;
	run_lock();
	bool many = many_taken();

	if (many)
		allowance.taken = allowance.taken_fresh = 0;
	run_unlock();
	return many;
}
