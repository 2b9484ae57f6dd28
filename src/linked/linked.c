/* SPDX-License-Identifier: MIT */
#include "linked/linked.h"

#include <assert.h>

#include "arch/probe.h"
#include "check/corruption.h"
#include "options/options.h"
#include "os/os.h"
#include "page/page.h"
#include "profile/profile.h"
#include "slab/geometry.h"
#include "slab/shuffle.h"

/* See linked/front.h. */
#ifndef LINKED_FRONT
#define LINKED_FRONT "linked/front.h"
#endif
#include LINKED_FRONT

enum {
	LINK_BYTES = sizeof(uintptr_t),
	ORDER_HIGHEST = 3, /* as far as SLUB goes to fit more objects */
	ORDER_BLOCK = 11,  /* holds an object of 4 MiB with a link behind it */
	MIN_PARTIAL_LEAST = 5,
	MIN_PARTIAL_MOST = 10,
	BATCH_LEAST = 8, /* objects linked at a time where a page has fewer */
	LINKS_AHEAD = 4, /* links of a new slab that are prefetched while it is made */
};

/* ---- geometry ----------------------------------------------------------------------------------------- */

static unsigned log2_of(uint32_t x)
{
	return 31 - (unsigned)__builtin_clz(x);
}

static uint16_t clamp(uint32_t x, uint32_t least, uint32_t most)
{
	return (uint16_t)(x < least ? least : x > most ? most : x);
}

/*
 * 4 KiB aliasing: stores to a link and to the word, one just after the other, are slow if both have the same
 * offset in their pages.  Areas are aligned to cache lines and slabs to pages, so with a stride that is a
 * multiple of 16, one of the first two places for a link never has the word's offset.
 */
static uint32_t choose_link(const struct linked_traits *traits, uint16_t offset)
{
	uint32_t stride = geometry_stride(traits->size, traits->alignment);

	if (traits->link != LINKED_ANYWHERE)
		return traits->link;
	return traits->size >= 2 * LINK_BYTES && stride % (2 * LINK_BYTES) == 0 ? ~offset & LINK_BYTES : 0;
}

bool linked_init(struct linked_cache *cache, const struct linked_traits *traits, uint16_t offset)
{
	bool kept = traits->construct || traits->type_stable; /* content survives a free */
	bool outside = traits->link == LINKED_ANYWHERE && kept;
	uint32_t link = outside ? geometry_stride(traits->size, LINK_BYTES) : choose_link(traits, offset);
	uint32_t bytes = link + LINK_BYTES > traits->size ? link + LINK_BYTES : traits->size;
	uint32_t stride = geometry_stride(bytes, traits->alignment);
	struct geometry_slub_rule rule = {
		.page_bytes = PAGE_BYTES,
		.cpus = os_cpus(),
		.order_highest = ORDER_HIGHEST,
		.order_block = ORDER_BLOCK,
	};
	struct geometry geometry = geometry_slub(&rule, stride);

	if (!geometry.objects)
		return false;
	*cache = (struct linked_cache){
		.offset = offset,
		.list =
			{
				.link = link,
				.secret = os_random(),
				.slab_mask = geometry.bytes - 1,
				.reciprocal = UINT64_MAX / stride + 1,
			},
		.objects = (uint16_t)geometry.objects,
		.stride = stride,
		.usable = outside ? link : stride,
		.batch = clamp(PAGE_BYTES / stride, BATCH_LEAST, geometry.objects),
		.min_partial = clamp(log2_of(stride) / 2, MIN_PARTIAL_LEAST, MIN_PARTIAL_MOST),
		.name = traits->name,
		.construct = traits->construct,
		.type_stable = traits->type_stable,
	};
	/* A slab in random order is linked as a whole: smaller batches would be less random. */
	if (options.shuffle)
		cache->batch = cache->objects;
	return true;
}

static unsigned slab_pages(const struct linked_cache *cache)
{
	return (unsigned)((cache->list.slab_mask + 1) >> PAGE_SHIFT);
}

