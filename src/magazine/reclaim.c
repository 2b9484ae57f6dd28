/* SPDX-License-Identifier: MIT */
#include "magazine/reclaim.h"

#include <sys/single_threaded.h>

#include "background/background.h"
#include "check/corruption.h"
#include "depot/ebb.h"
#include "guard/guard.h"
#include "linked/linked.h"
#include "magazine/census.h"
#include "magazine/control.h"
#include "magazine/lull.h"
#include "magazine/watch.h"
#include "magazine/words.h"
#include "options/options.h"
#include "os/os.h"

/* ---- what is on words ---------------------------------------------------------------------------------- */

static bool words_moved; /* since background_step() cleared it; with the census lock */

/*
 * A cache is idle on a vCPU when its word has not moved since the last look.  The fast path counts nothing,
 * so the word itself is compared with a copy of it (glimpse); equality by chance costs one refill.
 */
static bool is_idle(const uintptr_t *word)
{
	uintptr_t loaded = __atomic_load_n(word, __ATOMIC_RELAXED);
	uintptr_t spare = __atomic_load_n(word + VCPU_ROW, __ATOMIC_RELAXED);

	return loaded == word[3 * VCPU_ROW] && (loaded != vcpu_void || spare);
}

/* Notes a word for the next look. */
static void glimpse(uintptr_t *word)
{
	word[3 * VCPU_ROW] = __atomic_load_n(word, __ATOMIC_RELAXED);
}

/*
 * Callbacks for vcpu_drain, with the census lock: whether to empty a word (any; in an ebb; if idle), and how.
 */
static bool wants_full(unsigned number, uintptr_t *word)
{
	return census_of_word(number) && words_hold_any(word);
}

/* Not hardened caches: their objects would be handed out again too soon, and their slabs stay anyway. */
static bool follows_ebbs(const struct cache *cache)
{
	return cache && !magazine_is_hardened(cache);
}

static bool wants_ebbing(unsigned number, uintptr_t *word)
{
	return follows_ebbs(census_of_word(number)) && words_hold_any(word);
}

static bool wants_idle(unsigned number, uintptr_t *word)
{
	const struct cache *cache = census_of_word(number);

	if (!cache)
		return false;
	if (is_idle(word) || (cache->depot.shrunk && words_hold_any(word)))
		return true;
	words_moved |= __atomic_load_n(word, __ATOMIC_RELAXED) != word[3 * VCPU_ROW];
	glimpse(word);
	return false;
}

static void empty_number(unsigned number, uintptr_t *word)
{
	words_empty(census_of_word(number), word, depot_put);
	glimpse(word);
}

/*
 * In an ebb, what may not wait in a depot leaves by portions as well: the call that follows the ebb has
 * enough to do.
 */
static void empty_ebbing(unsigned number, uintptr_t *word)
{
	words_empty(census_of_word(number), word, depot_put_to_leave);
	glimpse(word);
}

/* ---- pages that go by age ------------------------------------------------------------------------------ */

/*
 * Whether a hardened cache's memory may go back by age: not if objects keep their content, since their
 * addresses would be lost with it.
 */
static bool is_purged(const struct cache *cache)
{
	return cache && magazine_is_hardened(cache) && !slab_keeps_content(&cache->depot.slabs.traits);
}

/* Hardened caches' pages never become free runs, which would be purged by age.  With the census lock. */
static void purge_hardened(void)
{
	static uint64_t last;
	uint64_t now = os_milliseconds();

	if (!options.hardened || os_elapsed(last, now) < options.decay)
		return;
	last = now;
	for (unsigned number = CENSUS_FIRST; number < census_count; number++)
		if (is_purged(census_caches[number]))
			slab_cache_shrink(&census_caches[number]->depot.slabs);
}

/* Gives back pages of partial slabs.  Returns whether that was all there are.  With the census lock. */
static bool hollow_slabs(enum slab_hollowing which)
{
	size_t most = which == SLAB_HOLLOW_ALL ? SIZE_MAX : PAGE_PURGE_MOST;

	for (unsigned number = CENSUS_FIRST; number < census_count && most; number++) {
		size_t given = census_caches[number]
				       ? slab_hollow(&census_caches[number]->depot.slabs, which, most)
				       : 0;

		most -= given < most ? given : most;
	}
	return most;
}

