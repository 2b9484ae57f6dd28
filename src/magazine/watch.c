/* SPDX-License-Identifier: MIT */
#include "magazine/watch.h"

#include "linked/linked.h"
#include "magazine/reclaim.h"
#include "os/os.h"
#include "profile/dump.h"

/* ---- marks --------------------------------------------------------------------------------------------- */

bool watch_has(const struct cache *cache, const struct profile_choice *choice, const void *object)
{
	return choice &&
	       profile_watches(choice, profile_bound(choice, cache->depot.slabs.traits.size), object);
}

/* Puts a mark above the object in a slot, unless the magazine has no room for it. */
static void mark_slot(struct magazine *magazine, unsigned slot)
{
	if (magazine->count == magazine->capacity)
		return;
	for (unsigned above = magazine->count++; above > slot; above--)
		magazine->slot[above + 1] = magazine->slot[above];
	magazine->slot[slot + 1] = NULL;
	magazine->marks++;
}

/* Whether a slot has an object without a mark above it; a second mark would be taken for an object. */
static bool is_unmarked(const struct magazine *magazine, unsigned slot)
{
	return magazine->slot[slot] && (slot == magazine->count || magazine->slot[slot + 1]);
}

static void set_page_id(const void *object, uint16_t id)
{
	__atomic_store_n(&page_entries[page_of(object)], id, __ATOMIC_RELEASE);
}

/*
 * Leads frees into an object's page to the slow path.  The object is in hand, so that its page stays the
 * cache's.
 */
static void watch_page(const void *object)
{
	if (page_id(object) != PAGE_WATCHED)
		set_page_id(object, PAGE_WATCHED);
}

void watch_mark_profiled(const struct cache *cache, struct magazine *magazine)
{
	/* A copy, since another choice may be made meanwhile. */
	const uint16_t stamp = profile_stamp();
	const struct profile_choice choice = *profile_choice_at(stamp);
	const uint64_t bound = profile_bound(&choice, cache->depot.slabs.traits.size);

	magazine->choice = stamp;
	for (unsigned i = magazine->count; i; i--)
		if (__builtin_expect(profile_watches(&choice, bound, magazine->slot[i]), 0)) {
			watch_page(magazine->slot[i]);
			mark_slot(magazine, i);
		}
}

void watch_mark_guarded(struct magazine *magazine)
{
	const unsigned count = magazine->count, first = guard_picks_fresh();

	if (first >= count)
		return;
	for (unsigned i = first + (count - 1 - first) / guard.rate * guard.rate;; i -= guard.rate) {
		if (is_unmarked(magazine, i + 1))
			mark_slot(magazine, i + 1);
		if (i == first)
			return;
	}
}

/* ---- allocations and frees that came here -------------------------------------------------------------- */

void watch_sample(const struct cache *cache, const struct profile_choice *choice, void *object)
{
	profile_allocated(choice, object, cache->depot.slabs.traits.size);
	/* Another choice, made meanwhile, may not have known of it. */
	set_page_id(object, PAGE_WATCHED);
	watch_turn_profile();
	profile_look();
}

/* The same for an object that always comes to a slow path, if it is watched. */
void magazine_sample_unmarked(const struct cache *cache, const void *object)
{
	const struct profile_choice *choice = profile_choice();

	if (watch_has(cache, choice, object)) {
		profile_allocated(choice, object, cache->depot.slabs.traits.size);
		profile_look();
	}
}

void watch_sample_quietly(const struct cache *cache, const void *object)
{
	const struct profile_choice *choice = profile_choice();

	if (!watch_has(cache, choice, object))
		return;
	profile_allocated(choice, object, cache->depot.slabs.traits.size);
	/* Its free is to be seen. */
	if (!watch_cannot(cache))
		set_page_id(object, PAGE_WATCHED);
}

/* NULL where no profile runs. */
static const struct profile_choice *choice_in_force(void)
{
	return profile_is_on() ? profile_choice() : NULL;
}

bool watch_free_into_watched(const struct cache *cache, void *object)
{
	bool profiled = profile_is_on(), chosen = watch_is_guarded(cache) && guard_chooses(object);

	if (!profiled && !chosen) {
		set_page_id(object, cache->id);
		return false;
	}
	if (chosen)
		guard_charge_estimate();
	if (profiled) {
		profile_visited();
		profile_freed(object);
	}
	return watch_has(cache, choice_in_force(), object) || (chosen && guard_picks_freed());
}