/* ---- states ------------------------------------------------------------------------------------------- */

static union linked_state read_state(const struct linked_slab *slab)
{
	union linked_state state;

	/* The two loads may see different states; then the exchange that follows fails. */
	state.pair[1] = __atomic_load_n(&slab->state.pair[1], __ATOMIC_ACQUIRE);
	state.pair[0] = __atomic_load_n(&slab->state.pair[0], __ATOMIC_ACQUIRE);
	return state;
}

#if !ARCH_HAS_PAIR
/* The cache whose pair_lock this thread holds for the whole of a call, so that no step waits for it. */
static __thread struct linked_cache *pair_kept;
#endif

/* Tries to keep the pair_lock.  The cache's lock is held, but others who free do without that. */
static bool try_keep_pair(struct linked_cache *cache)
{
#if ARCH_HAS_PAIR
	(void)cache;
	return true;
#else
	if (!cpuslab_spin_trylock(&cache->pair_lock))
		return false;
	pair_kept = cache;
	return true;
#endif
}

static void let_pair_go(struct linked_cache *cache)
{
#if ARCH_HAS_PAIR
	(void)cache;
#else
	if (pair_kept != cache)
		return;
	pair_kept = NULL;
	cpuslab_spin_unlock(&cache->pair_lock);
#endif
}

static bool replace_state(struct linked_cache *cache, struct linked_slab *slab, const union linked_state *old,
			  const union linked_state *new)
{
#if ARCH_HAS_PAIR
	(void)cache;
	return arch_replace_pair(slab->state.pair, old->pair, new->pair);
#else
	bool kept = pair_kept == cache;

	/* A forked child must find both stores or neither, so they are noted first, for it to redo. */
	if (!kept)
		cpuslab_spin_lock(&cache->pair_lock);
	bool same = slab->state.pair[0] == old->pair[0] && slab->state.pair[1] == old->pair[1];

	if (same) {
		cache->redo_pair[0] = new->pair[0];
		cache->redo_pair[1] = new->pair[1];
		__atomic_store_n(&cache->redo, slab, __ATOMIC_RELEASE);
		__atomic_store_n(&slab->state.pair[0], new->pair[0], __ATOMIC_RELEASE);
		__atomic_store_n(&slab->state.pair[1], new->pair[1], __ATOMIC_RELEASE);
		__atomic_store_n(&cache->redo, NULL, __ATOMIC_RELEASE);
	}
	if (!kept)
		cpuslab_spin_unlock(&cache->pair_lock);
	return same;
#endif
}

/* ---- links -------------------------------------------------------------------------------------------- */

uintptr_t linked_next(const struct linked_cache *cache, uintptr_t object)
{
	uintptr_t at = object + cache->list.link;

	return __atomic_load_n((const uintptr_t *)at, __ATOMIC_RELAXED) ^ at ^ cache->list.secret;
}

static void set_next(const struct linked_cache *cache, uintptr_t object, uintptr_t next)
{
	uintptr_t at = object + cache->list.link;

	__atomic_store_n((uintptr_t *)at, next ^ at ^ cache->list.secret, __ATOMIC_RELAXED);
}

static uintptr_t object_number(const struct linked_cache *cache, const struct linked_slab *slab, unsigned i)
{
	return (uintptr_t)slab->base + (uintptr_t)i * cache->stride;
}

/* `locked`: the caller has the cache's lock.  It is released, since an abort handler may allocate. */
static _Noreturn void stop(struct linked_cache *cache, uintptr_t object, const char *what, bool locked)
{
	let_pair_go(cache);
	if (locked)
		cpuslab_spin_unlock(&cache->lock);
	corruption_abort(cache->name, (void *)object, what);
}

uintptr_t linked_checked_next(struct linked_cache *cache, const struct linked_slab *slab, uintptr_t object,
			      bool locked)
{
	uintptr_t next = linked_next(cache, object);

	if (next != front_end(slab) && !linked_starts_object(cache, slab, next))
		stop(cache, object, "a free object was written to: its link is gone", locked);
	return next;
}