/*
 * The same by age; what exceeds the bound of one call is for the next.  Returns whether nothing is left.  A
 * page goes when it was not needed for a whole period between two looks: in the background thread after half
 * of the decay time to all of it, elsewhere after once to twice.
 */
static bool hollow_by_age(void)
{
	static uint64_t last;
	uint64_t now = os_milliseconds(), period = background_serves() ? options.decay / 2 : options.decay;

	if (os_elapsed(last, now) < period)
		return true;
	if (!hollow_slabs(SLAB_HOLLOW_UNNEEDED))
		return false;
	last = now;
	return true;
}

/* ---- what leaves by portions; ebbs --------------------------------------------------------------------- */

/*
 * What leaves after a tick or an ebb goes by portions, lest a single free pay for all of it: each call that
 * comes to a depot gives some to the slabs.  After an ebb that has come far, pages that the slabs still have
 * but no object lies in follow: what is left may stay for good, and no call come here again.  With the census
 * lock, but for a glance at `due`.
 *
 * Smaller portions would be more of them: one call in some thousands that takes twice as long is better than
 * twice as many long calls.
 */
enum {
	PORTION_LEAST = DEPOT_PORTION,
	PORTIONS = 64,       /* at most, unless they are as small as can be */
	HOLLOW_PORTION = 128 /* pages, as slab_hollow counts them */
};
static struct {
	bool due, hollows;
	unsigned next, next_hollow; /* cache numbers */
	uint64_t portion;           /* objects in each portion */
} departure;

/* Gives back one portion of pages.  Returns whether it was the last. */
static __attribute__((noinline)) bool hollow_portion(void)
{
	size_t left = HOLLOW_PORTION;

	for (; departure.next_hollow < census_count; departure.next_hollow++) {
		struct cache *cache = census_caches[departure.next_hollow];
		size_t given = cache ? slab_hollow(&cache->depot.slabs, SLAB_HOLLOW_EBB, left) : 0;

		if (given >= left)
			return false;
		left -= given;
	}
	return true;
}

/* Gives back the next portion.  With the census lock. */
static void see_off_portion(void)
{
	uint64_t left = departure.portion;

	for (; departure.next < census_count; departure.next++)
		if (census_caches[departure.next] &&
		    !(left = depot_depart(&census_caches[departure.next]->depot, left)))
			return;
	if (departure.hollows && !hollow_portion())
		return;
	departure.hollows = false;
	__atomic_store_n(&departure.due, false, __ATOMIC_RELAXED);
}

static __attribute__((noinline)) void see_off_next(void)
{
	if (!corruption_try_walk(&census_lock))
		return;
	if (departure.due)
		see_off_portion();
	corruption_end_walk(&census_lock);
}

bool reclaim_goes_on(void)
{
	return __atomic_load_n(&departure.due, __ATOMIC_RELAXED) || page_is_behind();
}

/* Lets `leaving` objects go by portions from now on.  With the census lock. */
static void begin_departure(uint64_t leaving)
{
	uint64_t portion = PORTION_LEAST + leaving / PORTIONS;

	if (!departure.due || portion > departure.portion)
		departure.portion = portion;
	departure.next = CENSUS_FIRST;
	__atomic_store_n(&departure.due, true, __ATOMIC_RELAXED);
}

/*
 * Follows an ebb: most of what was out has come back (depot/ebb.h). ebb_begin() makes frees bypass void words
 * first, so that no other thread reloads behind this one's back what was just emptied.  While another thread
 * walks, the ebb stays due: this may have been the program's last call, so a thread that reclaims comes here
 * at the end of its walk; after any other walk the next tick does.  Where little is left, the first portion
 * goes at once, since this, too, may have been the last call.
 */
static __attribute__((noinline)) void follow_ebb(void)
{
	while (ebb_is_due() && corruption_try_walk(&census_lock)) {
		bool low = ebb_begin();
		uint64_t leaving = 0;

		vcpu_drain(CENSUS_FIRST, census_count, wants_ebbing, empty_ebbing);
		for (unsigned number = CENSUS_FIRST; number < census_count; number++)
			if (follows_ebbs(census_caches[number]))
				leaving += depot_ebb(&census_caches[number]->depot);
		begin_departure(leaving);
		departure.hollows = ebb_is_far();
		departure.next_hollow = CENSUS_FIRST;
		if (low)
			see_off_portion();
		corruption_end_walk(&census_lock);
		page_ebb(low);
		for (unsigned i = 0; low && i < 3 && page_is_behind(); i++)
			page_purge(false);
	}
}

