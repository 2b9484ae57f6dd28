/* SPDX-License-Identifier: MIT */
/* linked/census: caches as a whole, from outside: creates, drains, counts and repairs them. */
#include <assert.h>
#include <string.h>

#include "arch/arch.h"
#include "check/corruption.h"
#include "linked/front.h"
#include "page/page.h"

static struct linked_cache *caches[VCPU_CACHES] ARCH_SPARSE; /* by number; NULL for none */
static unsigned cache_count;                                 /* numbers of linked caches are below this */
static struct cpuslab_spinlock census_lock = CPUSLAB_SPINLOCK_INITIALIZER;

/* ---- words from outside ---------------------------------------------------------------------------- */

static bool has_list(const uintptr_t *word)
{
	uintptr_t list = __atomic_load_n(word, __ATOMIC_RELAXED);

	return list != vcpu_void && list != vcpu_closed;
}

/* The word's value at the last tick. */
static uintptr_t *glimpse(uintptr_t *word)
{
	return word + 3 * VCPU_ROW;
}

/*
 * Whether a word is as it was at the last tick.  A false match costs little: a loop of allocation and free
 * leaves its word as it was more often than not.
 */
static bool is_idle(uintptr_t *word)
{
	return has_list(word) && __atomic_load_n(word, __ATOMIC_RELAXED) == *glimpse(word);
}

/* Gives back the list on a word of a closed area, or of a cache that no other thread uses. */
static void empty_word(struct linked_cache *cache, uintptr_t *word)
{
	if (!has_list(word))
		return;
	struct linked_hand hand = front_hand(*word);

	/* The word first: a child forked in between loses the list, rather than having it twice. */
	__atomic_store_n(word, vcpu_void, __ATOMIC_RELEASE);
	linked_put_back(cache, hand);
}

static void empty_words(struct linked_cache *cache)
{
	for (unsigned id = 0; id < vcpu_ids(); id++) {
		uintptr_t *word = vcpu_word(id, cache->number);

		if (word)
			empty_word(cache, word);
	}
}

/* ---- caches ---------------------------------------------------------------------------------------- */

bool linked_create(struct linked_cache *cache, const struct linked_traits *traits, void *owner)
{
	unsigned number;

	if (!vcpu_take_numbers(1, &number))
		return false;
	if (!linked_init(cache, traits, vcpu_offset(number))) {
		vcpu_give_number(number);
		return false;
	}
	cache->number = number;
	cache->map = vcpu_map(number);
	cache->owner = owner;
	cpuslab_spin_lock(&census_lock);
	__atomic_store_n(&caches[number], cache, __ATOMIC_RELEASE);
	if (number >= cache_count)
		__atomic_store_n(&cache_count, number + 1, __ATOMIC_RELEASE);
	cpuslab_spin_unlock(&census_lock);
	return true;
}

bool linked_destroy(struct linked_cache *cache)
{
	corruption_begin_walk(&census_lock);
	/* No thread is in a section on these words, so no area has to be closed. */
	empty_words(cache);
	linked_release_empty(cache);
	bool empty = !cache->slabs;

	if (empty) {
		__atomic_store_n(&caches[cache->number], NULL, __ATOMIC_RELEASE);
		while (cache_count && !caches[cache_count - 1])
			__atomic_store_n(&cache_count, cache_count - 1, __ATOMIC_RELEASE);
	}
	corruption_end_walk(&census_lock);
	if (empty)
		vcpu_give_number(cache->number);
	return empty;
}

void linked_shrink(struct linked_cache *cache)
{
	corruption_begin_walk(&census_lock);
	for (unsigned id = 0; id < vcpu_ids(); id++) {
		uintptr_t *word = vcpu_word(id, cache->number);

		if (word && has_list(word) && vcpu_close(id)) {
			empty_word(cache, word);
			vcpu_reopen(id);
		}
	}
	if (!cache->type_stable)
		linked_release_empty(cache);
	corruption_end_walk(&census_lock);
}

unsigned linked_caches(void)
{
	return __atomic_load_n(&cache_count, __ATOMIC_ACQUIRE);
}

struct linked_cache *linked_cache_number(unsigned number)
{
	return number < linked_caches() ? __atomic_load_n(&caches[number], __ATOMIC_ACQUIRE) : NULL;
}

struct linked_cache *linked_cache_of(const void *address)
{
	if (!page_is_heap(address) || page_id(address) != PAGE_LINKED)
		return NULL;
	const struct linked_slab *slab = linked_slab_at(address);

	return slab ? slab->cache : NULL;
}

void *linked_object_of(const struct linked_cache *cache, const void *address)
{
	const struct linked_slab *slab = linked_slab_at(address);
	size_t index = slab ? (size_t)((const char *)address - slab->base) / cache->stride : 0;

	return slab && index < slab->state.threaded ? slab->base + index * cache->stride : NULL;
}

void linked_begin_census(void)
{
	cpuslab_spin_lock(&census_lock);
}