/* Checks the head of a list that came off a word: the fast path checks only that links stay in the slab. */
static void check_first(struct linked_cache *cache, struct linked_hand hand, bool locked)
{
	if (!front_is_end(hand.list) && !linked_starts_object(cache, hand.slab, hand.list))
		stop(cache, hand.list, "a free object was written to: its link led here", locked);
}

static void *take_first(struct linked_cache *cache, struct linked_hand *hand, bool locked)
{
	uintptr_t object = hand->list;

	hand->list = linked_checked_next(cache, hand->slab, object, locked);
	return (void *)object;
}

/* Returns the length of the list in hand, and its last object in *last.  With the lock. */
static unsigned measure(struct linked_cache *cache, struct linked_hand hand, uintptr_t *last)
{
	unsigned count = 0;

	check_first(cache, hand, true);
	for (uintptr_t object = hand.list; !front_is_end(object);
	     object = linked_checked_next(cache, hand.slab, object, true)) {
		if (++count > hand.slab->state.in_use)
			stop(cache, object, "an object was freed twice", true);
		*last = object;
	}
	return count;
}

/* ---- the list of partial slabs: with the lock ------------------------------------------------------ */

static void lock_cache(struct linked_cache *cache)
{
	cpuslab_spin_lock(&cache->lock);
	cache->lock_acquires++;
}

void linked_enlist(struct linked_cache *cache, struct linked_slab *slab)
{
	slab->next = NULL;
	slab->previous = cache->last;
	*(cache->last ? &cache->last->next : &cache->first) = slab;
	cache->last = slab;
	cache->partial++;
}

static void enlist_first(struct linked_cache *cache, struct linked_slab *slab)
{
	slab->previous = NULL;
	slab->next = cache->first;
	*(cache->first ? &cache->first->previous : &cache->last) = slab;
	cache->first = slab;
	cache->partial++;
}

static void delist(struct linked_cache *cache, struct linked_slab *slab)
{
	*(slab->previous ? &slab->previous->next : &cache->first) = slab->next;
	*(slab->next ? &slab->next->previous : &cache->last) = slab->previous;
	cache->partial--;
}

/* ---- slabs -------------------------------------------------------------------------------------------- */

/*
 * Prefetches the lines in which a new slab's first links will lie.  With large objects each is in a page of
 * its own and may miss the TLB, too: better while the slab is being made.  (Always inline: gcc 12 treats a
 * function that only prefetches as one without effect.)
 */
static inline __attribute__((always_inline)) void expect_links(const struct linked_cache *cache,
							       const char *base)
{
	unsigned count = cache->objects < LINKS_AHEAD ? cache->objects : LINKS_AHEAD;

	for (unsigned i = 0; i < count; i++)
		__builtin_prefetch(base + (size_t)i * cache->stride + cache->list.link, 1);
}

/*
 * The slab becomes its cache's only once all objects are constructed.  A constructor may fork, and a repair
 * in the child may then find the slab unfinished.  It must not count the slab if the thread that forked is
 * its maker, which goes on to count it.  If the maker is another thread the slab is nobody's in the child,
 * and does not keep the cache from being destroyed.
 */
static void construct(struct linked_cache *cache, struct linked_slab *slab)
{
	for (unsigned i = 0; i < cache->objects; i++)
		cache->construct((void *)object_number(cache, slab, i));
	__atomic_store_n(&slab->cache, cache, __ATOMIC_RELEASE);
}

/* Makes a frozen slab that no other thread knows of. */
static struct linked_slab *make_slab(struct linked_cache *cache)
{
	struct linked_slab *slab = metadata_alloc(sizeof *slab);
	bool zeroed;

	if (!slab)
		return NULL;
	char *base = page_alloc(slab_pages(cache), slab_pages(cache), PAGE_LINKED, &zeroed);