/* ---- turns --------------------------------------------------------------------------------------------- */

void watch_turn_guards(uint64_t now)
{
	const uintptr_t begin = page_front.heap_page, end = begin + page_heap_pages();

	if (!guard_turn(now, end - begin))
		return;
	uint64_t start = guard_meter();

	magazine_begin_census();
	for (uintptr_t page = guard_chosen_from(begin); page < end; page += guard.spread) {
		const void *address = (const void *)(page << PAGE_SHIFT);
		struct cache *cache = magazine_cache(address);

		if (cache && watch_is_guarded(cache) && cache->depot.capacity >= WATCH_SMALLEST)
			slab_watch_page(&cache->depot.slabs, address);
	}
	magazine_end_census();
	guard_charge(start);
}

/* The walk of watch_pages().  With the census lock. */
static struct {
	struct profile_choice choice;
	uint64_t bound;
	uint32_t size;
} walk __attribute__((aligned(8))); /* no more: variables fill their page */

static bool watched_in_walk(const char *first, unsigned count, bool before)
{
	const struct profile_choice choice = walk.choice;
	const char *end = first + (size_t)count * walk.size;

	for (const char *object = first; object < end; object += walk.size)
		if (profile_watches(&choice, walk.bound, object) || (before && profile_has(object)))
			return true;
	return before && guard_chooses(first);
}

/*
 * Objects that the program already has do not pass a refill of their own accord: marks the pages of those
 * that are watched, so that their frees come to the slow path.  An object that another thread is freeing by a
 * map entry read before goes unwatched until it comes back.
 */
static void watch_pages(void)
{
	uintptr_t end = page_front.heap_page + page_heap_pages(), page = page_front.heap_page;

	magazine_begin_census();
	walk.choice = *profile_choice();
	while (page < end) {
		const void *address = (const void *)(page << PAGE_SHIFT);
		struct cache *cache = magazine_cache(address);

		page++;
		if (!cache || magazine_is_checked(cache) || cache->depot.capacity < WATCH_SMALLEST)
			continue;
		walk.size = cache->depot.slabs.traits.size;
		walk.bound = profile_bound(&walk.choice, walk.size);
		page += slab_watch_pages(&cache->depot.slabs, address, watched_in_walk) - 1;
	}
	magazine_end_census();
}

/*
 * Each choice lasts longer than the one before: a program that has just begun is profiled at a suitable pace
 * (profile.h) after a few milliseconds.  And no walk takes more than a 400th of the time.
 */
enum { TURN_FIRST = 16, TURN_LAST = 500 }; /* milliseconds */
enum { WALK_NANOSECONDS = 1000000 / 400 }; /* of a walk, in each millisecond of a turn */
static uint64_t next_turn, turn_milliseconds;

static void watch_until_next_turn(uint64_t now)
{
	uint64_t start = os_thread_nanoseconds();

	watch_pages();
	uint64_t least = (os_thread_nanoseconds() - start) / WALK_NANOSECONDS;
	uint64_t turn = __atomic_load_n(&turn_milliseconds, __ATOMIC_RELAXED);

	__atomic_store_n(&turn_milliseconds, 2 * turn < TURN_LAST ? 2 * turn : TURN_LAST, __ATOMIC_RELAXED);
	__atomic_store_n(&next_turn, now + (least > turn ? least : turn), __ATOMIC_RELAXED);
}

void watch_settle_profile(void)
{
	if (!profile_settle())
		return;
	__atomic_store_n(&turn_milliseconds, TURN_FIRST, __ATOMIC_RELAXED);
	watch_until_next_turn(os_milliseconds());
	reclaim_all();
}

void watch_turn_profile(void)
{
	uint64_t now = os_milliseconds(), due = __atomic_load_n(&next_turn, __ATOMIC_RELAXED);

	if (now < due || !__atomic_compare_exchange_n(&next_turn, &due, now + TURN_LAST, false,
						      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	magazine_turn_profile(now);
}

void magazine_turn_profile(uint64_t now)
{
	profile_turn();
	watch_until_next_turn(now);
	linked_reclaim(true);
}

void magazine_settle_profile(void)
{
	if (profile_is_due())
		watch_settle_profile();
}

void magazine_tick_profile(void)
{
	magazine_settle_profile();
	if (profile_is_on())
		watch_turn_profile();
}
