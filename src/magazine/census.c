/* SPDX-License-Identifier: MIT */
#include "magazine/census.h"

#include "check/corruption.h"
#include "guard/guard.h"
#include "magazine/control.h"
#include "magazine/words.h"
#include "profile/profile.h"

struct cache *census_caches[VCPU_CACHES];
unsigned census_count = CENSUS_FIRST;
unsigned census_lasting = CENSUS_FIRST;
uint16_t magazine_usual_bytes[(UINT16_MAX + 1) / PAGE_ID_STEP];
struct cpuslab_spinlock census_lock = CPUSLAB_SPINLOCK_INITIALIZER;
static struct cpuslab_spinlock keeping_lock = CPUSLAB_SPINLOCK_INITIALIZER;

/* ---- caches come and go -------------------------------------------------------------------------------- */

/* The word for returns has the next number; census_of_word relies on it. */
static bool take_numbers(struct cache *cache, bool hardened)
{
	if (!vcpu_take_numbers(hardened ? 2 : 1, &cache->number))
		return false;
	cache->returns_number = hardened ? cache->number + 1 : 0;
	cache->returns = hardened ? vcpu_offset(cache->returns_number) : 0;
	return true;
}

/* After the cache has left every list. */
static void give_numbers(const struct cache *cache)
{
	vcpu_give_number(cache->number);
	if (cache->returns_number)
		vcpu_give_number(cache->returns_number);
}

/* Whether an object belongs to its caller from end to end, and is either allocated or free. */
static bool is_usual(const struct cache *cache)
{
	return !magazine_is_checked(cache) && !magazine_is_hardened(cache);
}

/* Tells magazine_usual() the bytes of a cache whose pages have an id of its own. */
static void set_usual_bytes(const struct cache *cache, uint32_t bytes)
{
	if (cache->id >= PAGE_ID_RESERVED && is_usual(cache) && bytes <= UINT16_MAX)
		__atomic_store_n(&magazine_usual_bytes[cache->id / PAGE_ID_STEP], (uint16_t)bytes,
				 __ATOMIC_RELEASE);
}

/*
 * Not where an object's content must outlive its free or precede its first use, nor where it is aligned to
 * more than a guarded place can be.
 */
static bool may_be_guarded(const struct slab_traits *traits, const void *owner)
{
	return !traits->checks && guard_fits(traits->size, magazine_alignment(traits)) &&
	       (!owner || !slab_keeps_content(traits));
}

/* Initialises a cache whose numbers are known. */
static void init_cache(struct cache *cache, const struct slab_traits *traits, uint16_t capacity, void *owner)
{
	struct slab_traits own = *traits;

	own.guarded = may_be_guarded(traits, owner);
	cache->offset = vcpu_offset(cache->number);
	cache->map = vcpu_map(cache->number);
	cache->owner = owner;
	cache->id = own.id = cache->number < VCPU_BANK_CACHES ? cache->offset : PAGE_SLAB;
	depot_init(&cache->depot, &own, capacity);
	set_usual_bytes(cache, own.size);
}

/* With the census lock. */
static void count_numbers(unsigned last)
{
	if (last >= census_count)
		__atomic_store_n(&census_count, last + 1, __ATOMIC_RELEASE);
}

bool magazine_create(struct cache *cache, const struct slab_traits *traits, uint16_t capacity, void *owner)
{
	bool created = false;

	cpuslab_spin_lock(&census_lock);
	if (take_numbers(cache, traits->hardened)) {
		init_cache(cache, traits, capacity, owner);
		__atomic_store_n(&census_caches[cache->number], cache, __ATOMIC_RELEASE);
		count_numbers(traits->hardened ? cache->returns_number : cache->number);
		created = true;
	}
	cpuslab_spin_unlock(&census_lock);
	return created;
}

bool magazine_reserve(unsigned count, unsigned *first)
{
	cpuslab_spin_lock(&census_lock);
	bool taken = vcpu_take_numbers(count, first);

	if (taken) {
		census_lasting = *first + count;
		count_numbers(*first + count - 1);
	}
	cpuslab_spin_unlock(&census_lock);
	return taken;
}

struct cache *magazine_create_reserved(unsigned number, const struct slab_traits *traits, bool waits)
{
	struct cache *cache = metadata_alloc_lasting(sizeof *cache, waits);
	struct cache *found = NULL;