	if (!base) {
		metadata_free(slab, sizeof *slab);
		return NULL;
	}
	expect_links(cache, base);
	*slab = (struct linked_slab){.base = base, .cache = cache->construct ? NULL : cache};
	ARCH_PROBE("slab_new", (uintptr_t)cache->name, __atomic_load_n(&cache->slabs, __ATOMIC_RELAXED));
	slab->state.list = front_end(slab);
	slab->state.frozen = 1;
	/* As in the slab room, a repair trusts a slab whose first page refers to it. */
	for (uintptr_t page = page_of(base) + slab_pages(cache); page-- > page_of(base);)
		__atomic_store_n(&page_front.slab_of[page], metadata_reference(slab), __ATOMIC_RELEASE);
	if (cache->construct)
		construct(cache, slab);
	return slab;
}

/*
 * In a slab without an allocated object all are in its list, so the links are all objects but the first, and
 * the end.  Comparing sums checks this without following the list.  They differ where an object was freed
 * twice: then another is still allocated, or the list is a ring.
 */
static void check_all_free(struct linked_cache *cache, const struct linked_slab *slab)
{
	uintptr_t expected = front_end(slab) - slab->state.list, found = 0;

	for (unsigned i = 0; i < slab->state.threaded; i++) {
		uintptr_t object = object_number(cache, slab, i);

		expected += object;
		found += linked_next(cache, object);
	}
	if (found != expected)
		stop(cache, (uintptr_t)slab->base,
		     "of the slab that begins here an object was freed twice, or written to when free",
		     false);
}

/* Gives back slabs, linked through `next`, that are in no list any more.  Without the lock. */
static void release_slabs(struct linked_cache *cache, struct linked_slab *slab)
{
	while (slab) {
		struct linked_slab *next = slab->next;
		char *base = slab->base;

		check_all_free(cache, slab);
		ARCH_PROBE("slab_free", (uintptr_t)cache->name, (uintptr_t)base);
		for (uintptr_t page = page_of(base); page < page_of(base) + slab_pages(cache); page++)
			__atomic_store_n(&page_front.slab_of[page], 0, __ATOMIC_RELEASE);
		page_free(base, slab_pages(cache));
		metadata_free(slab, sizeof *slab);
		__atomic_fetch_sub(&cache->releasing, 1, __ATOMIC_RELEASE);
		slab = next;
	}
}

/*
 * Takes a slab that is in no list out of the counts.  With the lock.  After the lock is released only
 * `releasing` tells a forked child of such a slab; it is raised while the lock still does.
 */
static void give_up(struct linked_cache *cache, struct linked_slab *slab, struct linked_slab **surplus)
{
	__atomic_fetch_add(&cache->releasing, 1, __ATOMIC_RELEASE);
	cache->slabs--;
	cache->freed++;
	slab->next = *surplus;
	*surplus = slab;
}

static bool may_give_up(const struct linked_cache *cache)
{
	return cache->partial >= cache->min_partial && !cache->type_stable;
}

void linked_release_empty(struct linked_cache *cache)
{
	struct linked_slab *surplus = NULL, *next;

	lock_cache(cache);
	for (struct linked_slab *slab = cache->first; slab; slab = next) {
		next = slab->next;
		/* No other thread can free into it, so its state is stable. */
		if (!read_state(slab).in_use) {
			delist(cache, slab);
			give_up(cache, slab, &surplus);
		}
	}
	cpuslab_spin_unlock(&cache->lock);
	release_slabs(cache, surplus);
}

/* ---- heap profiles ------------------------------------------------------------------------------------ */

enum { IS_WATCHED = 1 }; /* in a state's `watched`; the other bits are the number of the choice */

static bool any_watched(const struct linked_cache *cache, const struct linked_slab *slab, bool before)
{
	const struct profile_choice *choice = profile_choice();
	uint64_t bound = profile_bound(choice, cache->stride);

	for (unsigned i = 0; i < cache->objects; i++) {
		const void *object = (const void *)object_number(cache, slab, i);

		/* Samples in use must take the slow path when freed, whatever was chosen since. */
		if (profile_watches(choice, bound, object) || (before && profile_has(object)))
			return true;
	}
	return false;
}

