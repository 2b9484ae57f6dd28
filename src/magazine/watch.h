/* SPDX-License-Identifier: MIT */
/*
 * magazine/watch: brings allocations and frees of chosen objects to slow paths, for a heap profile or guarded
 * allocation.  For the magazine room's own files.
 *
 * By two means.  A MARK, NULL above an object in its magazine (depot/depot.h), leads its allocation there;
 * marks are put when a magazine is filled, and when an object is freed.  PAGE_WATCHED in the page map leads
 * all frees into that page there: for a profile until the watched object is freed, for guarding until other
 * pages are chosen.
 *
 * What is watched is chosen anew now and then (turns), which takes a walk over the heap's pages, with the
 * census lock.  All else concerns objects and magazines in hand, without a lock: if the choice changes
 * meanwhile, a sample is lost, or an object marked that nobody watches.
 */
#ifndef CPUSLAB_MAGAZINE_WATCH_H
#define CPUSLAB_MAGAZINE_WATCH_H

#include "guard/guard.h"
#include "magazine/magazine.h"
#include "profile/profile.h"

enum { WATCH_SMALLEST = 3 }; /* slots: in a smaller magazine objects and a mark do not fit */

/* Whether a running profile would see nothing of a cache's magazines, which therefore stay empty. */
static inline bool watch_cannot(const struct cache *cache)
{
	return profile_is_on() && cache->depot.capacity < WATCH_SMALLEST;
}

/* Whether objects of a cache may be picked for guarding. */
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
 * Whether a freed object fits onto a magazine, with its mark if `marked`: a mark of the choice in force must
 * not join those of another.
 */
static inline bool watch_has_room(const struct magazine *magazine, bool marked)
{
	if (magazine->count + marked >= magazine->capacity)
		return false;
	return !marked || !magazine->count || magazine->choice == profile_stamp();
}

/* The choice that a magazine's marks are of; NULL where no profile runs, or the choice is too old. */
static inline const struct profile_choice *watch_choice_of(const struct magazine *magazine)
{
	return profile_is_on() ? profile_choice_of(magazine->choice) : NULL;
}

/* Whether a choice of a heap profile includes an object of a cache; false without a choice. */
bool watch_has(const struct cache *cache, const struct profile_choice *choice, const void *object);

/*
 * After a refill.  Where a profile runs, the first marks what it watches.  Then, where the cache's objects
 * may be guarded, the second marks guarding's picks, except for what the profile watches.
 */
void watch_mark_profiled(const struct cache *cache, struct magazine *magazine);
void watch_mark_guarded(struct magazine *magazine);

/* ---- allocations and frees that came here -------------------------------------------------------------- */

/* Samples an object that had a mark of a choice and is watched by it. */
void watch_sample(const struct cache *cache, const struct profile_choice *choice, void *object);
/*
 * Samples an object that bypassed all marks while a profile runs, for a caller that must not wait: looks
 * neither whether a dump is due nor at other vCPUs' magazines.
 */
__attribute__((cold)) void watch_sample_quietly(const struct cache *cache, const void *object);

/*
 * Whether an object that is being freed gets a mark; tells the profile of those it watches.  A page that
 * nobody watches any more becomes an ordinary one; the object is still allocated, so that the page is the
 * cache's.
 */
bool watch_free_into_watched(const struct cache *cache, void *object);
static inline bool watch_free(const struct cache *cache, void *object)
{
	return __builtin_expect(page_id(object) == PAGE_WATCHED, 0) && watch_free_into_watched(cache, object);
}

/* ---- turns --------------------------------------------------------------------------------------------- */

/*
 * A turn of guarding, now and then: leads frees into newly chosen pages to the slow path.  Pages of the last
 * choice find their own way back (watch_free); those of slabs yet to be made are found as these are made.
 */
void watch_turn_guards(uint64_t now);
/*
 * A turn of a profile, now and then: chooses other objects, so that a few that are used over and over do not
 * stand for all.  Magazines stay as they are, with the marks of their choices; slabs on the words of linked
 * caches, which contain none of the last choice's objects, do not.
 */
void watch_turn_profile(void);
/*
 * Starts or ends a profile that is due.  What lies in magazines at the start has no marks: it goes to the
 * slabs, and is marked as it comes back.
 */
__attribute__((cold)) void watch_settle_profile(void);

#endif
