/* SPDX-License-Identifier: MIT */
#include "magazine/lull.h"

#include "arch/minmax.h"
#include "background/background.h"
#include "check/corruption.h"
#include "depot/ebb.h"
#include "magazine/census.h"
#include "magazine/reclaim.h"
#include "magazine/watch.h"
#include "magazine/words.h"
#include "options/options.h"
#include "os/os.h"

enum {
	LULL_GAP = 8,     /* milliseconds between two misses in a lull, from which they are rare */
	LULL_CALLS = 2,   /* calls in a millisecond that go by the spare, for as long as there are no more */
	LULL_MOST = 1024, /* and at once: some tenth of a millisecond's work */
	LULL_LAST = 16,   /* of these, at the end of the last thread: libc's own in its end and its join */
	LULL_TURNS = 8,   /* batches that one rare call gives back: less than a millisecond's work in most */
	LULL_TIMES = 4,   /* times that words become void in a step, at most; see lull_look */
};
struct lull_state lull;

#define GET(field)        __atomic_load_n(&lull.field, __ATOMIC_RELAXED)
#define SET(field, value) __atomic_store_n(&lull.field, value, __ATOMIC_RELAXED)

/* Begins a new step if the clock has moved on.  Returns the milliseconds since the last call. */
static uint64_t note_step(void)
{
	uint64_t now = os_milliseconds(), last = GET(step);

	if (now != last) {
		uint64_t passed = (uint64_t)LULL_CALLS * os_elapsed(last, now);

		SET(step, now);
		SET(calls, GET(calls) > passed ? GET(calls) - (unsigned)passed : 0);
		SET(times, 0);
	}
	return os_elapsed(last, now);
}

/* Begins a lull; the caller makes the words void. */
static void begin(void)
{
	SET(vcpu, arch_id(vcpu_self));
	SET(loaded, false);
	SET(on, true);
}

/* The magazines stay beside their words, where the next misses find them if there are many. */
static __attribute__((noinline)) void void_words(unsigned times)
{
	(void)note_step();
	if (GET(times) >= times)
		return;
	SET(times, GET(times) + 1);
	begin();
	for (unsigned number = CENSUS_FIRST; number < census_lasting; number++) {
		struct cache *cache = magazine_cache_number(number);
		bool closed;

		if (cache)
			words_put_spare(cache, cache->offset, words_detach(cache, &closed).magazine);
	}
}

void lull_look(size_t standing_by, bool fell)
{
	if ((GET(on) && !GET(loaded) && GET(vcpu) == arch_id(vcpu_self)) || options.hardened ||
	    background_serves())
		return;
	if (page_rests(MAGAZINE_MUCH, standing_by))
		void_words(LULL_TIMES);
	else if (fell && page_rests(LULL_LEAST, 0))
		void_words(1);
}

/*
 * A program that goes on pays for LULL_MOST calls by the spare each time: as often as a fall has halvings,
 * and then once in each PAUSE, which is less than a hundredth of its time.
 */
void lull_await(void)
{
	enum { PAUSE = 8 /* milliseconds */, BURST = 16 };
	static uint64_t paid_until;
	uint64_t now = os_milliseconds(), paid = __atomic_load_n(&paid_until, __ATOMIC_RELAXED);

	if (paid < now)
		paid = now;
	if (options.hardened || paid - now >= BURST * PAUSE)
		return;
	__atomic_store_n(&paid_until, paid + PAUSE, __ATOMIC_RELAXED);
	SET(times, 0);
	SET(calls, 0);
	void_words(1);
}

/*
 * A program that replaces a block is no nearer to its end: unless large objects fell, only MAGAZINE_MUCH
 * begins a lull.
 */
void magazine_large_freed(size_t standing_by)
{
	bool fell = page_large_fell();

	if (background_is_wanted())
		background_note(page_is_behind());
	lull_look(standing_by, fell);
	if (fell && ebb_repeat())
		magazine_tick();
}

/* Gives back the empty slabs, of which each class keeps one. */
static __attribute__((noinline)) void give_last_slabs(void)
{
	for (unsigned number = CENSUS_FIRST; number < census_lasting; number++) {
		struct cache *cache = magazine_cache_number(number);
		struct slab_cache *slabs = cache ? &cache->depot.slabs : NULL;

		if (slabs && __atomic_load_n(&slabs->kept_empty, __ATOMIC_RELAXED))
			slab_cache_shrink(slabs);
	}
}

void lull_follow(void)
{
	if (!GET(loaded))
		give_last_slabs();
	else if (page_rests(LULL_LEAST, 0) || ebb_may_last())
		void_words(LULL_TIMES);
	else
		SET(on, false);
}

bool lull_is_one_of_few(const struct cache *cache)
{
	bool rare = note_step() >= LULL_GAP;
	unsigned calls = GET(calls);

	if (calls == LULL_MOST || watch_chooses_among(cache)) {
		/* Only once, since all slow paths read this cache line. */
		if (!GET(loaded))
			SET(loaded, true);
		return false;
	}
	/* The lull did not make this cache's word void. */
	if (cache->number >= census_lasting)
		return false;
	SET(calls, calls + 1);
	/*
	 * Only if calls are rare: a program that goes on would have what it needs again given back, and wait
	 * for that.
	 */
	for (unsigned turn = 0; rare && turn < LULL_TURNS; turn++) {
		magazine_tick();
		rare = reclaim_goes_on();
	}
	return true;
}

/*
 * Begins a lull on all vCPUs when all threads but one have ended: that one may do little from now on, and
 * need not run here.  This takes a fence, and at the next call of each cache an exchange: a program whose
 * threads come and go one by one pays for it once in each PAUSE, but for the first BURST times.
 *
 * Waits for a thread that is here already because it ended just before this one: what this thread had is not
 * among what that one empties.
 */
void magazine_left_alone(void)
{
	enum { PAUSE = 64 /* milliseconds */, BURST = 4 };
	static uint64_t paid_until;

	if (options.hardened || background_serves())
		return;
	corruption_begin_walk(&census_lock);
	uint64_t now = os_milliseconds();

	if (paid_until < now)
		paid_until = now;
	if (paid_until - now < BURST * PAUSE) {
		paid_until += PAUSE;
		/* Others may have used up all of them just before. */
		SET(calls, min_t(unsigned, GET(calls), LULL_MOST - LULL_LAST));
		begin();
		reclaim_words(census_lasting);
	}
	corruption_end_walk(&census_lock);
}

#undef GET
#undef SET