/*
 * Whether a profile watches an object of a slab, which is in hand, or listed, with the lock held.  Determined
 * once for each choice of watched objects.
 */
static bool is_watched(struct linked_cache *cache, struct linked_slab *slab)
{
	if (!profile_is_on())
		return false;
	uint16_t choice = (uint16_t)(__atomic_load_n(&profile.choice, __ATOMIC_ACQUIRE) << 1);
	union linked_state old = read_state(slab), new;

	if ((old.watched & ~IS_WATCHED) == choice)
		return old.watched & IS_WATCHED;
	bool watched = any_watched(cache, slab, old.watched & IS_WATCHED);

	do {
		old = new = read_state(slab);
		new.watched = watched ? choice | IS_WATCHED : choice;
	} while (!replace_state(cache, slab, &old, &new));
	return watched;
}

static bool was_watched(const struct linked_slab *slab)
{
	return __atomic_load_n(&slab->state.watched, __ATOMIC_RELAXED) & IS_WATCHED;
}

/* Samples those of the objects, just taken from slabs of which some are watched, that a profile watches. */
static __attribute__((noinline)) void note_allocs(const struct linked_cache *cache, void *const *objects,
						  size_t count)
{
	const struct profile_choice *choice = profile_choice();
	uint64_t bound = profile_bound(choice, cache->stride);

	for (size_t i = 0; i < count; i++)
		if (profile_watches(choice, bound, objects[i]) && was_watched(linked_slab_at(objects[i])))
			profile_allocated(choice, objects[i], cache->stride);
}

static void note_free(const struct linked_slab *slab, const void *object)
{
	if (profile_is_on() && was_watched(slab))
		profile_freed(object);
}

/* ---- slow paths --------------------------------------------------------------------------------------- */

/* Freezes a slab that was just delisted.  With the lock, without which no free lists a slab. */
static void freeze(struct linked_cache *cache, struct linked_hand *hand)
{
	union linked_state old, new;

	do {
		old = new = read_state(hand->slab);
		new.list = front_end(hand->slab);
		new.in_use = old.threaded;
		new.frozen = 1;
	} while (!replace_state(cache, hand->slab, &old, &new));
	hand->list = old.list;
}

/* Takes a partial slab, or makes one, into an empty hand; false when there is no memory. */
static bool acquire(struct linked_cache *cache, struct linked_hand *hand)
{
	lock_cache(cache);
	hand->slab = cache->first;
	if (hand->slab) {
		/* When its list ends, the word leads to this entry. */
		__builtin_prefetch(&page_front.slab_of[page_of(hand->slab->base)]);
		delist(cache, hand->slab);
		freeze(cache, hand);
		cpuslab_spin_unlock(&cache->lock);
		return true;
	}
	/* A constructor may do anything, so it runs without the lock. */
	if (cache->construct)
		cpuslab_spin_unlock(&cache->lock);
	hand->slab = make_slab(cache);
	if (cache->construct)
		lock_cache(cache);
	if (hand->slab) {
		hand->list = front_end(hand->slab);
		cache->slabs++;
		cache->created++;
	}
	cpuslab_spin_unlock(&cache->lock);
	return hand->slab;
}

static void link_object(struct linked_cache *cache, struct linked_hand *hand, unsigned i)
{
	uintptr_t object = object_number(cache, hand->slab, i);

	set_next(cache, object, hand->list);
	hand->list = object;
}

enum { SHUFFLED = 4096 };

/* Out of line, lest every refill has the array on its stack, which may be small. */
static __attribute__((noinline)) void link_shuffled(struct linked_cache *cache, struct linked_hand *hand,
						    unsigned from, unsigned count)
{
	uint16_t order[SHUFFLED];

	shuffle_numbers(order, count);
	for (unsigned i = 0; i < count; i++)
		link_object(cache, hand, from + order[i]);
}