void linked_end_census(void)
{
	cpuslab_spin_unlock(&census_lock);
}

/* ---- reclaim --------------------------------------------------------------------------------------- */

/* For vcpu_drain, with the census lock: which words to empty, all or the idle ones, and how. */
static bool wants_full(unsigned number, uintptr_t *word)
{
	return caches[number] && has_list(word);
}

static bool wants_idle(unsigned number, uintptr_t *word)
{
	if (!caches[number])
		return false;
	if (is_idle(word))
		return true;
	*glimpse(word) = __atomic_load_n(word, __ATOMIC_RELAXED);
	return false;
}

static void empty_number(unsigned number, uintptr_t *word)
{
	empty_word(caches[number], word);
	*glimpse(word) = __atomic_load_n(word, __ATOMIC_RELAXED);
}

/* Whether no slab was taken or given back since the last look. */
static bool is_quiet(struct linked_cache *cache)
{
	uint32_t acquires = __atomic_load_n(&cache->lock_acquires, __ATOMIC_RELAXED);
	bool quiet = acquires == cache->glimpsed;

	cache->glimpsed = acquires;
	return quiet;
}

void linked_reclaim(bool all)
{
	if (all)
		corruption_begin_walk(&census_lock);
	else if (!corruption_try_walk(&census_lock))
		return; /* another thread is at it */
	vcpu_drain(0, cache_count, all ? wants_full : wants_idle, empty_number);
	for (unsigned number = 0; number < cache_count; number++) {
		struct linked_cache *cache = caches[number];

		if (cache && !cache->type_stable && (is_quiet(cache) || all) &&
		    __atomic_load_n(&cache->partial, __ATOMIC_RELAXED)) {
			linked_release_empty(cache);
			cache->glimpsed = cache->lock_acquires;
		}
	}
	corruption_end_walk(&census_lock);
}

/* ---- reports --------------------------------------------------------------------------------------- */

static bool is_free(const uint64_t *map, unsigned i)
{
	return map[i / 64] >> i % 64 & 1;
}

/* Finds the objects in a slab's own list.  The list may be a ring if the program has freed one twice. */
static void find_free(struct linked_cache *cache, const struct linked_slab *slab, uint64_t *map)
{
	for (uintptr_t object = slab->state.list; !front_is_end(object);
	     object = linked_checked_next(cache, slab, object, false)) {
		unsigned i = (unsigned)((object - (uintptr_t)slab->base) / cache->stride);

		if (is_free(map, i))
			corruption_abort(cache->name, (void *)object, "an object was freed twice");
		map[i / 64] |= 1ull << i % 64;
	}
}

void linked_visit_objects(struct linked_cache *cache, void (*visit)(void *object, void *argument),
			  void *argument)
{
	uint64_t free[UINT16_MAX / 64 + 1];
	uintptr_t end = page_front.heap_page + page_heap_pages();

	for (uintptr_t page = page_front.heap_page; page < end; page++) {
		char *address = (char *)(page << PAGE_SHIFT);
		const struct linked_slab *slab = linked_cache_of(address) ? linked_slab_at(address) : NULL;

		if (!slab || slab->cache != cache || slab->base != address)
			continue;
		memset(free, 0, sizeof free);
		find_free(cache, slab, free);
		for (unsigned i = 0; i < slab->state.threaded; i++)
			if (!is_free(free, i))
				visit(address + (size_t)i * cache->stride, argument);
	}
}

/*
 * Counts the objects of a list that other threads use.  While it is followed it may become another, or its
 * slab may go: so each step must stay in the slab, and there are no more steps than objects.
 */
static unsigned glance(const struct linked_cache *cache, const struct linked_slab *slab, uintptr_t list)
{
	unsigned count = 0;

	while (!front_is_end(list) && linked_starts_object(cache, slab, list) && count < cache->objects) {
		count++;
		list = linked_next(cache, list);
	}
	return count;
}

void linked_statistics(struct linked_cache *cache, struct linked_statistics *statistics)
{
	uint64_t free = 0, hoarded = 0, alloc_misses, free_misses;

	for (unsigned id = 0; id < vcpu_ids(); id++) {
		const uintptr_t *word = vcpu_word(id, cache->number);
		uintptr_t list = word ? __atomic_load_n(word, __ATOMIC_ACQUIRE) : vcpu_void;
		const struct linked_slab *slab = front_hand(list).slab;

		if (!slab)
			continue;
		hoarded += glance(cache, slab, list);
		/* Bounded likewise: by now the slab may be something else. */
		unsigned in_use = __atomic_load_n(&slab->state.in_use, __ATOMIC_RELAXED);

		free += in_use < cache->objects ? cache->objects - in_use : 0;
	}
	vcpu_misses(cache->number, &alloc_misses, &free_misses);
	cpuslab_spin_lock(&cache->lock);
	for (const struct linked_slab *slab = cache->first; slab; slab = slab->next)
		free += cache->objects - slab->state.in_use;
	uint64_t capacity = (uint64_t)cache->slabs * cache->objects;

	*statistics = (struct linked_statistics){
		.slabs = cache->slabs,
		.partial = cache->partial,
		.capacity = capacity,
		.hoarded = hoarded,
		/* The counts are of different instants; never below zero. */
		.allocated = capacity > free + hoarded ? capacity - free - hoarded : 0,
		.created = cache->created,
		.freed = cache->freed,
		.lock_acquires = cache->lock_acquires,
		.alloc_misses = alloc_misses,
		.free_misses = free_misses,
	};
	cpuslab_spin_unlock(&cache->lock);
}