	if (!cache)
		return magazine_cache_number(number);
	cache->number = number;
	cache->returns = 0;
	cache->returns_number = 0;
	init_cache(cache, traits, 0, NULL);
	/*
	 * If two threads create it at once, one is first; the other has changed nothing shared but what
	 * magazine_usual() says, to the same value.  A child forked in between creates it anew, or finds it
	 * here.
	 */
	if (__atomic_compare_exchange_n(&census_caches[number], &found, cache, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return cache;
	/* Giving the block back might take waiting. */
	if (waits)
		metadata_free(cache, sizeof *cache);
	return found;
}

/* No thread is in a section on these words, so that no area needs closing. */
static void empty_unused_words(struct cache *cache, unsigned number)
{
	for (unsigned id = 0; id < vcpu_ids(); id++) {
		uintptr_t *word = vcpu_word(id, number);

		if (word)
			words_empty(cache, word, depot_put);
	}
}

/* With the census lock. */
static void gather_unused(struct cache *cache)
{
	empty_unused_words(cache, cache->number);
	if (cache->returns_number)
		empty_unused_words(cache, cache->returns_number);
	depot_empty(&cache->depot);
}

void magazine_gather(struct cache *cache)
{
	corruption_begin_walk(&census_lock);
	gather_unused(cache);
	corruption_end_walk(&census_lock);
}

uint64_t magazine_destroy(struct cache *cache)
{
	corruption_begin_walk(&census_lock);
	gather_unused(cache);
	uint64_t allocated = slab_cache_close(&cache->depot.slabs);

	if (!allocated) {
		set_usual_bytes(cache, 0);
		__atomic_store_n(&census_caches[cache->number], NULL, __ATOMIC_RELEASE);
		give_numbers(cache);
		while (census_count > census_lasting && !census_of_word(census_count - 1))
			__atomic_store_n(&census_count, census_count - 1, __ATOMIC_RELEASE);
	}
	corruption_end_walk(&census_lock);
	return allocated;
}

/* ---- while a cache is in use --------------------------------------------------------------------------- */

/* Moves what one cache has on words that can be reached to its depot.  With the census lock. */
static void empty_all_words(struct cache *cache, unsigned number)
{
	for (unsigned id = 0; id < vcpu_ids(); id++) {
		uintptr_t *word = vcpu_word(id, number);

		if (word && words_hold_any(word) && vcpu_close(id)) {
			words_empty(cache, word, depot_put);
			vcpu_reopen(id);
		}
	}
	if (number == cache->number && cache->returns_number)
		empty_all_words(cache, cache->returns_number);
}

void magazine_shrink(struct cache *cache)
{
	corruption_begin_walk(&census_lock);
	empty_all_words(cache, cache->number);
	depot_empty(&cache->depot);
	corruption_end_walk(&census_lock);
}

void magazine_tune(struct cache *cache, const struct depot_tunables *tunables)
{
	corruption_begin_walk(&census_lock);
	/* The depot first: what then leaves the words is stale there, and no more of that capacity comes. */
	if (depot_tune(&cache->depot, tunables))
		empty_all_words(cache, cache->number);
	corruption_end_walk(&census_lock);
}

/* ---- who looks for caches ------------------------------------------------------------------------------ */

unsigned magazine_caches(void)
{
	return __atomic_load_n(&census_count, __ATOMIC_ACQUIRE);
}

struct cache *magazine_cache_number(unsigned number)
{
	return number < magazine_caches() ? __atomic_load_n(&census_caches[number], __ATOMIC_ACQUIRE) : NULL;
}

static struct cache *cache_of_id(uint16_t id)
{
	return magazine_cache_number(vcpu_cache(id));
}

static struct cache *cache_of_slabs(struct slab_cache *slabs)
{
	return slabs ? (struct cache *)((char *)slabs - offsetof(struct cache, depot.slabs)) : NULL;
}

struct cache *magazine_cache(const void *address)
{
	uint16_t id = page_is_heap(address) ? page_id(address) : PAGE_FREE;

	while (id == PAGE_SLAB || id == PAGE_WATCHED) {
		struct cache *cache = cache_of_slabs(slab_cache_of(address));
		uint16_t before = id;

		/*
		 * If the caller holds no object there, the page may have become a linked slab's, which has
		 * another kind of descriptor; if it does, the page may no longer be watched.
		 */
		id = page_id(address);
		if (id == before)
			return cache;
	}
	return id >= PAGE_ID_RESERVED ? cache_of_id(id) : NULL;
}

void magazine_begin_census(void)
{
	cpuslab_spin_lock(&census_lock);
}

void magazine_end_census(void)
{
	cpuslab_spin_unlock(&census_lock);
}

void magazine_keep_caches(void)
{
	corruption_begin_walk(&keeping_lock);
}

void magazine_let_caches_go(void)
{
	corruption_end_walk(&keeping_lock);
}

void magazine_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("magazine.caches", (uintptr_t)census_caches, sizeof census_caches);
	show("magazine.cache_count", (uintptr_t)&census_count, sizeof census_count);
	control_show(show);
	profile_show(show);
	vcpu_show(show);
	slab_show(show);
	page_show(show);
}

/* ---- fork ---------------------------------------------------------------------------------------------- */

static struct slab_cache *slabs_of_id(uint16_t id)
{
	struct cache *cache = cache_of_id(id);

	return cache ? &cache->depot.slabs : NULL;
}

static bool cache_is_torn(const struct cache *cache)
{
	return depot_is_torn(&cache->depot) || slab_is_torn(&cache->depot.slabs) ||
	       (magazine_is_checked(cache) && check_is_torn(cache->depot.slabs.traits.checks));
}

bool magazine_is_torn(void)
{
	for (unsigned number = CENSUS_FIRST; number < census_count; number++)
		if (census_caches[number] && cache_is_torn(census_caches[number]))
			return true;
	return cpuslab_spin_is_locked(&census_lock) || cpuslab_spin_is_locked(&keeping_lock);
}

bool magazine_repair(bool all)
{
	bool any = false;

	cpuslab_spin_reset(&census_lock);
	cpuslab_spin_reset(&keeping_lock);
	for (unsigned number = CENSUS_FIRST; number < magazine_caches(); number++)
		if (census_caches[number]) {
			if (magazine_is_checked(census_caches[number]))
				check_repair(census_caches[number]->depot.slabs.traits.checks);
			depot_repair(&census_caches[number]->depot, all);
			any |= slab_repair_begin(&census_caches[number]->depot.slabs, all);
		}
	return any && slab_repair_pages(slabs_of_id);
}