/* Links the next untouched objects of a slab whose lists are empty; false when it has none. */
static bool thread_more(struct linked_cache *cache, struct linked_hand *hand)
{
	struct linked_slab *slab = hand->slab;
	unsigned from = slab->state.threaded, count = cache->objects - from;
	bool shuffled = options.shuffle && count <= SHUFFLED;
	union linked_state old, new;

	if (count > cache->batch)
		count = cache->batch;
	if (!count)
		return false;
	hand->list = front_end(slab);
	if (shuffled)
		link_shuffled(cache, hand, from, count);
	else
		for (unsigned i = count; i-- > 0;)
			link_object(cache, hand, from + i);
	do {
		old = new = read_state(slab);
		new.threaded = (uint16_t)(new.threaded + count);
		new.in_use = (uint16_t)(new.in_use + count);
	} while (!replace_state(cache, slab, &old, &new));
	ARCH_PROBE("refill", (uintptr_t)cache->name, count);
	return true;
}

/* Refills a hand whose list is empty from its own slab; false when that has no objects. */
static bool refill(struct linked_cache *cache, struct linked_hand *hand)
{
	union linked_state old, new;

	do {
		old = new = read_state(hand->slab);
		if (front_is_end(old.list))
			return thread_more(cache, hand);
		new.list = front_end(hand->slab);
		new.in_use = old.threaded;
	} while (!replace_state(cache, hand->slab, &old, &new));
	hand->list = old.list;
	ARCH_PROBE("refill", (uintptr_t)cache->name, new.in_use - old.in_use);
	return true;
}

/* Thaws a slab in hand without a free object; false when it has one by now. */
static bool leave_full(struct linked_cache *cache, struct linked_slab *slab)
{
	union linked_state old, new;

	do {
		old = new = read_state(slab);
		if (!front_is_end(old.list))
			return false;
		new.frozen = 0;
	} while (!replace_state(cache, slab, &old, &new));
	return true;
}

/* Ensures that the list in hand is not empty; false when there is no memory, and then the hand is empty. */
static bool find_objects(struct linked_cache *cache, struct linked_hand *hand)
{
	for (;;) {
		if (hand->slab) {
			if (!front_is_end(hand->list) || refill(cache, hand))
				return true;
			if (!leave_full(cache, hand->slab))
				continue;
		}
		if (!acquire(cache, hand))
			return false;
	}
}

/* Returns the list in hand to its slab, which thaws and is listed, or given up.  With the lock. */
static void thaw(struct linked_cache *cache, struct linked_hand hand, struct linked_slab **surplus)
{
	union linked_state old, new;
	uintptr_t last = 0;
	unsigned count = measure(cache, hand, &last);

	ARCH_PROBE("drain", (uintptr_t)cache->name, count);
	do {
		old = new = read_state(hand.slab);
		if (count) {
			set_next(cache, last, old.list);
			new.list = hand.list;
			new.in_use = (uint16_t)(old.in_use - count);
		}
		new.frozen = 0;
	} while (!replace_state(cache, hand.slab, &old, &new));
	if (!new.in_use && may_give_up(cache))
		give_up(cache, hand.slab, surplus);
	else if (new.in_use < cache->objects)
		/* At the front a watched slab goes on being allocated from, as it would on a word. */
		(profile_is_on() && was_watched(hand.slab) ? enlist_first : linked_enlist)(cache, hand.slab);
}

void linked_put_back(struct linked_cache *cache, struct linked_hand hand)
{
	struct linked_slab *surplus = NULL;

	lock_cache(cache);
	thaw(cache, hand, &surplus);
	cpuslab_spin_unlock(&cache->lock);
	release_slabs(cache, surplus);
}

