/* SPDX-License-Identifier: MIT */
/*
 * magazine/watch: objects whose allocation or free is to come to a slow path, for a heap profile or for
 * guarded allocation.  For the magazine room's own files.
 *
 * Two means.  NULL above an object in its magazine, a MARK (depot/depot.h), leads its allocation there; marks
 * are put as a magazine is filled, and as an object is freed.  PAGE_WATCHED in the page map leads all frees
 * into a page there: of what a profile watches, until it is freed; of pages that guarding has chosen, until
 * others are.
 *
 * What is watched is chosen anew now and then (turns), which needs a walk over the heap's pages, with the
 * census lock.  Everything else is about objects and magazines in hand, without a lock: a choice that is made
 * meanwhile costs a sample, or marks one that nobody watches.
 */
#ifndef CPUSLAB_MAGAZINE_WATCH_H
#define CPUSLAB_MAGAZINE_WATCH_H

#include "guard/guard.h"
#include "magazine/magazine.h"
#include "profile/profile.h"

enum { WATCH_SMALLEST = 3 }; /* slots: a magazine of fewer has no room for objects and a mark */

/* Whether a profile runs that would see nothing of a cache's magazines, which therefore stay empty. */
static inline bool watch_cannot(const struct cache *cache)
{
	return profile_is_on() && cache->depot.capacity < WATCH_SMALLEST;
}

/* Whether objects of a cache may be picked to be guarded. */
static inline bool watch_is_guarded(const struct cache *cache)
{
	return guard_is_on() && cache->depot.slabs.traits.guarded;
}

/* Whether something chooses among the objects of a cache's magazines. */
static inline bool watch_chooses_among(const struct cache *cache)
{
	return magazine_is_hardened(cache) || profile_is_on() || watch_is_guarded(cache);
}

/* ---- marks --------------------------------------------------------------------------------------------- */

/* Puts a mark above the object on top. */
static inline void watch_mark(struct magazine *magazine)
{
	magazine->slot[++magazine->count] = NULL;
	magazine->marks++;
}

/*
 * Whether a freed object can go onto a magazine, with its mark if it gets one: a mark of the choice in force
 * not among those of another.
 */
static inline bool watch_has_room(const struct magazine *magazine, bool marked)
{
	if (magazine->count + marked >= magazine->capacity)
		return false;
	return !marked || !magazine->count || magazine->choice == profile_stamp();
}

/* The choice that the marks of a magazine are of; NULL where no profile runs, or it is too old. */
static inline const struct profile_choice *watch_choice_of(const struct magazine *magazine)
{
	return profile_is_on() ? profile_choice_of(magazine->choice) : NULL;
}

/*
 * Whether a choice of what a heap profile watches has an object of a cache; none has where there is no
 * choice.
 */
bool watch_has(const struct cache *cache, const struct profile_choice *choice, const void *object);

/* After a refill, where a profile runs: what it watches gets its mark.  Then, where the cache's objects may
 * be: what is picked to be guarded, but for what a profile watches. */
void watch_mark_profiled(const struct cache *cache, struct magazine *magazine);
void watch_mark_guarded(struct magazine *magazine);

/* ---- allocations and frees that came here -------------------------------------------------------------- */

/* Of an object that had a mark of a choice and is watched by it. */
void watch_sample(const struct cache *cache, const struct profile_choice *choice, void *object);
/*
 * Of an object that came past all marks while a profile runs, for a caller that must not wait: no look
 * whether a dump is due, nor at other vCPUs' magazines.
 */
__attribute__((cold)) void watch_sample_quietly(const struct cache *cache, const void *object);

/*
 * Whether an object that is being freed gets a mark; the profile is told of those it watches.  A page that
 * nobody watches any more becomes as others are; the object is still allocated, so that the page is the
 * cache's.
 */
bool watch_free_into_watched(const struct cache *cache, void *object);
static inline bool watch_free(const struct cache *cache, void *object)
{
	return __builtin_expect(page_id(object) == PAGE_WATCHED, 0) && watch_free_into_watched(cache, object);
}

/* ---- turns --------------------------------------------------------------------------------------------- */

/*
 * Every now and then, of guarding: leads frees into pages that are chosen anew to the slow path.  Those of
 * the last choice find their own way back (watch_free); those of a slab that is made from now on are found as
 * it is made.
 */
void watch_turn_guards(uint64_t now);
/*
 * Of a profile: another choice of objects every now and then, so that a few that are used over and over do
 * not stand for all.  Magazines stay as they are, with the marks of their choices; slabs on the words of
 * linked caches, which none of the last choice's objects lie in, do not.
 */
void watch_turn_profile(void);
/*
 * Starts or ends a profile, which is due.  What lies in magazines as it starts has no marks: it goes to the
 * slabs, and is marked as it comes back.
 */
__attribute__((cold)) void watch_settle_profile(void);

#endif
