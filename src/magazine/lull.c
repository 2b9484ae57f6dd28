/* SPDX-License-Identifier: MIT */
#include "magazine/lull.h"

#include "check/corruption.h"
#include "depot/ebb.h"
#include "magazine/census.h"
#include "magazine/reclaim.h"
#include "magazine/watch.h"
#include "magazine/words.h"
#include "options/options.h"
#include "os/os.h"

enum {
	LULL_GAP = 8,    /* milliseconds between two such calls, from which they are rare */
	LULL_CALLS = 32, /* that go by the spare in such a step */
	LULL_TIMES = 4,  /* that words become void in one: once, but where MAGAZINE_MUCH waits */
	LULL_LEAST = (128 << 10) >> PAGE_SHIFT /* pages that wait */
};
struct lull_state lull;

#define GET(field)        __atomic_load_n(&lull.field, __ATOMIC_RELAXED)
#define SET(field, value) __atomic_store_n(&lull.field, value, __ATOMIC_RELAXED)

/* Returns for how long nobody has come by. */
static uint64_t note_step(void)
{
	uint64_t now = os_milliseconds(), last = GET(step);

	if (now != last) {
		SET(step, now);
		SET(calls, 0);
		SET(times, 0);
	}
	return os_elapsed(last, now);
}

/* Whoever begins one makes words void. */
static void begin(void)
{
	SET(vcpu, arch_id(vcpu_self));
	SET(loaded, false);
	SET(on, true);
}

/* The magazines stay beside their words, where the next misses find them if they are many. */
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
	if ((GET(on) && !GET(loaded) && GET(vcpu) == arch_id(vcpu_self)) || options.hardened)
		return;
	if (page_rests(MAGAZINE_MUCH, standing_by))
		void_words(LULL_TIMES);
	else if (fell && page_rests(LULL_LEAST, 0))
		void_words(1);
}

/* A program that replaces a block, small beside the time that it takes to do so, is no nearer to its end. */
void magazine_large_freed(size_t standing_by)
{
	bool fell = page_large_fell();

	lull_look(standing_by, fell);
	if (fell && ebb_repeat())
		magazine_tick();
}

/* Of classes that have no object left, not even in a magazine. */
static __attribute__((noinline)) void give_last_slabs(void)
{
	for (unsigned number = CENSUS_FIRST; number < census_lasting; number++) {
		struct cache *cache = magazine_cache_number(number);
		struct slab_cache *slabs = cache ? &cache->depot.slabs : NULL;

		if (slabs && __atomic_load_n(&slabs->kept_empty, __ATOMIC_RELAXED) &&
		    !__atomic_load_n(&slabs->allocated, __ATOMIC_RELAXED))
			slab_cache_shrink(slabs);
	}
}

void lull_follow(void)
{
	if (!GET(loaded))
		give_last_slabs();
	else if (page_rests(LULL_LEAST, 0))
		void_words(LULL_TIMES);
	else
		SET(on, false);
}

bool lull_is_one_of_few(const struct cache *cache)
{
	bool rare = note_step() >= LULL_GAP;
	unsigned calls = GET(calls);

	if (calls == LULL_CALLS || watch_chooses_among(cache)) {
		/* All slow paths read this line. */
		if (!GET(loaded))
			SET(loaded, true);
		return false;
	}
	/* Its word was not made void. */
	if (cache->number >= census_lasting)
		return false;
	SET(calls, calls + 1);
	/* Not where the program goes on: its calls would give back what it needs again, and wait for that. */
	if (rare)
		magazine_tick();
	return true;
}

/*
 * A program's threads have ended but for one, which may do little from now on: a lull begins on all vCPUs,
 * since it need not run on this one.  That takes a fence, and the next call of each cache an exchange: a
 * program whose threads come and go one by one pays for it once in each PAUSE, but for the first BURST times.
 *
 * Another thread may be here that ended just before this one.  What this one had is not among what that one
 * empties, so this one waits for it.
 */
void magazine_left_alone(void)
{
	enum { PAUSE = 64 /* milliseconds */, BURST = 4 };
	static uint64_t paid_until;

	if (options.hardened)
		return;
	corruption_begin_walk(&census_lock);
	uint64_t now = os_milliseconds();

	if (paid_until < now)
		paid_until = now;
	if (paid_until - now < BURST * PAUSE) {
		paid_until += PAUSE;
		begin();
		reclaim_words(census_lasting);
	}
	corruption_end_walk(&census_lock);
}

#undef GET
#undef SET
