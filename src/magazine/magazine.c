/* SPDX-License-Identifier: MIT */
#include "magazine/magazine.h"

#include <sys/single_threaded.h>

#include "check/corruption.h"
#include "depot/ebb.h"
#include "guard/guard.h"
#include "linked/linked.h"
#include "magazine/census.h"
#include "magazine/hardened.h"
#include "magazine/reclaim.h"
#include "magazine/watch.h"
#include "magazine/words.h"
#include "options/options.h"
#include "os/os.h"
#include "profile/profile.h"

/* ---- magazines in hand --------------------------------------------------------------------------------- */

/*
 * What a slow path has taken off a word, if it still has the right size.  Whoever changed that by the
 * tunables, or because the cache does with less, has emptied all words that it could reach; here come those
 * that it could not, those that another thread had in hand, and empty ones that are too small by now.
 */
static struct magazine *unless_stale(struct cache *cache, struct magazine *magazine)
{
	if (!magazine || !depot_is_stale(&cache->depot, magazine))
		return magazine;
	depot_put(&cache->depot, magazine);
	return NULL;
}

static void push_in_hand(struct magazine *magazine, void *object)
{
	magazine->slot[++magazine->count] = object;
}

/* ---- lulls --------------------------------------------------------------------------------------------- */

/*
 * What a program frees last waits to go back by age, and does so at a slow path.  There may be none: it may
 * have come to its end, and its next calls be a few each second, of which magazines serve every one.  So when
 * a large object is freed and much waits then, malloc's words on this vCPU become void, which needs no fence,
 * and on all vCPUs when the last of several threads but one has ended (magazine_left_alone); and while few
 * calls miss for that they leave the words as they are.  A program that goes on as before soon has its
 * magazines again, and what that costs it has a bound in each step of the clock, of some milliseconds.
 *
 * Without a lock: what two threads store at once one may lose, and then a few calls more or fewer go by the
 * spare.
 */
enum {
	LULL_GAP = 8,    /* milliseconds between two such calls, from which they are rare */
	LULL_CALLS = 32, /* that go by the spare in such a step */
	LULL_TIMES = 4,  /* that words become void in one: once, but where MAGAZINE_MUCH waits */
	LULL_LEAST = (128 << 10) >> PAGE_SHIFT /* pages that wait */
};
static struct {
	bool on;       /* since much waits */
	bool loaded;   /* a word was, since they became void */
	unsigned vcpu; /* of these */
	unsigned calls, times;
	uint64_t step; /* milliseconds */
} lull;

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
static void begin_lull(void)
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
	begin_lull();
	for (unsigned number = CENSUS_FIRST; number < census_lasting; number++) {
		struct cache *cache = magazine_cache_number(number);
		bool closed;

		if (cache)
			words_put_spare(cache, cache->offset, words_detach(cache, &closed).magazine);
	}
}

/* `fell`: what was freed last is not what others replace again and again. */
static __attribute__((noinline)) void look_for_lull(size_t standing_by, bool fell)
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

	look_for_lull(standing_by, fell);
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

/*
 * At a tick.  The program may have gone on, and be at its end only now.  As long as its calls are few it does
 * not matter whether pages wait: depots have some that they give up at one of the next ticks.
 */
static __attribute__((noinline)) void follow_lull(void)
{
	if (!GET(loaded))
		give_last_slabs();
	else if (page_rests(LULL_LEAST, 0))
		void_words(LULL_TIMES);
	else
		SET(on, false);
}

/* Of a call that met a void word: whether it stays so. */
static __attribute__((noinline)) bool is_one_of_few(const struct cache *cache)
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

static bool lull_is_on(void)
{
	return __builtin_expect(GET(on), 0);
}

static bool stays_void(const struct cache *cache)
{
	return lull_is_on() && is_one_of_few(cache);
}

#undef GET
#undef SET

/* ---- aging --------------------------------------------------------------------------------------------- */