void linked_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
#define SHOW(name, member)                                                                                   \
	show(name, offsetof(struct linked_cache, member), sizeof((struct linked_cache *)0)->member)
	show("linked.caches", (uintptr_t)caches, sizeof caches);
	show("linked.cache_count", (uintptr_t)&cache_count, sizeof cache_count);
	show("linked", 0, sizeof(struct linked_cache));
	SHOW("linked.number", number);
	SHOW("linked.owner", owner);
	SHOW("linked.name", name);
	SHOW("linked.stride", stride);
	SHOW("linked.objects", objects);
	SHOW("linked.slab_mask", list.slab_mask);
	SHOW("linked.link", list.link);
	SHOW("linked.secret", list.secret);
	SHOW("linked.type_stable", type_stable);
	SHOW("linked.construct", construct);
	SHOW("linked.batch", batch);
	SHOW("linked.slab_count", slabs);
	SHOW("linked.created", created);
	SHOW("linked.freed", freed);
	SHOW("linked.locks", lock_acquires);
#undef SHOW
	show("linked_slab", 0, sizeof(struct linked_slab));
	show("linked_slab.in_use", offsetof(struct linked_slab, state) + offsetof(union linked_state, in_use),
	     sizeof(uint16_t));
	show("linked_slab.base", offsetof(struct linked_slab, base), sizeof(char *));
	show("linked_slab.cache", offsetof(struct linked_slab, cache), sizeof(struct linked_cache *));
}

/* ---- fork ------------------------------------------------------------------------------------------ */

static bool cache_is_torn(const struct linked_cache *cache)
{
#if !ARCH_HAS_PAIR
	if (cache->redo || cpuslab_spin_is_locked(&cache->pair_lock))
		return true;
#endif
	return cpuslab_spin_is_locked(&cache->lock) || cache->releasing;
}

bool linked_is_torn(void)
{
	for (unsigned number = 0; number < cache_count; number++)
		if (caches[number] && cache_is_torn(caches[number]))
			return true;
	return cpuslab_spin_is_locked(&census_lock);
}

static bool repair_begin(struct linked_cache *cache, bool all)
{
#if !ARCH_HAS_PAIR
	if (cache->redo) {
		cache->redo->state.pair[0] = cache->redo_pair[0];
		cache->redo->state.pair[1] = cache->redo_pair[1];
		cache->redo = NULL;
	}
	cpuslab_spin_reset(&cache->pair_lock);
#endif
	bool broken = cpuslab_spin_is_locked(&cache->lock) || cache->releasing || all;

	if (cache->under_repair != broken)
		cache->under_repair = broken;
	if (!broken)
		return false;
	cpuslab_spin_reset(&cache->lock);
	cache->releasing = 0;
	cache->first = cache->last = NULL;
	cache->partial = cache->slabs = 0;
	return true;
}

/*
 * A frozen slab is on a word, in this very thread's hand, or in the hand of a thread that the child does not
 * have; nothing tells which, so the last kind is lost.  A slab that was being given back, but to which all
 * its pages still refer, stays.
 */
static void repair_slab(struct linked_cache *cache, struct linked_slab *slab)
{
	cache->slabs++;
	if (!slab->state.frozen && slab->state.in_use < cache->objects)
		linked_enlist(cache, slab);
}

/* As slab_repair_pages: frees pages of slabs that were half made or half given back. */
static bool repair_pages(void)
{
	uintptr_t end = page_front.heap_page + page_heap_pages();
	bool orphans = false;

	for (uintptr_t page = page_front.heap_page; page < end; page++) {
		char *address = (char *)(page << PAGE_SHIFT);

		if (page_entries[page] != PAGE_LINKED)
			continue;
		struct linked_slab *slab = linked_slab_at(address);

		if (!slab || page_entries[page_of(slab->base)] != PAGE_LINKED) {
			page_front.slab_of[page] = 0;
			page_entries[page] = PAGE_FREE;
			orphans = true;
		} else if (slab->base == address && slab->cache && slab->cache->under_repair) {
			repair_slab(slab->cache, slab);
		}
	}
	return orphans;
}

bool linked_repair(bool all)
{
	bool any = false;

	cpuslab_spin_reset(&census_lock);
	for (unsigned number = 0; number < cache_count; number++)
		if (caches[number])
			any |= repair_begin(caches[number], all);
	return any && repair_pages();
}