/* Takes one object of the first partial slab, which is listed again if it has others.  With the lock. */
static void *take_from_partial(struct linked_cache *cache)
{
	struct linked_hand hand = {cache->first, 0};
	struct linked_slab *surplus = NULL;
	void *object = NULL;

	if (!hand.slab)
		return NULL;
	delist(cache, hand.slab);
	freeze(cache, &hand);
	if (!front_is_end(hand.list) || refill(cache, &hand))
		object = take_first(cache, &hand, true);
	/* The object taken is in use, so the slab cannot be surplus. */
	thaw(cache, hand, &surplus);
	assert(object && !surplus);
	return object;
}

void *linked_try_alloc_missed(struct linked_cache *cache)
{
	front_count(cache, 1);
	void *object = front_pop(cache);
	bool watched = false;

	if (object || !cpuslab_spin_trylock(&cache->lock))
		return object;
	cache->lock_acquires++;
	if (try_keep_pair(cache)) {
		watched = cache->first && is_watched(cache, cache->first);
		object = take_from_partial(cache);
		let_pair_go(cache);
	}
	cpuslab_spin_unlock(&cache->lock);
	if (object && watched)
		note_allocs(cache, &object, 1);
	return object;
}

/*
 * Takes one object of the first partial slab if a profile watches it; NULL if not, or if objects must be
 * linked first.  The slab stays first, and serves one call at a time, for as long as it would have been on a
 * word: were it moved to the back, its objects would be allocated less often than others.
 */
static void *take_watched(struct linked_cache *cache)
{
	union linked_state old, new;
	uintptr_t object = 0;

	lock_cache(cache);
	struct linked_slab *slab = cache->first;

	if (slab && is_watched(cache, slab)) {
		/* Others may free into it, but none takes from it, so the first object's link is stable. */
		do {
			old = new = read_state(slab);
			object = old.list;
			if (front_is_end(object))
				break;
			new.list = linked_checked_next(cache, slab, object, true);
			new.in_use++;
		} while (!replace_state(cache, slab, &old, &new));
		if (!front_is_end(object) && new.in_use == cache->objects)
			delist(cache, slab);
	}
	cpuslab_spin_unlock(&cache->lock);
	return object && !front_is_end(object) ? (void *)object : NULL;
}

static void install(struct linked_cache *cache, struct linked_hand hand)
{
	if (hand.slab && (is_watched(cache, hand.slab) || !front_install(cache, hand)))
		linked_put_back(cache, hand);
}

size_t linked_alloc_several(struct linked_cache *cache, void **objects, size_t count)
{
	struct linked_hand hand = front_take(cache);
	size_t taken = 0;
	bool watched = false;

	if (hand.slab)
		check_first(cache, hand, false);
	else if (profile_is_on())
		while (taken < count && (objects[taken] = take_watched(cache))) {
			taken++;
			watched = true;
		}
	while (taken < count && find_objects(cache, &hand)) {
		watched |= is_watched(cache, hand.slab);
		while (taken < count && !front_is_end(hand.list))
			objects[taken++] = take_first(cache, &hand, false);
	}
	install(cache, hand);
	/* Not with a slab in hand, which a child forked meanwhile would lose. */
	if (watched)
		note_allocs(cache, objects, taken);
	return taken;
}

__attribute__((noinline)) void *linked_alloc_missed(struct linked_cache *cache)
{
	void *object;

	front_count(cache, 1);
	return linked_alloc_several(cache, &object, 1) ? object : NULL;
}

static _Noreturn void stop_double_free(struct linked_cache *cache, uintptr_t object, bool locked)
{
	stop(cache, object, "free of an object that was freed just before", locked);
}

/* Objects of one slab, linked from `first` to `last`, on no word and in no hand. */
struct chain {
	uintptr_t first, last;
	unsigned count;
};

/*
 * Pushes objects onto a slab's own list.  Where that changes which list of slabs it belongs in, the exchange
 * happens with the lock held: otherwise two threads could both find that they must list it, or one could give
 * up a slab that another is about to list.
 */