/*
 * A cache is idle on a vCPU when its word has not moved since the last look.  Nothing counts on the fast
 * path, so the word itself is compared with a copy; equal by chance, it costs a refill.
 */
static bool is_idle(const uintptr_t *word)
{
	uintptr_t loaded = __atomic_load_n(word, __ATOMIC_RELAXED);
	uintptr_t spare = __atomic_load_n(word + VCPU_ROW, __ATOMIC_RELAXED);

	return loaded == word[3 * VCPU_ROW] && (loaded != vcpu_void || spare);
}

/* For the next look. */
static void glimpse(uintptr_t *word)
{
	word[3 * VCPU_ROW] = __atomic_load_n(word, __ATOMIC_RELAXED);
}

/*
 * For vcpu_drain, with the census lock: all words, those that follow an ebb, those that are idle, and how to
 * empty one.
 */
static bool wants_full(unsigned number, uintptr_t *word)
{
	return census_of_word(number) && words_hold_any(word);
}

/* What hardened caches let go would be handed out again too soon, and their slabs stay anyway. */
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
	glimpse(word);
	return false;
}

static void empty_number(unsigned number, uintptr_t *word)
{
	words_empty(census_of_word(number), word, depot_put);
	glimpse(word);
}

/* In an ebb what cannot wait goes by portions as well: the call that follows it has enough to do. */
static void empty_ebbing(unsigned number, uintptr_t *word)
{
	words_empty(census_of_word(number), word, depot_put_to_leave);
	glimpse(word);
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
		begin_lull();
		vcpu_drain(CENSUS_FIRST, census_lasting, wants_full, empty_number);
	}
	corruption_end_walk(&census_lock);
}

/* Memory that may go by age: without a constructor's objects, which would take their addresses with them. */
static bool is_purged(const struct cache *cache)
{
	return cache && magazine_is_hardened(cache) && !slab_keeps_content(&cache->depot.slabs.traits);
}

/*
 * The pages of hardened caches never become free runs, which would be purged by age.  With the census lock.
 */
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

/* Pages of partial slabs.  With the census lock.  Whether that was all that there is. */
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

/* The same by age.  What a call leaves is for the next tick. */
static void hollow_by_age(void)
{
	static uint64_t last;
	uint64_t now = os_milliseconds();

	if (os_elapsed(last, now) >= options.decay && hollow_slabs(SLAB_HOLLOW_UNNEEDED))
		last = now;
}

/* Before the words are looked at: those of caches that get smaller magazines are emptied. */
static void tick_depots(void)
{
	for (unsigned number = CENSUS_FIRST; number < census_count; number++)
		if (census_caches[number])
			depot_tick(&census_caches[number]->depot);
}

/*
 * What leaves since a tick or an ebb goes by portions, lest somebody's free wait for all of it: each call
 * that comes to a depot gives some to the slabs.  Then, in an ebb that has come far, some pages that these
 * still have but no object lies in go to the system: what is left may stay for good, and nobody come here
 * again.  With the census lock, but for a glance at `due`.
 *
 * Small portions are many: it is better that one call in some thousands takes twice as long than that twice
 * as many are long.
 */
enum {
	PORTION_LEAST = DEPOT_PORTION,
	PORTIONS = 64,       /* more of them than this only where they are as small as can be */
	HOLLOW_PORTION = 128 /* pages, as slab_hollow counts them */
};
static struct {
	bool due, hollows;
	unsigned next, next_hollow; /* numbers of caches */
	uint64_t portion;           /* objects */
} departure;

/* Of pages.  Whether that was the last. */
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

/* The next portion.  With the census lock. */
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

/* So many objects leave.  With the census lock. */
static void begin_departure(uint64_t leaving)
{
	uint64_t portion = PORTION_LEAST + leaving / PORTIONS;

	if (!departure.due || portion > departure.portion)
		departure.portion = portion;
	departure.next = CENSUS_FIRST;
	__atomic_store_n(&departure.due, true, __ATOMIC_RELAXED);
}

