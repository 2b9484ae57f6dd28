/* SPDX-License-Identifier: MIT */
/*
 * Debugged caches.  Nothing is ever installed in their words, so that each call misses and comes here, and
 * each object passes the checks on its way from and to the slabs.
 */
#include "magazine/hardened.h"

#include "check/annotate.h"

#include "profile/profile.h"

static struct checks *checks_of(const struct cache *cache)
{
	return cache->depot.slabs.traits.checks;
}

static void *alloc_slot(struct cache *cache)
{
	void *slot;

	if (slab_alloc_batch(&cache->depot.slabs, &slot, 1))
		return slot;
	magazine_trim();
	return slab_alloc_batch(&cache->depot.slabs, &slot, 1) ? slot : NULL;
}

static void *alloc_checked(struct cache *cache, size_t requested)
{
	vcpu_add(cache->map, cache->offset + 2 * VCPU_ROW_BYTES, 1);
	magazine_tick();
	magazine_tick_profile();
	if (check_fails(checks_of(cache)))
		return NULL;
	for (;;) {
		struct check_place place;
		void *slot = alloc_slot(cache), *object;

		if (!slot || !slab_place(&cache->depot.slabs, slot, &place))
			return NULL;
		object = check_alloc(checks_of(cache), &place, (uint32_t)requested);
		if (object) {
			if (profile_is_on())
				magazine_sample_unmarked(cache, object);
			return object;
		}
	}
}

__attribute__((noinline)) void *magazine_alloc_checked(struct cache *cache, size_t requested)
{
	annotate_begin();
	void *object = alloc_checked(cache, requested);

	annotate_end();
	return object;
}

static void free_checked(struct cache *cache, void *object, size_t stated)
{
	struct check_place place;
	bool found = slab_place(&cache->depot.slabs, object, &place);

	vcpu_add(cache->map, cache->offset + 2 * VCPU_ROW_BYTES, VCPU_MISSED_FREE);
	magazine_tick();
	if (profile_is_on())
		profile_freed(object);
	if (check_free(checks_of(cache), found ? &place : NULL, object, stated)) {
		void *slot = place.slot;

		slab_free_batch(&cache->depot.slabs, &slot, 1);
	}
}

__attribute__((noinline)) void magazine_free_checked(struct cache *cache, void *object, size_t stated)
{
	annotate_begin();
	free_checked(cache, object, stated);
	annotate_end();
}

bool magazine_resize_checked(struct cache *cache, void *object, size_t requested)
{
	struct checks *checks = checks_of(cache);
	struct check_place place;
	bool found = slab_place(&cache->depot.slabs, object, &place);

	if (found && requested > checks->zones.object_bytes)
		return false;
	check_resize(checks, found ? &place : NULL, object, (uint32_t)requested);
	return true;
}

size_t magazine_usable(const struct cache *cache, const void *object)
{
	struct check_place place;

	if (magazine_is_hardened(cache))
		return hardened_judge(cache, object);
	if (!checks_of(cache))
		return cache->depot.slabs.traits.size;
	return slab_place(&cache->depot.slabs, object, &place) ? check_usable(checks_of(cache), place.record)
							       : 0;
}

size_t magazine_granted(const struct cache *cache, size_t requested)
{
	const struct checks *checks = checks_of(cache);

	if (magazine_is_hardened(cache))
		return requested;
	if (!checks)
		return cache->depot.slabs.traits.size;
	return checks->flags & CHECK_RED_ZONE ? requested : checks->zones.object_bytes;
}

void *magazine_object_of(const struct cache *cache, const void *address)
{
	struct check_place place;
	size_t bytes;

	if (!checks_of(cache)) {
		void *object = slab_object_of(&cache->depot.slabs, address);
		bool is_out =
			!object || !magazine_is_hardened(cache) || hardened_bytes(cache, object, &bytes);

		return is_out ? object : NULL;
	}
	return slab_place(&cache->depot.slabs, address, &place)
		       ? check_object_of(checks_of(cache), &place, address)
		       : NULL;
}

/* ---- all objects ----------------------------------------------------------------------------------- */

struct walk {
	struct cache *cache;
	uint64_t found;
	void *slot; /* the last one found */
};

static void walk(struct cache *cache, void (*visit)(const struct check_place *place, void *argument),
		 struct walk *walk)
{
	*walk = (struct walk){.cache = cache};
	cpuslab_spin_lock(&checks_of(cache)->lock);
	slab_walk(&cache->depot.slabs, visit, walk);
	cpuslab_spin_unlock(&checks_of(cache)->lock);
}

static void validate(const struct check_place *place, void *argument)
{
	struct walk *walk = argument;

	walk->found += check_validate(checks_of(walk->cache), place);
}

uint64_t magazine_validate(struct cache *cache)
{
	struct walk found = {.found = 0};

	if (checks_of(cache))
		walk(cache, validate, &found);
	return found.found;
}

static void report_live(const struct check_place *place, void *argument)
{
	const struct walk *walk = argument;

	if (place->record->state == CHECK_IS_OUT)
		check_report_live(checks_of(walk->cache), place);
}

void magazine_report_live(struct cache *cache)
{
	struct walk reported;

	walk(cache, report_live, &reported);
}

struct live_walk {
	struct walk walk; /* first: visit_one gets a pointer to it */
	void (*visit)(uint32_t stack, uint32_t bytes, void *argument);
	void *argument;
};

static void visit_one(const struct check_place *place, void *argument)
{
	const struct live_walk *live = argument;
	const struct check_record *record = place->record;
	bool owned = checks_of(live->walk.cache)->flags & CHECK_OWNER;

	if (record->state == CHECK_IS_OUT)
		live->visit(owned ? record->allocated.stack : 0, record->requested, live->argument);
}

bool magazine_visit_live(struct cache *cache, void (*visit)(uint32_t stack, uint32_t bytes, void *argument),
			 void *argument)
{
	struct live_walk live = {.visit = visit, .argument = argument};

	walk(cache, visit_one, &live.walk);
	return checks_of(cache)->flags & CHECK_OWNER;
}

static void find_lost(const struct check_place *place, void *argument)
{
	struct walk *walk = argument;

	if (place->record->state == CHECK_IS_LOST)
		walk->slot = place->slot;
}

void magazine_release_lost(struct cache *cache)
{
	struct walk lost;

	for (;;) {
		struct check_place place;

		walk(cache, find_lost, &lost);
		if (!lost.slot || !slab_place(&cache->depot.slabs, lost.slot, &place))
			return;
		place.record->state = CHECK_IS_FREE;
		slab_free_batch(&cache->depot.slabs, &lost.slot, 1);
	}
}