static void free_to_slab(struct linked_cache *cache, struct linked_slab *slab, struct chain chain)
{
	struct linked_slab *surplus = NULL;
	union linked_state old, new;
	bool locked = false, was_full, empty;

	do {
		old = new = read_state(slab);
		if (old.list == chain.first)
			stop_double_free(cache, chain.first, locked);
		if (old.in_use < chain.count)
			stop(cache, chain.first, "free of an object that is already free", locked);
		set_next(cache, chain.last, old.list);
		new.list = chain.first;
		new.in_use = (uint16_t)(old.in_use - chain.count);
		was_full = !old.frozen && old.in_use == cache->objects;
		empty = !old.frozen && !new.in_use;
		if (!locked && (was_full || empty)) {
			lock_cache(cache);
			locked = true;
		}
	} while (!replace_state(cache, slab, &old, &new));
	if (!locked)
		return;
	if (empty && may_give_up(cache)) {
		if (!was_full)
			delist(cache, slab);
		give_up(cache, slab, &surplus);
	} else if (was_full) {
		linked_enlist(cache, slab);
	}
	cpuslab_spin_unlock(&cache->lock);
	release_slabs(cache, surplus);
}

/* Returns the slab of an object that the program frees; aborts if it is not an object of this cache. */
static struct linked_slab *slab_of(const struct linked_cache *cache, const void *object)
{
	struct linked_slab *slab = NULL;

	if (page_is_heap(object) && page_id(object) == PAGE_LINKED)
		slab = linked_slab_at(object);
	if (!slab || slab->cache != cache)
		corruption_abort(cache->name, object,
				 "free of a pointer that is not an object of this cache");
	if (!linked_starts_object(cache, slab, (uintptr_t)object))
		corruption_abort(cache->name, object, "free of a pointer that is not the start of an object");
	return slab;
}

__attribute__((noinline)) void linked_free_missed(struct linked_cache *cache, void *object)
{
	struct linked_slab *slab = slab_of(cache, object);

	front_count(cache, VCPU_MISSED_FREE);
	/* Only the object's owner could have put it there, and that is the caller. */
	if (front_has(cache, object))
		stop_double_free(cache, (uintptr_t)object, false);
	note_free(slab, object);
	free_to_slab(cache, slab, (struct chain){(uintptr_t)object, (uintptr_t)object, 1});
}

/*
 * Aborts if an object came twice in a chain: then one of them no longer links to the object before it.  The
 * links were just stored, and the loads do not depend on each other.
 */
static void check_chain(struct linked_cache *cache, void *const *objects, unsigned count)
{
	for (unsigned i = 1; i < count; i++)
		if (linked_next(cache, (uintptr_t)objects[i]) != (uintptr_t)objects[i - 1])
			stop(cache, (uintptr_t)objects[i], "an object was freed twice", false);
}

void linked_free_several(struct linked_cache *cache, void *const *objects, size_t count)
{
	struct linked_hand hand = front_take(cache);

	for (size_t n = 0; n < count;) {
		struct linked_slab *slab = slab_of(cache, objects[n]);
		struct chain chain = {(uintptr_t)objects[n], (uintptr_t)objects[n], 1};

		note_free(slab, objects[n]);
		/* Neighbours of the same slab go together. */
		while (++n < count && ((uintptr_t)objects[n] ^ chain.last) <= cache->list.slab_mask) {
			/* check_chain cannot tell for the chain's last, whose link is not stored yet. */
			if ((uintptr_t)objects[n] == chain.last || slab_of(cache, objects[n]) != slab)
				stop(cache, (uintptr_t)objects[n], "an object was freed twice", false);
			note_free(slab, objects[n]);
			set_next(cache, (uintptr_t)objects[n], chain.first);
			chain.first = (uintptr_t)objects[n];
			chain.count++;
		}
		check_chain(cache, objects + n - chain.count, chain.count);
		if (slab != hand.slab) {
			free_to_slab(cache, slab, chain);
		} else {
			if (hand.list == chain.first)
				stop_double_free(cache, chain.first, false);
			set_next(cache, chain.last, hand.list);
			hand.list = chain.first;
		}
	}
	install(cache, hand);
}