/*
 * Most of what was out has come back: see depot/ebb.h.  Frees go past void words from the beginning on, so
 * that no other thread loads behind this one's back what was just emptied.  While another thread walks the
 * ebb stays due: the one here may have made its last call, so that one that reclaims comes here at the end of
 * its walk, and after any other walk the next tick does.  Where little is left its first portion goes at
 * once, since that, too, may have been the last call.
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

/*
 * Other vCPUs' words are emptied behind a fence, which stops each thread that runs for as long as it takes to
 * touch some ten pages.  What is idle there has a bound, and the heap of a larger program takes many pages
 * before that matters.  With the census lock.
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

/*
 * What no vCPU has asked for since the last time goes back to the slabs: at every tick, and when many pages
 * were taken.  One thread at a time; another one has nothing to add.
 */
static void reclaim(bool by_tick)
{
	if (!corruption_try_walk(&census_lock))
		return;
	if (by_tick)
		tick_depots();
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
	hollow_by_age();
	purge_hardened();
	corruption_end_walk(&census_lock);
	if (ebb_is_due())
		follow_ebb();
	linked_reclaim(false);
}

void magazine_tick(void)
{
	static uint64_t last_tick;
	uint64_t now = os_milliseconds(), last = __atomic_load_n(&last_tick, __ATOMIC_RELAXED);

	if (!__libc_single_threaded)
		vcpu_count_thread();
	if (guard_is_due(now))
		watch_turn_guards(now);
	if (ebb_is_due())
		follow_ebb();
	else if (page_is_behind())
		page_purge(false);
	else if (__atomic_load_n(&departure.due, __ATOMIC_RELAXED))
		see_off_next();
	if (os_elapsed(last, now) < RECLAIM_TICK ||
	    !__atomic_compare_exchange_n(&last_tick, &last, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	/* The first slow path of the process: nothing can be old. */
	if (!last)
		return;
	vcpu_bury_dead_slots();
	ebb_forget();
	reclaim(true);
	page_tick();
	if (lull_is_on())
		follow_lull();
}

void magazine_heap_tick(void)
{
	if (page_wants_hoards())
		reclaim(false);
}

void reclaim_all(void)
{
	corruption_begin_walk(&census_lock);
	vcpu_drain(CENSUS_FIRST, census_count, wants_full, empty_number);
	for (unsigned number = CENSUS_FIRST; number < census_count; number++)
		if (census_caches[number])
			depot_empty(&census_caches[number]->depot);
	(void)hollow_slabs(SLAB_HOLLOW_ALL);
	corruption_end_walk(&census_lock);
	linked_reclaim(true);
}

void magazine_trim(void)
{
	reclaim_all();
	page_purge(true);
}

/* ---- slow paths ---------------------------------------------------------------------------------------- */

/*
 * Whether the slabs' refusal is worth emptying all magazines, which others then miss.  What malloc can have
 * from the system beside a full heap is worth it now and then; it comes back when that has refused, too.
 */
static __attribute__((noinline)) bool may_trim(const struct cache *cache)
{
	static uint64_t last_trim ARCH_SPARSE;

	if (cache->owner || cache->depot.slabs.traits.size < PAGE_BYTES)
		return true;
	uint64_t now = os_milliseconds(), last = __atomic_load_n(&last_trim, __ATOMIC_RELAXED);

	/* Of several threads at once one; the others would find nothing more. */
	return (!last || os_elapsed(last, now) >= RECLAIM_TICK) &&
	       __atomic_compare_exchange_n(&last_trim, &last, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Without a word to load a magazine into, or a magazine's worth of objects: straight from the slabs. */
static __attribute__((noinline)) void *alloc_from_slab(struct cache *cache)
{
	void *object = depot_alloc_one(&cache->depot);

	if (!object && may_trim(cache)) {
		magazine_trim();
		object = depot_alloc_one(&cache->depot);
	}
	if (!object)
		return NULL;
	if (watch_cannot(cache))
		magazine_sample_unmarked(cache, object);
	return object;
}

static bool refill(struct cache *cache, struct magazine *magazine)
{
	if (!depot_refill(&cache->depot, magazine))
		return false;
	if (magazine->capacity < WATCH_SMALLEST)
		return true;
	/* Those of the profile first, which need the objects one after the other. */
	if (profile_is_on())
		watch_mark_profiled(cache, magazine);
	if (watch_is_guarded(cache))
		watch_mark_guarded(magazine);
	return true;
}

/*
 * A filled magazine in return for an empty one (or none), by the depot or by the slabs; NULL where neither
 * has one.
 */
static struct magazine *filled_magazine(struct cache *cache, struct magazine *loaded, struct magazine *spare)
{
	struct depot *depot = &cache->depot;
	struct magazine *filled = depot_take_filled(depot, loaded ? spare : NULL);

	if (filled) {
		/* The depot took the spare if there were two empty ones. */
		words_put_spare(cache, cache->offset, loaded ? loaded : spare);
		return filled;
	}
	if (loaded)
		words_put_spare(cache, cache->offset, spare);
	else
		loaded = spare ? spare : depot_take_empty(depot, NULL);
	if (loaded) {
		magazine_heap_tick();
		if (refill(cache, loaded))
			return loaded;
		depot_put(depot, loaded);
	}
	depot_refused(depot);
	return NULL;
}

/* An object between guard pages in place of one that had a mark; NULL where it does not come to that. */
static __attribute__((noinline)) void *alloc_guarded(const struct cache *cache, struct request request)
{
	if (!watch_is_guarded(cache))
		return NULL;
	uint64_t now = os_milliseconds();

	/* A loop on an object in a chosen page may come to no other slow path. */
	if (guard_is_due(now))
		watch_turn_guards(now);
	return guard_alloc(request.bytes, request.alignment, cache);
}

/* Hands out the top object of a magazine, or a guarded one in its place, and loads the magazine. */
static void *hand_out(struct cache *cache, struct magazine *magazine, struct request request)
{
	const struct profile_choice *choice = watch_choice_of(magazine);
	bool marked;
	void *object = depot_pop_in_hand(magazine, &marked);
	/* A mark of a profile is for its object; others are of picks. */
	bool watched = marked && watch_has(cache, choice, object);
	void *guarded = marked && !watched ? alloc_guarded(cache, request) : NULL;

	if (guarded) {
		/* The object stays for the next allocation, which is as likely to be picked as any other. */
		push_in_hand(magazine, object);
		if (guard_picks_fresh() == 0)
			watch_mark(magazine);
	}
	words_install(cache, magazine);
	if (guarded)
		return guarded;
	if (watched)
		watch_sample(cache, choice, object);
	return object;
}

/*
 * Every so many misses of a vCPU count for the capacity of the cache's magazines, unless the last of them got
 * nothing: none of a program that is out of memory do.  Whether this is one of those.  The thread may come to
 * another vCPU in between: then those of one count later, or those of the other twice.
 */
static bool note_miss(const struct cache *cache)
{
	const uintptr_t offset = cache->offset + 2 * VCPU_ROW_BYTES;

	arch_add(vcpu_self, cache->map, offset, 1);
	return arch_peek(vcpu_self, cache->map, offset) % DEPOT_MISSES == 0;
}

/* Both together, so that who only frees is known in time, too. */
static __attribute__((noinline)) bool has_missed_seldom(const struct cache *cache)
{
	uint64_t misses = arch_peek(vcpu_self, cache->map, cache->offset + 2 * VCPU_ROW_BYTES);

	return misses % VCPU_MISSED_FREE + misses / VCPU_MISSED_FREE <= MAGAZINE_SELDOM_MISSES &&
	       !watch_chooses_among(cache);
}

/*
 * Large objects that wait in magazines keep many pages from all other classes, and most programs want each
 * such size a few times only: so the first that miss on a vCPU go to the slabs and come from there one by
 * one. What chooses among the objects of a magazine needs one from the beginning.
 */
static bool is_seldom(const struct cache *cache)
{
	return cache->depot.slabs.traits.size >= MAGAZINE_SELDOM_BYTES && has_missed_seldom(cache);
}

/* In a lull: by the spare, so that no slab comes and goes where large objects were and will be. */
static __attribute__((noinline)) void *alloc_beside(struct cache *cache)
{
	struct magazine *magazine = unless_stale(cache, words_take_spare(cache, cache->offset));
	bool marked;

	if (!magazine || !magazine->count)
		magazine = filled_magazine(cache, NULL, magazine);
	if (!magazine)
		return alloc_from_slab(cache);
	void *object = depot_pop_in_hand(magazine, &marked);

	words_put_spare(cache, cache->offset, magazine);
	return object;
}

static void *alloc_after_miss(struct cache *cache, struct request request)
{
	bool closed;

	/* Since the miss the thread may have come to a vCPU that has objects. */
	void *object = magazine_alloc_at(cache->map, &cache->offset);

	if (object)
		return object;
	if (watch_cannot(cache)) {
		magazine_tick();
		watch_turn_profile();
		return alloc_from_slab(cache);
	}
	struct hand loaded = words_detach(cache, &closed);

	if (closed) {
		if (!vcpu_enter())
			return alloc_from_slab(cache);
		loaded = words_detach(cache, &closed);
	}
	if (!loaded.magazine && is_seldom(cache)) {
		magazine_tick();
		magazine_heap_tick();
		return alloc_from_slab(cache);
	}
	if (!loaded.magazine && stays_void(cache))
		return alloc_beside(cache);
	struct magazine *magazine = unless_stale(cache, loaded.magazine);

	if (!magazine || !magazine->count) {
		struct magazine *spare = unless_stale(cache, words_take_spare(cache, cache->offset));

		if (spare && spare->count) {
			words_put_spare(cache, cache->offset, magazine);
			magazine = spare;
			if (depot_flows(&cache->depot))
				depot_put_in_order(&cache->depot, magazine);
		} else {
			magazine_tick();
			if (profile_is_on())
				watch_turn_profile();
			magazine = filled_magazine(cache, magazine, spare);
			if (!magazine)
				return alloc_from_slab(cache);
		}
		if (magazine_is_hardened(cache))
			hardened_shuffle(magazine);
	}
	return hand_out(cache, magazine, request);
}

__attribute__((noinline)) void *magazine_alloc_requested(struct cache *cache, struct request request)
{
	if (profile_is_due())
		watch_settle_profile();

	if (magazine_is_checked(cache))
		return magazine_alloc_checked(cache, cache->depot.slabs.traits.checks->zones.object_bytes);
	bool counts = note_miss(cache);
	void *object = alloc_after_miss(cache, request);

	if (counts && object)
		depot_count_misses(&cache->depot);
	return object;
}

__attribute__((noinline)) void *magazine_alloc_missed(struct cache *cache)
{
	const struct slab_traits *traits = &cache->depot.slabs.traits;

	return magazine_alloc_requested(cache, (struct request){traits->size, magazine_alignment(traits)});
}

void *magazine_try_alloc_missed(struct cache *cache)
{
	if (magazine_is_checked(cache))
		return magazine_alloc_missed(cache);
	arch_add(vcpu_self, cache->map, cache->offset + 2 * VCPU_ROW_BYTES, 1);
	void *object = magazine_alloc_at(cache->map, &cache->offset);

	if (object)
		return object;
	object = depot_try_alloc(&cache->depot);
	if (object && profile_is_on())
		watch_sample_quietly(cache, object);
	return object;
}

/* Without a word: straight to the slabs. */
static void free_to_slab(struct cache *cache, void *object)
{
	depot_free_one(&cache->depot, object);
}

/* Whether frees go past the words. */
static bool goes_alone(const struct cache *cache)
{
	return __atomic_load_n(&cache->depot.scarce, __ATOMIC_RELAXED) && ebb_goes_alone();
}

/* A magazine in hand, or none: its objects go alone, too. */
static void dissolve(struct cache *cache, struct magazine *magazine)
{
	if (magazine)
		depot_dissolve(&cache->depot, magazine);
}

/*
 * Puts a freed object, with its mark if it is watched, into a magazine in hand that has room, and loads that.
 * A choice that is made since watch_free() looked makes this one mark nobody's: one sample less.
 */
static void take_back(struct cache *cache, uintptr_t offset, struct magazine *magazine, void *object,
		      bool watched)
{
	if (!magazine->count)
		magazine->choice = profile_stamp();
	push_in_hand(magazine, object);
	if (watched && magazine->capacity >= WATCH_SMALLEST)
		watch_mark(magazine);
	words_install_at(cache, offset, magazine);
}

static void must_not_be_last(const struct cache *cache, void *const *top, const void *object)
{
	if ((*top ? *top : top[-1]) == object)
		corruption_abort(cache->depot.slabs.traits.name, object,
				 "free of an object that was freed just before");
}

static void must_be_allocated(const struct cache *cache, const void *object)
{
	if (!slab_is_object(&cache->depot.slabs, object))
		corruption_abort(cache->depot.slabs.traits.name, object,
				 "free of a pointer that is not an allocated object");
}

/* As alloc_beside. */
static __attribute__((noinline)) void free_beside(struct cache *cache, void *object)
{
	struct magazine *magazine = unless_stale(cache, words_take_spare(cache, cache->offset));

	if (magazine && magazine->count)
		must_not_be_last(cache, &magazine->slot[magazine->count], object);
	must_be_allocated(cache, object);
	if (!magazine || !watch_has_room(magazine, false))
		magazine = depot_take_empty(&cache->depot, magazine);
	if (!magazine) {
		free_to_slab(cache, object);
		return;
	}
	push_in_hand(magazine, object);
	words_put_spare(cache, cache->offset, magazine);
}

__attribute__((noinline)) void magazine_free_missed(struct cache *cache, void *object)
{
	bool closed, watched = watch_free(cache, object);

	if (magazine_is_checked(cache)) {
		magazine_free_checked(cache, object, SIZE_MAX);
		return;
	}
	arch_add(vcpu_self, cache->map, cache->offset + 2 * VCPU_ROW_BYTES, VCPU_MISSED_FREE);
	if (!watched && magazine_free_at(cache->map, &cache->offset, object))
		return;
	if (watch_cannot(cache)) {
		profile_freed(object);
		free_to_slab(cache, object);
		return;
	}
	/* Which are likely to come from memory, while there is something else to do. */
	slab_fetch(object);
	struct hand loaded = words_detach(cache, &closed);

	if (closed) {
		if (!vcpu_enter()) {
			free_to_slab(cache, object);
			return;
		}
		loaded = words_detach(cache, &closed);
	}
	if (loaded.magazine && loaded.magazine->count)
		must_not_be_last(cache, loaded.top, object);
	if (!loaded.magazine && !watched) {
		bool alone = goes_alone(cache);

		if (alone || is_seldom(cache)) {
			magazine_tick();
			free_to_slab(cache, object);
			if (!alone)
				look_for_lull(0, true);
			return;
		}
		if (stays_void(cache)) {
			free_beside(cache, object);
			return;
		}
	}

	struct magazine *magazine = unless_stale(cache, loaded.magazine);

	if (!magazine || !watch_has_room(magazine, watched)) {
		struct magazine *spare = unless_stale(cache, words_take_spare(cache, cache->offset));

		if (spare && !spare->count) {
			words_put_spare(cache, cache->offset, magazine);
			magazine = spare;
		} else {
			magazine_tick();
			if (!watched && goes_alone(cache)) {
				dissolve(cache, magazine);
				dissolve(cache, spare);
				free_to_slab(cache, object);
				return;
			}
			/*
			 * Of two filled ones the older goes to the depot, the loaded one becomes the spare.
			 */
			struct magazine *empty = depot_take_empty(&cache->depot, magazine ? spare : NULL);

			words_put_spare(cache, cache->offset, magazine ? magazine : spare);
			magazine = empty;
			if (!magazine) {
				free_to_slab(cache, object);
				return;
			}
		}
	}
	must_be_allocated(cache, object);
	take_back(cache, cache->offset, magazine, object, watched);
}

/*
 * An empty magazine for frees of a hardened cache, for the one that has waited.  A program that frees about
 * as much as it allocates has emptied the one that lies beside the word of allocations by then, and they
 * change places, without the depot's lock.  Else the depot has to do with it.
 *
 * Each spare is taken and put by a section of its own, and in between the magazine is this thread's alone:
 * who finds a spare missing meanwhile, or its place taken, goes to the depot, as this thread does.
 */
static struct magazine *trade_waiting(struct cache *cache, struct magazine *waiting)
{
	if (waiting && !depot_is_stale(&cache->depot, waiting)) {
		struct magazine *spare = unless_stale(cache, words_take_spare(cache, cache->offset));

		if (spare && !spare->count) {
			words_put_spare(cache, cache->offset, waiting);
			return spare;
		}
		words_put_spare(cache, cache->offset, spare);
	}
	return depot_take_empty(&cache->depot, waiting);
}

/*
 * A hardened cache's frees go onto a word of their own, from which nothing is allocated.  A magazine that is
 * full waits in that word's spare until the next one is, so that an object is not handed out again before as
 * many others have been freed on this vCPU.
 */
__attribute__((noinline)) void magazine_return_missed(struct cache *cache, void *object)
{
	bool closed, watched = watch_free(cache, object);
	struct hand loaded = words_detach_from(cache, cache->returns, &closed);

	arch_add(vcpu_self, cache->map, cache->offset + 2 * VCPU_ROW_BYTES, VCPU_MISSED_FREE);
	if (closed) {
		if (!vcpu_enter()) {
			free_to_slab(cache, object);
			return;
		}
		loaded = words_detach_from(cache, cache->returns, &closed);
	}
	struct magazine *magazine = loaded.magazine;

	if (!magazine || !watch_has_room(magazine, watched)) {
		struct magazine *waiting = words_take_spare(cache, cache->returns);

		magazine_tick();
		words_put_spare(cache, cache->returns, magazine);
		magazine = trade_waiting(cache, waiting);
		if (!magazine) {
			free_to_slab(cache, object);
			return;
		}
	}
	take_back(cache, cache->returns, magazine, object, watched);
}

/* ---- several at once ----------------------------------------------------------------------------------- */

/* Puts back a word that was taken, as it is now. */
static void return_word(struct cache *cache, void **top)
{
	if (!arch_replace(vcpu_self, cache->map, cache->offset, vcpu_void, (uintptr_t)top))
		depot_put(&cache->depot, words_hand((uintptr_t)top).magazine);
}

unsigned magazine_alloc_several(struct cache *cache, void **objects, unsigned count)
{
	uintptr_t word = words_take(cache, cache->offset);
	void **top = (void **)word;
	unsigned taken = 0;

	if (word == vcpu_void || word == vcpu_closed)
		return 0;
	while (taken < count && *top)
		objects[taken++] = *top--;
	return_word(cache, top);
	return taken;
}

unsigned magazine_free_several(struct cache *cache, void *const *objects, unsigned count)
{
	uintptr_t word = words_take(cache, cache->offset);
	void **top = (void **)word;
	unsigned given = 0;

	if (word == vcpu_void || word == vcpu_closed)
		return 0;
	/* The same reasons to miss as in arch_push, or before it for an object that is watched. */
	while (given < count && *top != objects[given] && !((uintptr_t)top[1] & 1) &&
	       (!profile_is_on() || page_id(objects[given]) != PAGE_WATCHED))
		*++top = objects[given++];
	return_word(cache, top);
	return given;
}