/* ---- ticks --------------------------------------------------------------------------------------------- */

/*
 * Emptying other vCPUs' words takes a fence, which stops each running thread for as long as touching some ten
 * pages takes.  What is idle there is bounded, and the heap of a larger program takes many pages before that
 * matters: so it looks only every fourth time, except at ticks.  With the census lock.
 */
static bool looks_at_words(bool by_tick)
{
	enum { LARGE_HEAP = (8 << 20) >> PAGE_SHIFT, TIMES_PASSED = 3 };
	static unsigned passed;

	if (!by_tick && vcpu_areas() > 1 && page_heap_pages() >= LARGE_HEAP && passed < TIMES_PASSED) {
		passed++;
		return false;
	}
	passed = 0;
	return true;
}

/* Before the look at the words: caches that get smaller magazines have theirs emptied. */
static void tick_depots(void)
{
	for (unsigned number = CENSUS_FIRST; number < census_count; number++)
		if (census_caches[number])
			depot_tick(&census_caches[number]->depot);
}

/* Empties all words and depots, and purges free pages of slabs.  With the census lock. */
static __attribute__((noinline, cold)) void empty_all(void)
{
	reclaim_words(census_count);
	for (unsigned number = CENSUS_FIRST; number < census_count; number++)
		if (census_caches[number])
			depot_empty(&census_caches[number]->depot);
	(void)hollow_slabs(SLAB_HOLLOW_ALL);
}

/*
 * Whether more is hoarded than may stay free: anything where freed memory is to go back at once, else more
 * than `dirty`.  Not in hardened mode, where objects are to wait before they are handed out again.  With the
 * census lock.
 */
static bool hoards_too_much(void)
{
	uint64_t bytes = page_dirty() << PAGE_SHIFT, free_pages = bytes;

	if (options.hardened)
		return false;
	for (unsigned number = CENSUS_FIRST; number < census_count; number++)
		if (census_caches[number])
			bytes += __atomic_load_n(&census_caches[number]->depot.objects, __ATOMIC_RELAXED) *
				 census_caches[number]->depot.slabs.traits.size;
	return !options.decay || (bytes > options.dirty && bytes > free_pages);
}

/*
 * Gives what no vCPU has asked for since the last time to the slabs: at every tick, and when many pages were
 * taken.  One thread at a time; another has nothing to add.
 */
static void reclaim(bool by_tick)
{
	if (!corruption_try_walk(&census_lock))
		return;
	if (by_tick)
		tick_depots();
	if (by_tick && hoards_too_much())
		empty_all();
	uint64_t leaving = 0;
	bool departs = false;

	if (looks_at_words(by_tick))
		vcpu_drain(CENSUS_FIRST, census_count, wants_idle, empty_number);
	for (unsigned number = CENSUS_FIRST; number < census_count; number++)
		if (census_caches[number]) {
			leaving += depot_age(&census_caches[number]->depot, !by_tick);
			departs |= census_caches[number]->depot.departs;
		}
	if (by_tick && departs)
		begin_departure(leaving);
	if (by_tick || !background_serves()) {
		(void)hollow_by_age();
		purge_hardened();
	}
	corruption_end_walk(&census_lock);
	if (ebb_is_due() && !background_serves())
		follow_ebb();
	linked_reclaim(false);
}

/* A request from outside (options/mailbox.h). */
static __attribute__((noinline, cold)) void obey(void)
{
	struct control_request request;

	if (!control_take(&request))
		return;
	if (request.trims)
		magazine_trim();
	else
		magazine_heap_tick(0);
	control_answer(&request);
}

/* Of the background thread: the first slow path of the process, and whether it was forked. */
static struct {
	uint64_t first;
	bool forked;
} without_thread ARCH_SPARSE;

/*
 * Whether to make the background thread now: what waits, or a tick's time, is worth it.  A program that ends
 * soon has none, nor has a child that is forked to call exec, for which its parent's pages are no reason.
 */
static bool needs_thread(uint64_t now)
{
	if (!without_thread.first)
		without_thread.first = now;
	return ebb_is_due() || (!without_thread.forked && page_rests(LULL_LEAST, 0)) ||
	       os_elapsed(without_thread.first, now) >= RECLAIM_TICK;
}

