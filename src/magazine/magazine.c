/* SPDX-License-Identifier: MIT */
#include "magazine/magazine.h"

#include "check/corruption.h"
#include "depot/ebb.h"
#include "guard/guard.h"
#include "magazine/control.h"
#include "magazine/hardened.h"
#include "magazine/lull.h"
#include "magazine/reclaim.h"
#include "magazine/watch.h"
#include "magazine/words.h"
#include "os/os.h"
#include "profile/dump.h"
#include "profile/profile.h"

/* ---- magazines in hand --------------------------------------------------------------------------------- */

/*
 * Returns the magazine just detached from a word or spare, unless its capacity no longer matches the cache's:
 * then it goes to the depot.  A resize empties every word it can reach; those it cannot, magazines that were
 * in another thread's hand at that moment, and empty ones that have become too small are caught here.
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

/* ---- allocations that missed --------------------------------------------------------------------------- */

/*
 * Whether to trim after the slabs have refused: that empties all magazines, so that other threads miss.  For
 * classes of malloc's of a page and more the system may have memory beside the full heap, so these trim only
 * now and then; malloc trims when the system has refused as well.
 */
static __attribute__((noinline)) bool may_trim(const struct cache *cache)
{
	static uint64_t last_trim ARCH_SPARSE;

	if (cache->owner || cache->depot.slabs.traits.size < PAGE_BYTES)
		return true;
	uint64_t now = os_milliseconds(), last = __atomic_load_n(&last_trim, __ATOMIC_RELAXED);

	/* One of several threads suffices; the others would find nothing more. */
	return (!last || os_elapsed(last, now) >= RECLAIM_TICK) &&
	       __atomic_compare_exchange_n(&last_trim, &last, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Allocates straight from the slabs, without a word to load or without a magazine's worth of objects. */
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
	/* Profile first: it needs the objects without marks among them. */
	if (profile_is_on())
		watch_mark_profiled(cache, magazine);
	if (watch_is_guarded(cache))
		watch_mark_guarded(magazine);
	return true;
}

/*
 * Exchanges an empty magazine (or none) for a filled one, from the depot or filled from the slabs; NULL where
 * neither has objects.
 */
static struct magazine *filled_magazine(struct cache *cache, struct magazine *loaded, struct magazine *spare)
{
	struct depot *depot = &cache->depot;
	struct magazine *filled = depot_take_filled(depot, loaded ? spare : NULL);

	if (filled) {
		/* If there were two empty ones, the depot took the spare. */
		words_put_spare(cache, cache->offset, loaded ? loaded : spare);
		return filled;
	}
	if (loaded)
		words_put_spare(cache, cache->offset, spare);
	else
		loaded = spare ? spare : depot_take_empty(depot, NULL);
	if (loaded) {
		magazine_heap_tick(0);
		if (refill(cache, loaded))
			return loaded;
		depot_put(depot, loaded);
	}
	return NULL;
}

/* Allocates between guard pages in place of an object that had a mark; NULL where guarding declines. */
static __attribute__((noinline)) void *alloc_guarded(const struct cache *cache, struct request request)
{
	if (!watch_is_guarded(cache))
		return NULL;
	uint64_t now = os_milliseconds();

	/* A loop over an object in a chosen page may come to no other slow path. */
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
	/* A profile's mark belongs to its object; any other mark is a guard's pick. */
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
 * Counts a miss of this vCPU.  Returns whether it completes DEPOT_MISSES of them, which then count for the
 * capacity (depot_count_misses) unless this allocation fails: those of a program out of memory do not.  If
 * the thread migrates between the two sections, one vCPU's misses count later or the other's twice.
 */
static bool note_miss(const struct cache *cache)
{
	const uintptr_t offset = cache->offset + 2 * VCPU_ROW_BYTES;

	vcpu_add(cache->map, offset, 1);
	return arch_peek(vcpu_self, cache->map, offset) % DEPOT_MISSES == 0;
}

/* Counts allocations and frees, so that a vCPU that only frees is recognised in time, too. */
static __attribute__((noinline)) bool has_missed_seldom(const struct cache *cache)
{
	uint64_t misses = arch_peek(vcpu_self, cache->map, cache->offset + 2 * VCPU_ROW_BYTES);

	return misses % VCPU_MISSED_FREE + misses / VCPU_MISSED_FREE <= MAGAZINE_SELDOM_MISSES &&
	       !magazine_is_hardened(cache);
}

/*
 * Large objects in magazines keep many pages from all other classes, and most programs want each such size
 * only a few times.  So the first that miss on a vCPU go to and come from the slabs one by one.  But in a
 * hardened cache they wait in magazines.
 */
static bool is_seldom(const struct cache *cache)
{
	return cache->depot.slabs.traits.size >= MAGAZINE_SELDOM_BYTES && has_missed_seldom(cache);
}

/* One that no magazine has, and thus no mark: guarding picks it here, and a profile sees it. */
static __attribute__((noinline)) void *alloc_seldom_watched(struct cache *cache, struct request request)
{
	void *guarded =
		watch_is_guarded(cache) && guard_picks_fresh() == 0 ? alloc_guarded(cache, request) : NULL;

	if (guarded)
		return guarded;
	void *object = alloc_from_slab(cache);

	if (object && profile_is_on()) {
		watch_sample_quietly(cache, object);
		watch_turn_profile();
		profile_look();
	}
	return object;
}

/*
 * In a lull: allocates from the spare, so that slabs do not come and go where large objects were and will be.
 */
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

	/* Since the miss the thread may have migrated to a vCPU that has objects. */
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
		magazine_heap_tick(0);
		return watch_chooses_among(cache) ? alloc_seldom_watched(cache, request)
						  : alloc_from_slab(cache);
	}
	if (!loaded.magazine && lull_keeps_void(cache))
		return alloc_beside(cache);
	struct magazine *magazine = unless_stale(cache, loaded.magazine);

	if (!magazine || !magazine->count) {
		struct magazine *spare = unless_stale(cache, words_take_spare(cache, cache->offset));

		if (spare && spare->count) {
			words_put_spare(cache, cache->offset, magazine);
			magazine = spare;
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
	vcpu_check_registration();
	if (control_is_due())
		magazine_tick();
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
	vcpu_check_registration();
	if (magazine_is_checked(cache))
		return magazine_alloc_missed(cache);
	vcpu_add(cache->map, cache->offset + 2 * VCPU_ROW_BYTES, 1);
	void *object = magazine_alloc_at(cache->map, &cache->offset);

	if (object)
		return object;
	object = depot_try_alloc(&cache->depot);
	if (object && profile_is_on())
		watch_sample_quietly(cache, object);
	return object;
}

/* ---- frees that missed --------------------------------------------------------------------------------- */

/* Frees straight to the slabs, without a word. */
static void free_to_slab(struct cache *cache, void *object)
{
	depot_free_one(&cache->depot, object);
}

/* Whether frees bypass the words. */
static bool goes_alone(const struct cache *cache)
{
	return __atomic_load_n(&cache->depot.scarce, __ATOMIC_RELAXED) && ebb_goes_alone();
}

/* Sends a magazine in hand, or none, to the slabs. */
static void dissolve(struct cache *cache, struct magazine *magazine)
{
	if (magazine)
		depot_dissolve(&cache->depot, magazine);
}

/*
 * Puts a freed object, with a mark if it is watched, into a magazine in hand that has room, and loads that
 * magazine.  If the choice has changed since watch_free() looked, the mark is nobody's: one sample is lost.
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

/* In a lull: frees to the spare, like alloc_beside. */
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

	vcpu_check_registration();
	if (magazine_is_checked(cache)) {
		magazine_free_checked(cache, object, SIZE_MAX);
		return;
	}
	vcpu_add(cache->map, cache->offset + 2 * VCPU_ROW_BYTES, VCPU_MISSED_FREE);
	if (!watched && magazine_free_at(cache->map, &cache->offset, object))
		return;
	if (watch_cannot(cache)) {
		profile_freed(object);
		free_to_slab(cache, object);
		return;
	}
	/* Needed below, and likely to come from memory: fetched while there is other work. */
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
	if (!loaded.magazine) {
		bool alone = !watched && goes_alone(cache);

		if (alone || is_seldom(cache)) {
			magazine_tick();
			free_to_slab(cache, object);
			if (!alone)
				lull_look(0, true);
			return;
		}
		if (!watched && lull_keeps_void(cache)) {
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
			/* Of two filled ones the older goes to the depot; the other becomes the spare. */
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
 * Trades the magazine that has waited for an empty one, for frees of a hardened cache.  If the program frees
 * about as much as it allocates, it has emptied the spare beside the allocation word by then, and the two
 * change places without the depot's lock.  Otherwise the depot trades.
 *
 * Each spare is taken and put in a critical section of its own, between which the magazine is this thread's
 * alone.  A thread that meanwhile finds a spare missing, or its place taken, goes to the depot, as this one
 * does.
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
 * A hardened cache's frees go onto a word of their own, from which nothing is allocated.  A full magazine
 * waits in that word's spare until the next one is full, so that an object is not handed out again before as
 * many others have been freed on this vCPU.
 */
__attribute__((noinline)) void magazine_return_missed(struct cache *cache, void *object)
{
	bool closed, watched = watch_free(cache, object);

	vcpu_check_registration();
	vcpu_add(cache->map, cache->offset + 2 * VCPU_ROW_BYTES, VCPU_MISSED_FREE);
	struct hand loaded = words_detach_from(cache, cache->returns, &closed);

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

/* Puts a taken word back with its present top. */
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
	/*
	 * Misses for the same reasons as arch_push, and for a watched object, whose free misses before that.
	 */
	while (given < count && *top != objects[given] && !((uintptr_t)top[1] & 1) &&
	       (!profile_is_on() || page_id(objects[given]) != PAGE_WATCHED))
		*++top = objects[given++];
	return_word(cache, top);
	return given;
}