void magazine_begin_child(void)
{
	without_thread.first = 0;
	without_thread.forked = true;
	if (ebb_is_due())
		(void)ebb_begin();
}

/* Tells the background thread.  Returns whether it sees to everything. */
static __attribute__((noinline)) bool leave_to_background(uint64_t now)
{
	vcpu_bury_dead_slots();
	if (background_serves() || needs_thread(now))
		background_note(page_is_behind());
	return background_serves();
}

void magazine_tick(void)
{
	static uint64_t last_tick;
	uint64_t now = os_milliseconds(), last = __atomic_load_n(&last_tick, __ATOMIC_RELAXED);

	if (control_is_due())
		obey();
	if (guard_is_due(now))
		watch_turn_guards(now);
	if (background_is_wanted() && leave_to_background(now))
		return;
	if (!__libc_single_threaded)
		vcpu_count_thread();
	if (ebb_is_due())
		follow_ebb();
	else if (page_is_behind())
		page_purge(false);
	else if (__atomic_load_n(&departure.due, __ATOMIC_RELAXED))
		see_off_next();
	else if (ebb_has_halved())
		lull_await();
	if (os_elapsed(last, now) < RECLAIM_TICK ||
	    !__atomic_compare_exchange_n(&last_tick, &last, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	/* The first slow path of the process: nothing can be old. */
	if (!last)
		return;
	vcpu_bury_dead_slots();
	ebb_tick();
	reclaim(true);
	page_tick();
	if (lull_is_on())
		lull_follow();
}

/*
 * Use is near the soft limit.  One thread gives back what all have; another that comes meanwhile has nothing
 * to add.
 */
static __attribute__((noinline, cold)) void give_in(void)
{
	if (!corruption_try_walk(&census_lock))
		return;
	empty_all();
	corruption_end_walk(&census_lock);
	linked_reclaim(true);
	page_purge(true);
}

void magazine_heap_tick(size_t pages)
{
	if (page_presses(pages))
		give_in();
	else if (page_wants_hoards())
		reclaim(false);
}

/* ---- in the background ----------------------------------------------------------------------------------
 */

/* Gives back all that is due now. */
static void give_due(void)
{
	bool hollowed = false;

	while (__atomic_load_n(&departure.due, __ATOMIC_RELAXED))
		see_off_next();
	while (!hollowed) {
		corruption_begin_walk(&census_lock);
		hollowed = hollow_by_age();
		corruption_end_walk(&census_lock);
	}
	while (page_is_behind())
		page_purge(false);
}

/*
 * A step of the background thread.  Whatever a tick does elsewhere happens here, and all of what is due goes,
 * as nobody waits for it.  An ebb needs no more than that.  When the program has not moved for the decay
 * time, all of its hoards go, and no timer is needed: whatever it does next begins with a miss, and so with a
 * note.
 */
unsigned magazine_in_background(bool seen)
{
	static uint64_t last_tick ARCH_SPARSE, last_seen ARCH_SPARSE, last_moved ARCH_SPARSE;
	uint64_t now = os_milliseconds();

	if (seen)
		last_seen = last_moved = now;
	if (control_is_due())
		obey();
	if (ebb_is_due())
		(void)ebb_begin();
	if (os_elapsed(last_tick, now) >= RECLAIM_TICK) {
		last_tick = now;
		ebb_tick();
		words_moved = false;
		reclaim(true);
		page_tick();
		if (words_moved)
			last_moved = now;
	}
	give_due();
	if (os_elapsed(last_moved, now) >= options.decay + RECLAIM_TICK) {
		magazine_trim();
		return BACKGROUND_NO_TIMER;
	}
	/* A program that goes on without a miss has nothing that waits, once all has gone by age. */
	return os_elapsed(last_seen, now) < 2 * options.decay + 5 * RECLAIM_TICK
		       ? RECLAIM_TICK
		       : RECLAIM_TICK + (unsigned)options.decay;
}

/* ---- everything ---------------------------------------------------------------------------------------- */

void reclaim_words(unsigned end)
{
	vcpu_drain(CENSUS_FIRST, end, wants_full, empty_number);
}

void reclaim_all(void)
{
	corruption_begin_walk(&census_lock);
	empty_all();
	corruption_end_walk(&census_lock);
	linked_reclaim(true);
}

void magazine_trim(void)
{
	reclaim_all();
	page_purge(true);
}
