/* SPDX-License-Identifier: MIT */
#include "slab/slab.h"

#include <assert.h>
#include <string.h>

#include "arch/probe.h"
#include "check/corruption.h"
#include "guard/guard.h"
#include "os/os.h"
#include "page/page.h"
#include "slab/descriptor.h"
#include "slab/geometry.h"
#include "slab/hollow.h"
#include "slab/shuffle.h"
#include "vcpu/vcpu.h"

enum {
	NO_INDEX = UINT16_MAX,
	DESCRIPTOR_MOST = 4096,
	FULL_BIN = SLAB_BINS, /* of debugged caches alone */
	IN_NO_BIN,
};

/*
 * They change, as `bin` does, under the cache's lock alone.  Whoever has the slab's lock may read them before
 * that: what a slab in the wrong bin needs is then decided under the cache's lock, and nobody else can make a
 * right bin wrong.
 */
enum slab_flags {
	LISTED = 0x02,
	MAKING = 0x04, /* not the cache's yet: its constructors are running, or it waits in `made` */
	PURGED = 0x08, /* of a hardened cache: its pages take no memory */
	ENDED = 0x10,  /* of a hardened cache: a page without access ends it */
};

/* ---- geometry ------------------------------------------------------------------------------------------ */

/* So many that the descriptor with their records is a block of metadata that can be used again. */
static void limit_to_records(const struct slab_cache *cache, struct geometry *geometry)
{
	uint32_t most = (DESCRIPTOR_MOST - offsetof(struct slab, index) - sizeof(uint64_t)) /
			(geometry->index_bytes + cache->traits.checks->record_bytes);

	if (geometry->objects <= most)
		return;
	geometry->objects = most;
	geometry->bytes = geometry_stride(most * cache->traits.size, PAGE_BYTES);
}

static void choose_geometry(struct slab_cache *cache)
{
	uint32_t size = cache->traits.size;
	struct geometry geometry = geometry_runs(PAGE_BYTES, size);

	if (cache->traits.checks)
		limit_to_records(cache, &geometry);
	cache->pages = (uint16_t)(geometry.bytes / PAGE_BYTES + cache->traits.hardened);
	cache->objects = (uint16_t)geometry.objects;
	cache->wide = geometry.index_bytes > 1;
	cache->reciprocal = (uint32_t)(((1ull << 32) + size - 1) / size);
	/* Rounded up, so that whole bins come out whole; the error is too small to show. */
	cache->bin_scale = ((uint64_t)SLAB_BINS << 32) / cache->objects + 1;
}

/* Where a descriptor's records begin, if it has any. */
static size_t index_end(const struct slab_cache *cache)
{
	return offsetof(struct slab, index) + (cache->wide ? 2u : 1u) * cache->objects;
}

static size_t records_start(const struct slab_cache *cache)
{
	return (index_end(cache) + sizeof(uint64_t) - 1) & -sizeof(uint64_t);
}

static size_t descriptor_bytes(const struct slab_cache *cache)
{
	const struct checks *checks = cache->traits.checks;

	return checks ? records_start(cache) + (size_t)checks->record_bytes * cache->objects
		      : index_end(cache);
}

void slab_cache_init(struct slab_cache *cache, const struct slab_traits *traits)
{
	assert(traits->size % 8 == 0 && traits->size > 0);
	*cache = (struct slab_cache){.traits = *traits};
	choose_geometry(cache);
}

/* ---- indexes ------------------------------------------------------------------------------------------- */

static inline unsigned next_of(const struct slab *slab, unsigned i, bool wide)
{
	unsigned next = wide ? slab->index.wide[i] : slab->index.narrow[i];

	return next == i ? NO_INDEX : next;
}

static inline void set_index(struct slab *slab, size_t i, size_t value, bool wide)
{
	if (wide)
		slab->index.wide[i] = (uint16_t)value;
	else
		slab->index.narrow[i] = (uint8_t)value;
}

static inline void link_free(struct slab *slab, unsigned i, bool wide)
{
	set_index(slab, i, slab->head == NO_INDEX ? i : slab->head, wide);
	slab->head = (uint16_t)i;
}

/* ---- lists: with the cache's lock ------------------------------------------------------------------ */

static bool is_listed(const struct slab *slab)
{
	return cpuslab_pagelock_flags(&slab->lock) & LISTED;
}

static void leave_bin(struct slab_cache *cache, struct slab *slab)
{
	if (slab->next)
		slab->next->previous = slab->previous;
	if (slab->previous)
		slab->previous->next = slab->next;
	else
		cache->partial[slab->bin] = slab->next;
}

static void enter_bin(struct slab_cache *cache, struct slab *slab, unsigned bin)
{
	__atomic_store_n(&slab->bin, (uint8_t)bin, __ATOMIC_RELAXED);
	slab->previous = NULL;
	slab->next = cache->partial[bin];
	if (slab->next)
		slab->next->previous = slab;
	cache->partial[bin] = slab;
}

static unsigned in_use_of(const struct slab *slab)
{
	return __atomic_load_n(&slab->in_use, __ATOMIC_RELAXED);
}

/* With the slab's lock. */
static void set_in_use(struct slab *slab, unsigned in_use)
{
	__atomic_store_n(&slab->in_use, (uint16_t)in_use, __ATOMIC_RELAXED);
}

/* Whether slabs stay the cache's own, so that their addresses are nobody else's. */
static bool keeps_slabs(const struct slab_cache *cache)
{
	return cache->traits.type_stable || cache->traits.hardened;
}

/* Where a slab belongs that has so many objects in use. */
static unsigned bin_for(const struct slab_cache *cache, unsigned in_use)
{
	bool in_none = in_use == cache->objects ? !cache->traits.checks : in_use == 0 && !keeps_slabs(cache);

	return in_none ? IN_NO_BIN : (unsigned)(in_use * cache->bin_scale >> 32);
}

/* Needs the slab's lock alone. */
static bool is_settled(const struct slab_cache *cache, const struct slab *slab)
{
	return bin_for(cache, slab->in_use) ==
	       (is_listed(slab) ? __atomic_load_n(&slab->bin, __ATOMIC_RELAXED) : (unsigned)IN_NO_BIN);
}

/* After in_use changed: into the bin that the slab belongs in now.  Returns the flags that this changes. */
static uint8_t settle(struct slab_cache *cache, struct slab *slab)
{
	unsigned bin = bin_for(cache, in_use_of(slab));
	bool was_listed = is_listed(slab);

	if (was_listed && bin == slab->bin)
		return 0;
	if (was_listed)
		leave_bin(cache, slab);
	if (bin != IN_NO_BIN)
		enter_bin(cache, slab, bin);
	return was_listed == (bin != IN_NO_BIN) ? 0 : LISTED;
}

static bool try_lock_slab(struct slab *slab)
{
	return cpuslab_pagelock_trylock_expecting(&slab->lock, cpuslab_pagelock_flags(&slab->lock));
}

/* Who takes untouched objects: a vCPU by its id, or an allocation that takes them wherever they are. */
enum { ANYONE = -1, FOREIGN_MOST = 64, NO_HOME = UINT16_MAX };

static int vcpu_here(void)
{
	return (uint16_t)arch_id(vcpu_self);
}

/*
 * Whether a slab has untouched objects that are another vCPU's.  With the cache's lock.
 *
 * Those of a hardened slab lie in no order, so that all its objects count as untouched until none is left for
 * the first time: else two vCPUs would have objects whose marks share cache lines, which are written to with
 * every allocation and free.
 */
static bool is_foreign(const struct slab_cache *cache, const struct slab *slab, int taker)
{
	if (taker == ANYONE || slab->home == taker || slab->home == NO_HOME)
		return false;
	return cache->traits.hardened || __atomic_load_n(&slab->bump, __ATOMIC_RELAXED) < cache->objects;
}

/*
 * Locks a slab that has a free object for this taker; NULL where there is none.  One in which somebody is
 * freeing at this instant is passed over: it must not be waited for with the cache's lock, and others do as
 * well.  After so many foreign ones, which take time, the next will do.
 */
static struct slab *lock_slab_with_free_object(struct slab_cache *cache, int taker)
{
	unsigned foreign = 0;

	for (int bin = SLAB_BINS - 1; bin >= 0; bin--)
		for (struct slab *slab = cache->partial[bin]; slab; slab = slab->next) {
			if (is_foreign(cache, slab, taker) && foreign++ < FOREIGN_MOST)
				continue;
			if (try_lock_slab(slab))
				return slab;
		}
	struct slab *slab = cache->empty;

	if (!slab || !try_lock_slab(slab))
		return NULL;
	cache->empty = slab->next;
	cache->kept_empty--;
	slab->home = (uint16_t)vcpu_here();
	return slab;
}

/* ---- slabs --------------------------------------------------------------------------------------------- */

/* Takes over what slab_try_alloc has made.  With the lock. */
static void adopt_made(struct slab_cache *cache)
{
	if (!__atomic_load_n(&cache->made, __ATOMIC_RELAXED))
		return;
	struct slab *slab = __atomic_exchange_n(&cache->made, NULL, __ATOMIC_ACQUIRE);

	while (slab) {
		struct slab *next = slab->next;

		cache->slabs++;
		cache->created++;
		ARCH_PROBE("slab_new", (uintptr_t)cache->traits.name, cache->slabs);
		if (cache->objects == 1)
			cache->full_slabs++;
		/*
		 * Its object may just be being freed: then it settles by a count that is not yet changed or
		 * already is, and whoever frees finds it in the wrong bin, or empty, and waits for this lock.
		 */
		cpuslab_pagelock_flip_flags(&slab->lock, settle(cache, slab) | MAKING);
		slab = next;
	}
}

static void lock_cache(struct slab_cache *cache)
{
	cpuslab_spin_lock(&cache->lock);
	cache->lock_acquires++;
	adopt_made(cache);
}

static bool try_lock_cache(struct slab_cache *cache)
{
	if (!cpuslab_spin_trylock(&cache->lock))
		return false;
	cache->lock_acquires++;
	adopt_made(cache);
	return true;
}

/* ---- hardened slabs ------------------------------------------------------------------------------------ */

/*
 * So many slabs at most have a page of their own that ends them, all caches together: each takes two mappings
 * of the 65530 that a process may have (vm.max_map_count), and the program needs some, too.
 */
enum { GUARDS_MOST = 12 << 10 };

static size_t object_bytes(const struct slab_cache *cache)
{
	return (size_t)(cache->pages - 1) * PAGE_BYTES;
}

static void guard_end(const struct slab_cache *cache, struct slab *slab)
{
	static unsigned guards;

	if (__atomic_load_n(&guards, __ATOMIC_RELAXED) >= GUARDS_MOST ||
	    os_forbid(slab->base + object_bytes(cache), PAGE_BYTES) != 0)
		return;
	__atomic_fetch_add(&guards, 1, __ATOMIC_RELAXED);
	cpuslab_pagelock_set_flags(&slab->lock, ENDED);
}

/* Links all objects in random order, as if each had been handed out and come back. */
static void shuffle(struct slab_cache *cache, struct slab *slab)
{
	uint16_t order[UINT8_MAX + 1];
	unsigned objects = cache->objects;

	assert(objects <= sizeof order / sizeof *order);
	shuffle_numbers(order, objects);
	for (unsigned i = 0; i < objects; i++)
		link_free(slab, order[i], cache->wide);
	__atomic_store_n(&slab->bump, (uint16_t)objects, __ATOMIC_RELEASE);
}

/* Before anyone knows the slab. */
static __attribute__((noinline)) void harden(struct slab_cache *cache, struct slab *slab, bool zeroed)
{
	if (!zeroed && !cache->traits.untouchable)
		memset(slab->base, 0, object_bytes(cache));
	shuffle(cache, slab);
}

/*
 * Once a repair can find it: pages of a slab that nobody knows become a free run in a forked child, which
 * must be able to write to them.
 */
static __attribute__((noinline)) void forbid(const struct slab_cache *cache, struct slab *slab)
{
	if (cache->traits.untouchable)
		(void)os_forbid(slab->base, object_bytes(cache));
	guard_end(cache, slab);
}

/*
 * Gives the memory of a hardened cache's empty slabs to the system.  They read as zero before and after, and
 * an object that was written to since it came back is let off.  Returns how many pages.  With the lock.
 */
static size_t purge_empty(struct slab_cache *cache)
{
	size_t pages = 0;

	for (struct slab *slab = cache->partial[0]; slab; slab = slab->next) {
		if (in_use_of(slab) || cpuslab_pagelock_flags(&slab->lock) & PURGED)
			continue;
		if (os_purge(slab->base, object_bytes(cache)) != 0)
			break;
		memset(page_mark(slab->base), 0, object_bytes(cache) / PAGE_MARK_UNIT * sizeof(uint16_t));
		cpuslab_pagelock_set_flags(&slab->lock, PURGED);
		pages += object_bytes(cache) >> PAGE_SHIFT;
	}
	return pages;
}

/* ---- slabs that come and go ---------------------------------------------------------------------------- */

/*
 * Around changes to slabs and counts without the cache's lock: a forked child must know of them.  Returns
 * whether another has all slabs (begin_alone): then none may be locked before the cache's lock was free.
 */
static bool begin_unlocked(struct slab_cache *cache)
{
	return __atomic_fetch_add(&cache->unlocked, 1, __ATOMIC_ACQ_REL) & SLAB_ALONE;
}

static void end_unlocked(struct slab_cache *cache)
{
	__atomic_fetch_sub(&cache->unlocked, 1, __ATOMIC_ACQ_REL);
}

/* Those of a slab's pages that are chosen to have frees into them seen. */
static void watch_chosen(const struct slab_cache *cache, const char *base)
{
	uintptr_t end = page_of(base) + cache->pages;

	for (uintptr_t page = guard_chosen_from(page_of(base)); page < end; page += guard.spread)
		__atomic_store_n(&page_front.map[page], PAGE_WATCHED, __ATOMIC_RELEASE);
}

/* A slab that nobody knows of yet but the page room, in memory that was just allocated. */
static struct slab *lay_out(struct slab_cache *cache, struct slab *slab, char *base, uint8_t flags,
			    bool zeroed)
{
	*slab = (struct slab){.base = base,
			      .head = NO_INDEX,
			      .cache = cache,
			      .home = (uint16_t)vcpu_here(),
			      .clean_tail = zeroed};
	cpuslab_pagelock_init(&slab->lock, flags);
	if (cache->traits.hardened)
		harden(cache, slab, zeroed);
	/*
	 * The descriptor is whole before anyone, a repair included, can find it; and a repair believes a slab
	 * whose first page knows it, so that page comes last here and goes first in release_slabs.
	 */
	for (uintptr_t page = page_of(base) + cache->pages; page-- > page_of(base);)
		__atomic_store_n(&page_front.slab_of[page], metadata_reference(slab), __ATOMIC_RELEASE);
	if (cache->traits.hardened)
		forbid(cache, slab);
	if (guard_is_on() && cache->traits.guarded && guard_goes_on())
		watch_chosen(cache, base);
	return slab;
}

static struct slab *make_slab(struct slab_cache *cache, uint8_t flags)
{
	const struct slab_traits *traits = &cache->traits;
	struct slab *slab = metadata_alloc(descriptor_bytes(cache));

	if (!slab)
		return NULL;
	bool zeroed;
	char *base = page_alloc(cache->pages, traits->alignment ? traits->alignment : 1, traits->id, &zeroed);

	if (!base) {
		metadata_free(slab, descriptor_bytes(cache));
		return NULL;
	}
	return lay_out(cache, slab, base, flags, zeroed);
}

static struct check_place place_of(const struct slab_cache *cache, const struct slab *slab, unsigned i)
{
	const struct slab_traits *traits = &cache->traits;

	return (struct check_place){
		.slot = (unsigned char *)slab->base + (size_t)i * traits->size,
		.record = (struct check_record *)((char *)slab + records_start(cache) +
						  (size_t)i * traits->checks->record_bytes),
		.slab = slab->base,
		.objects = cache->objects,
		.used = (uint16_t)in_use_of(slab),
	};
}

/* The opposite of construct, for objects that are checked: nobody calls a destructor. */
static void unprepare(const struct slab_cache *cache, const struct slab *slab)
{
	for (unsigned i = 0; i < cache->objects; i++)
		check_release(cache->traits.checks, place_of(cache, slab, i).slot);
}

static void construct(const struct slab_cache *cache, const struct slab *slab)
{
	for (unsigned i = 0; i < cache->objects; i++) {
		if (cache->traits.checks) {
			struct check_place place = place_of(cache, slab, i);

			check_prepare(cache->traits.checks, place.slot, place.record);
		} else {
			cache->traits.construct(slab->base + (size_t)i * cache->traits.size);
		}
	}
}

static bool has_constructor(const struct slab_cache *cache)
{
	return cache->traits.construct || cache->traits.checks;
}

/* A slab with its objects constructed.  Gives up the lock meanwhile, for the constructor may do anything. */
static struct slab *make_constructed_slab(struct slab_cache *cache)
{
	cpuslab_spin_unlock(&cache->lock);
	struct slab *slab = make_slab(cache, MAKING);

	if (slab)
		construct(cache, slab);
	lock_cache(cache);
	if (slab)
		cpuslab_pagelock_clear_flags(&slab->lock, MAKING);
	return slab;
}

/* A slab, locked. */
static struct slab *create_slab(struct slab_cache *cache)
{
	struct slab *slab = has_constructor(cache) ? make_constructed_slab(cache) : make_slab(cache, 0);

	if (slab) {
		cpuslab_pagelock_lock(&slab->lock); /* nobody else knows it */
		cache->slabs++;
		cache->created++;
		ARCH_PROBE("slab_new", (uintptr_t)cache->traits.name, cache->slabs);
	}
	return slab;
}

/*
 * Gives back slabs, linked through `next`, that are in no list any more.  Without the lock, but in between
 * begin_unlocked and end_unlocked, so that a forked child finds those that were not come to.  Returns how
 * many.
 */
static unsigned release_slabs(const struct slab_cache *cache, struct slab *slab)
{
	unsigned released = 0;

	for (; slab; released++) {
		struct slab *next = slab->next;
		char *base = slab->base;

		ARCH_PROBE("slab_free", (uintptr_t)cache->traits.name, (uintptr_t)base);
		if (cache->traits.checks)
			unprepare(cache, slab);
		hollow_forget(slab);
		/* First, so that no forked child takes pages without access for free ones. */
		if (cache->traits.hardened)
			page_retire(base, cache->pages, cpuslab_pagelock_flags(&slab->lock) & ENDED);
		for (uintptr_t page = page_of(base); page < page_of(base) + cache->pages; page++)
			__atomic_store_n(&page_front.slab_of[page], 0, __ATOMIC_RELEASE);
		if (!cache->traits.hardened)
			page_free(base, cache->pages);
		metadata_free(slab, descriptor_bytes(cache));
		slab = next;
	}
	return released;
}

static uint64_t count_allocated(struct slab_cache *cache, uint64_t objects)
{
	return __atomic_add_fetch(&cache->allocated, objects, __ATOMIC_RELAXED);
}

/* The most that are allocated at once.  With the lock; a look at it at this instant may come too early. */
static void note_need(struct slab_cache *cache, uint64_t allocated)
{
	if (allocated > __atomic_load_n(&cache->needed, __ATOMIC_RELAXED))
		__atomic_store_n(&cache->needed, allocated, __ATOMIC_RELAXED);
}

/* Takes up to `count` objects of a locked slab, filling `end` downwards. */
static inline unsigned take(struct slab_cache *cache, struct slab *slab, void **end, unsigned count,
			    bool wide)
{
	const size_t size = cache->traits.size;
	char *base = slab->base;
	/* In registers: what is written to the indexes might be any of these. */
	unsigned taken = 0, head = slab->head, bump = slab->bump;

	slab->looked = 0;
	for (; taken < count && head != NO_INDEX; taken++) {
		unsigned i = head;

		head = next_of(slab, i, wide);
		set_index(slab, i, wide ? SLAB_ALLOCATED_WIDE : SLAB_ALLOCATED_NARROW, wide);
		*--end = base + i * size;
	}
	slab->head = (uint16_t)head;

	unsigned fresh = cache->objects - bump;

	if (fresh > count - taken)
		fresh = count - taken;
	for (unsigned i = bump; i < bump + fresh; i++) {
		set_index(slab, i, wide ? SLAB_ALLOCATED_WIDE : SLAB_ALLOCATED_NARROW, wide);
		*--end = base + i * size;
	}
	/* The marks before the bump that makes them count: a repair must not read what was never written. */
	__atomic_store_n(&slab->bump, (uint16_t)(bump + fresh), __ATOMIC_RELEASE);
	taken += fresh;
	set_in_use(slab, slab->in_use + taken);
	return taken;
}

/* Up to `count` objects of a locked slab, filling `end` downwards; unlocks it.  With the cache's lock. */
static unsigned take_and_unlock(struct slab_cache *cache, struct slab *slab, void **end, unsigned count)
{
	unsigned taken =
		cache->wide ? take(cache, slab, end, count, true) : take(cache, slab, end, count, false);

	if (slab->in_use == cache->objects) {
		cache->full_slabs++;
		slab->home = NO_HOME;
	}
	note_need(cache, count_allocated(cache, taken));
	if (__builtin_expect(slab->hollow != 0, 0))
		hollow_fill(cache, slab, end - taken, taken);
	uint8_t purged = cpuslab_pagelock_flags(&slab->lock) & PURGED;

	cpuslab_pagelock_unlock_flip(&slab->lock, settle(cache, slab) | purged);
	return taken;
}

unsigned slab_alloc_batch(struct slab_cache *cache, void **objects, unsigned count)
{
	unsigned taken = 0;
	int here = vcpu_here();

	lock_cache(cache);
	while (taken < count) {
		struct slab *slab = lock_slab_with_free_object(cache, here);

		if (!slab) {
			/* With something to return, no constructor need run. */
			if (taken && has_constructor(cache))
				break;
			slab = create_slab(cache);
		}
		/* When the system has no more, what is another vCPU's is better than nothing. */
		if (!slab)
			slab = lock_slab_with_free_object(cache, ANYONE);
		if (!slab)
			break;
		taken += take_and_unlock(cache, slab, objects + count - taken, count - taken);
	}
	cpuslab_spin_unlock(&cache->lock);
	if (taken < count)
		memmove(objects, objects + count - taken, taken * sizeof *objects);
	return taken;
}

/* Stacks of slabs that are pushed without the lock.  They are taken whole, so that no head comes back as
 * another. */
static void push_made(struct slab **stack, struct slab *slab)
{
	slab->next = __atomic_load_n(stack, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(stack, &slab->next, slab, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
}

static struct slab *try_get_descriptor(struct slab_cache *cache)
{
	struct slab *slab = __atomic_exchange_n(&cache->unused, NULL, __ATOMIC_ACQUIRE);

	if (!slab)
		return metadata_try_alloc(descriptor_bytes(cache));
	for (struct slab *other = slab->next; other;) {
		struct slab *next = other->next;

		push_made(&cache->unused, other);
		other = next;
	}
	return slab;
}

/* A slab of the caller's own, with its objects constructed. */
static struct slab *try_make_slab(struct slab_cache *cache)
{
	const struct slab_traits *traits = &cache->traits;
	struct slab *slab = try_get_descriptor(cache);
	bool zeroed;

	if (!slab)
		return NULL;
	char *base =
		page_try_alloc(cache->pages, traits->alignment ? traits->alignment : 1, traits->id, &zeroed);

	if (!base) {
		/* To give it back might mean to wait. */
		push_made(&cache->unused, slab);
		return NULL;
	}
	lay_out(cache, slab, base, MAKING, zeroed);
	if (traits->construct)
		construct(cache, slab);
	return slab;
}

static void *take_one(struct slab_cache *cache, struct slab *slab)
{
	void *object = NULL;

	(void)(cache->wide ? take(cache, slab, &object + 1, 1, true)
			   : take(cache, slab, &object + 1, 1, false));
	return object;
}

void *slab_try_alloc(struct slab_cache *cache)
{
	void *object = NULL;

	if (try_lock_cache(cache)) {
		struct slab *slab = lock_slab_with_free_object(cache, ANYONE);

		if (slab)
			(void)take_and_unlock(cache, slab, &object + 1, 1);
		cpuslab_spin_unlock(&cache->lock);
	} else if (__atomic_load_n(&cache->made, __ATOMIC_RELAXED)) {
		/* While somebody holds the lock for long, one slab too many is enough. */
		return NULL;
	}
	if (object)
		return object;
	struct slab *slab = try_make_slab(cache);

	if (!slab)
		return NULL;
	/* Nobody else knows the slab; but once the caller has the object, anyone may, so it must be on the
	 * stack. */
	begin_unlocked(cache);
	object = take_one(cache, slab);
	count_allocated(cache, 1);
	push_made(&cache->made, slab);
	end_unlocked(cache);
	return object;
}

/*
 * Marks the first of these objects free, which lies in this slab, and those after it up to the first that
 * does not, or that is not an object in use; returns how many.  With the slab's lock.
 */
static inline unsigned mark_free(const struct slab_cache *cache, struct slab *slab, void *const *objects,
				 unsigned count, bool wide)
{
	const uintptr_t base = (uintptr_t)slab->base;
	const uint32_t size = cache->traits.size, reciprocal = cache->reciprocal;
	const unsigned bump = slab->bump;
	/* The last one of a list is its own next: the first of these, if there is no list yet. */
	size_t head = slab->head == NO_INDEX ? slab_index(cache, slab, *objects) : slab->head;
	void *const *next = objects, *const *end = objects + count;

	for (; next < end; next++) {
		/* What does not lie in this slab is not the start of one of its objects either. */
		uintptr_t offset = (uintptr_t)*next - base, i = offset * reciprocal >> 32;

		if (__builtin_expect(i * size != offset || i >= bump, 0) ||
		    __builtin_expect(!slab_is_allocated(slab, i, wide), 0))
			break;
		set_index(slab, i, head, wide);
		head = i;
	}

	unsigned n = (unsigned)(next - objects);

	if (n)
		slab->head = (uint16_t)head;
	set_in_use(slab, slab->in_use - n);
	return n;
}

/* One, or what the depot has asked for. */
static bool keeps_another(const struct slab_cache *cache)
{
	uint32_t most = __atomic_load_n(&cache->spares, __ATOMIC_RELAXED) + 1;

	return cache->kept_empty < most && cache->objects > 1;
}

/* A slab that became empty, and has left its bin: it is kept, or among those to give back. */
static void leave(struct slab_cache *cache, struct slab *slab, struct slab **surplus)
{
	if (keeps_another(cache)) {
		/* Starts again from its lowest address. */
		slab->bump = 0;
		slab->head = NO_INDEX;
		slab->clean_tail = false;
		slab->next = cache->empty;
		cache->empty = slab;
		cache->kept_empty++;
	} else {
		cache->slabs--;
		cache->freed++;
		slab->next = *surplus;
		*surplus = slab;
	}
}

/* Frees that are under way: the slab whose lock is held, and whether the cache's is. */
struct freeing {
	struct slab *slab, *surplus;
	bool was_full, cache_is_locked;
	bool alone; /* with the cache's lock: all slabs are this thread's, and none is locked */
};

/* Of a batch: for fewer it is not worth to be alone, and for more at a time others would wait too long. */
enum { ALONE_LEAST = 8, ALONE_MOST = 128 };

/*
 * Tries to have all slabs, with the cache's lock: their own locks would take longer than all else.  Whoever
 * locks a slab without the cache's lock is counted before it looks for SLAB_ALONE.  So either it is seen
 * here, or it sees that, and waits for the cache's lock.  Here nobody is waited for: one who is counted may
 * be waiting for the lock that this thread has just taken.
 */
static bool begin_alone(struct slab_cache *cache, struct freeing *freeing)
{
	uint32_t self = 1;

	if (__atomic_load_n(&cache->unlocked, __ATOMIC_RELAXED) != self ||
	    (!freeing->cache_is_locked && !try_lock_cache(cache)))
		return false;
	freeing->cache_is_locked = true;
	return __atomic_compare_exchange_n(&cache->unlocked, &self, self | SLAB_ALONE, false,
					   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static __attribute__((noinline)) void end_alone(struct slab_cache *cache, struct freeing *freeing)
{
	__atomic_fetch_and(&cache->unlocked, ~(uint32_t)SLAB_ALONE, __ATOMIC_RELEASE);
	cpuslab_spin_unlock(&cache->lock);
	freeing->alone = freeing->cache_is_locked = false;
}

/* Gives others a chance, and tries to be alone for the next of so many objects. */
static __attribute__((noinline)) void begin_part(struct slab_cache *cache, unsigned count,
						 struct freeing *freeing)
{
	if (freeing->alone)
		end_alone(cache, freeing);
	freeing->alone = count >= ALONE_LEAST && !cache->traits.checks && begin_alone(cache, freeing);
}

/*
 * A slab's lock before its cache's, and one slab at a time.  With the cache's lock a slab may only be tried:
 * whoever has it may be waiting for that lock.
 */
static void lock_slab(struct slab_cache *cache, struct slab *slab, struct freeing *freeing)
{
	if (!freeing->alone) {
		uint8_t flags = cpuslab_pagelock_flags(&slab->lock);

		if (freeing->cache_is_locked && !cpuslab_pagelock_trylock_expecting(&slab->lock, flags)) {
			cpuslab_spin_unlock(&cache->lock);
			freeing->cache_is_locked = false;
		}
		if (!freeing->cache_is_locked)
			cpuslab_pagelock_lock_expecting(&slab->lock, flags);
	}
	freeing->slab = slab;
	freeing->was_full = slab->in_use == cache->objects;
}

/*
 * After frees into a slab.  Most leave it in the bin that it is in, and then the cache's lock is not needed.
 * An empty slab is always settled before its own lock is given up: so one that has an object in use stays,
 * and whoever frees that object can lock the slab.
 */
static void unlock_slab(struct slab_cache *cache, struct freeing *freeing)
{
	struct slab *slab = freeing->slab;
	uint8_t changed = 0;

	if (!slab->in_use || !is_settled(cache, slab)) {
		if (!freeing->cache_is_locked)
			lock_cache(cache);
		freeing->cache_is_locked = true;
		if (freeing->was_full)
			cache->full_slabs--;
		changed = settle(cache, slab);
		if (!slab->in_use && !keeps_slabs(cache))
			leave(cache, slab, &freeing->surplus);
	}
	if (!freeing->alone)
		cpuslab_pagelock_unlock_flip(&slab->lock, changed);
	else if (changed)
		cpuslab_pagelock_flip_flags(&slab->lock, changed);
}

/* Fetches the slabs of the objects up to `end`; returns where to go on. */
static unsigned fetch_slabs(void *const *objects, unsigned from, unsigned end)
{
	for (; from < end; from++)
		__builtin_prefetch(slab_of_object(objects[from]), 1);
	return from;
}

/* The same of the marks of objects whose slabs were fetched before. */
static unsigned fetch_marks(const struct slab_cache *cache, void *const *objects, unsigned from, unsigned end)
{
	for (; from < end; from++) {
		const struct slab *slab = slab_of_object(objects[from]);

		if (slab) {
			unsigned i = slab_index(cache, slab, objects[from]);

			__builtin_prefetch(&slab->index.narrow[cache->wide ? 2 * i : i], 1);
		}
	}
	return from;
}

/*
 * Stops the program for an object that cannot be freed.  With nothing locked: what the program does when it
 * is aborted may allocate.
 */
static __attribute__((noinline, cold, noreturn)) void
refuse(struct slab_cache *cache, const struct slab *slab, const void *object, struct freeing *freeing)
{
	const char *what = "free of an object that is already free";

	if (slab && slab->cache != cache) {
		what = "free of an object of another cache";
	} else if (slab) {
		unsigned i = slab_index(cache, slab, object);

		if (slab->base + (size_t)i * cache->traits.size != (const char *)object ||
		    i >= cache->objects)
			what = "free of a pointer that is not the start of an object";
		else if (i >= slab->bump)
			what = "free of an object that was never allocated";
	}
	if (freeing->alone)
		end_alone(cache, freeing);
	if (freeing->cache_is_locked)
		cpuslab_spin_unlock(&cache->lock);
	end_unlocked(cache);
	corruption_abort(cache->traits.name, object, what);
}

static void free_objects(struct slab_cache *cache, void *const *objects, unsigned count,
			 struct freeing *freeing)
{
	enum { AHEAD = 8 };
	unsigned slabs = 0, marks = 0, part = 0, marked = 0;

	for (unsigned n = 0; n < count; n += marked) {
		struct slab *slab = slab_of_object(objects[n]);
		unsigned near = n + AHEAD < count ? n + AHEAD : count;
		unsigned far = near + AHEAD < count ? near + AHEAD : count;

		if (n >= part && count >= ALONE_LEAST) {
			begin_part(cache, count - n, freeing);
			part = n + ALONE_MOST;
		}
		/* After several of one slab the next ones are likely to be of it, too. */
		if (marked < AHEAD / 2) {
			slabs = fetch_slabs(objects, slabs > n ? slabs : n + 1, far);
			marks = fetch_marks(cache, objects, marks > n ? marks : n + 1, near);
		}
		if (!slab || slab->cache != cache)
			refuse(cache, slab, objects[n], freeing);
		lock_slab(cache, slab, freeing);
		marked = cache->wide ? mark_free(cache, slab, objects + n, count - n, true)
				     : mark_free(cache, slab, objects + n, count - n, false);
		if (__builtin_expect(!marked, 0)) {
			if (!freeing->alone)
				cpuslab_pagelock_unlock(&slab->lock);
			refuse(cache, slab, objects[n], freeing);
		}
		unlock_slab(cache, freeing);
	}
	if (freeing->alone)
		end_alone(cache, freeing);
}

unsigned slab_free_batch(struct slab_cache *cache, void *const *objects, unsigned count)
{
	struct freeing freeing = {0};

	/* Whoever walks the slots of a debugged cache keeps others out by the cache's lock. */
	if (begin_unlocked(cache) || cache->traits.checks) {
		lock_cache(cache);
		freeing.cache_is_locked = true;
	}
	free_objects(cache, objects, count, &freeing);
	count_allocated(cache, -(uint64_t)count);
	if (freeing.cache_is_locked)
		cpuslab_spin_unlock(&cache->lock);
	unsigned released = release_slabs(cache, freeing.surplus);

	end_unlocked(cache);
	return released;
}

/*
 * Takes the empty slabs out of a cache that keeps them.  One whose last object is just being freed is locked
 * until it is settled, and left alone.  With the lock.
 */
static struct slab *withdraw_empty(struct slab_cache *cache)
{
	struct slab *withdrawn = NULL, *next;

	for (struct slab *slab = cache->partial[0]; slab; slab = next) {
		next = slab->next;
		if (in_use_of(slab) || !try_lock_slab(slab))
			continue;
		leave_bin(cache, slab);
		cache->slabs--;
		cache->freed++;
		slab->next = withdrawn;
		withdrawn = slab;
	}
	return withdrawn;
}

/* Takes up to `most` empty slabs out of the cache, but not the `keep` that became empty first.  With the
 * lock. */
static struct slab *take_empty(struct slab_cache *cache, uint32_t keep, uint32_t most)
{
	struct slab *taken = NULL;

	for (; cache->kept_empty > keep && most > 0; most--) {
		struct slab *slab = cache->empty;

		cache->empty = slab->next;
		cache->kept_empty--;
		cache->slabs--;
		cache->freed++;
		slab->next = taken;
		taken = slab;
	}
	return taken;
}

/* Gives up the lock. */
static unsigned unlock_and_release(struct slab_cache *cache, struct slab *surplus)
{
	begin_unlocked(cache);
	cpuslab_spin_unlock(&cache->lock);
	unsigned released = release_slabs(cache, surplus);

	end_unlocked(cache);
	return released;
}

/* Keeps so many besides one; whether there are more. */
static bool set_spares(struct slab_cache *cache, uint32_t spares)
{
	__atomic_store_n(&cache->spares, spares, __ATOMIC_RELAXED);
	return __atomic_load_n(&cache->kept_empty, __ATOMIC_RELAXED) > spares + 1;
}

/* `most` of those that are more go.  Out of line: few programs come to have any. */
static __attribute__((noinline)) unsigned release_spares(struct slab_cache *cache, uint32_t spares,
							 uint32_t most)
{
	lock_cache(cache);
	return unlock_and_release(cache, take_empty(cache, spares + 1, most));
}

void slab_cache_keep(struct slab_cache *cache, uint32_t spares)
{
	if (set_spares(cache, spares))
		(void)release_spares(cache, spares, UINT32_MAX);
}

uint32_t slab_cache_let_go(struct slab_cache *cache, uint32_t most)
{
	return set_spares(cache, 0) ? release_spares(cache, 0, most) : 0;
}

/* What a constructor has made cannot be purged and found again: such slabs go, and their addresses. */
static __attribute__((noinline)) void shrink_hardened(struct slab_cache *cache)
{
	struct slab *withdrawn = NULL;
	size_t purged = 0;

	lock_cache(cache);
	if (cache->traits.construct && !cache->traits.type_stable)
		withdrawn = withdraw_empty(cache);
	else if (!cache->traits.type_stable)
		purged = purge_empty(cache);
	(void)unlock_and_release(cache, withdrawn);
	if (purged)
		page_count_purged(purged);
}

void slab_cache_shrink(struct slab_cache *cache)
{
	if (cache->traits.hardened) {
		shrink_hardened(cache);
		return;
	}
	lock_cache(cache);
	(void)unlock_and_release(cache, take_empty(cache, 0, UINT32_MAX));
}

/* ---- pages without an object --------------------------------------------------------------------------- */

/*
 * Pages' worth of free objects that nobody has needed since the last look, as far as they may take memory.
 * A glance without the lock: who takes objects at this instant is seen at the next look.
 */
static size_t look_at_need(struct slab_cache *cache)
{
	uint64_t needed = __atomic_load_n(&cache->needed, __ATOMIC_RELAXED);
	uint64_t there = (uint64_t)__atomic_load_n(&cache->slabs, __ATOMIC_RELAXED) * cache->objects;
	size_t hollow = __atomic_load_n(&cache->hollow, __ATOMIC_RELAXED);
	size_t unneeded = there > needed ? (size_t)(there - needed) * cache->traits.size >> PAGE_SHIFT : 0;

	__atomic_store_n(&cache->needed, __atomic_load_n(&cache->allocated, __ATOMIC_RELAXED),
			 __ATOMIC_RELAXED);
	return unneeded > hollow ? unneeded - hollow : 0;
}

/*
 * Whether to walk by age for so many pages' worth.  After such a walk that found little it waits until there
 * is more.  An ebb does not: what was taken and freed since may lie elsewhere, though it is as much.
 */
static bool is_worth_a_walk(struct slab_cache *cache, size_t unneeded)
{
	if (unneeded < cache->barren)
		cache->barren = unneeded;
	return unneeded >= cache->barren + cache->barren / 4 + HOLLOW_LEAST;
}

/*
 * A walk over partial slabs, sparsest first.  It locks some, gives up the cache's lock, and gives back their
 * pages under theirs: nobody takes objects from them meanwhile, and whoever frees into them waits.  The last
 * one stays locked, and so in its bin, until the walk has gone on from it.
 */
struct hollowing {
	unsigned bin;
	size_t wanted, left; /* pages; and what it may cost yet */
	bool refused;        /* by the system */
	bool passes;         /* slabs in which a look found nothing, and that nothing has happened to since */
	unsigned count;
	struct slab *last;
	struct hollow_part {
		struct slab *slab;
		uint32_t pages;
	} parts[32];
};

static struct slab *next_partial(const struct slab_cache *cache, struct hollowing *walk, struct slab *slab)
{
	slab = slab ? slab->next : cache->partial[walk->bin];
	while (!slab && ++walk->bin < SLAB_BINS)
		slab = cache->partial[walk->bin];
	return slab;
}

/* Locks the next slabs with such pages; returns whether there may be more.  With the cache's lock. */
static bool gather(const struct slab_cache *cache, struct hollowing *walk)
{
	enum { MOST = sizeof walk->parts / sizeof *walk->parts };
	struct slab *slab = walk->last;

	/* So that `looked` holds any number in use. */
	assert(cache->pages == 1 || cache->objects <= UINT8_MAX);
	walk->count = 0;
	while (walk->count < MOST && (slab = next_partial(cache, walk, slab))) {
		if ((walk->passes && slab->looked == (uint8_t)in_use_of(slab)) || !try_lock_slab(slab))
			continue;
		uint32_t pages = hollow_pages(cache, slab);

		if (pages) {
			walk->parts[walk->count++] = (struct hollow_part){slab, pages};
		} else {
			slab->looked = (uint8_t)in_use_of(slab);
			cpuslab_pagelock_unlock(&slab->lock);
		}
	}
	if (walk->last)
		cpuslab_pagelock_unlock(&walk->last->lock);
	walk->last = slab;
	return slab;
}

static bool is_over(const struct hollowing *walk)
{
	return !walk->wanted || !walk->left || walk->refused;
}

static size_t less(size_t from, size_t what)
{
	return from > what ? from - what : 0;
}

/* What a row counts as. */
static size_t cost_of(unsigned pages)
{
	unsigned least = os_purges_several() ? SLAB_HOLLOW_PART : SLAB_HOLLOW_RUN;

	return pages > least ? pages : least;
}

/* Gives back rows that together count as no more than is left, or few more. */
static void give_back(struct slab_cache *cache, struct hollowing *walk, const struct hollow_row *rows,
		      unsigned count)
{
	unsigned done = hollow_give_back(cache, rows, count);

	assert(done <= count);
	for (unsigned i = 0; i < done; i++) {
		unsigned pages = (unsigned)__builtin_popcount(rows[i].pages);

		walk->left = less(walk->left, cost_of(pages));
		walk->wanted = less(walk->wanted, pages);
	}
	walk->refused = done < count;
	/* As one call, whatever was asked for: a caller that goes on where it met its bound gets to the end.
	 */
	if (walk->refused)
		walk->left = less(walk->left, SLAB_HOLLOW_RUN);
}

/* Rows of the slabs that are locked, as many as go by one system call. */
static void hollow_parts(struct slab_cache *cache, struct hollowing *walk)
{
	struct hollow_row rows[OS_RANGES];
	size_t pages = 0, cost = 0;
	unsigned count = 0;

	for (unsigned i = 0; i < walk->count && !is_over(walk); i++)
		while (walk->parts[i].pages && !is_over(walk)) {
			rows[count] = (struct hollow_row){walk->parts[i].slab,
							  hollow_first_row(&walk->parts[i].pages)};
			unsigned own = (unsigned)__builtin_popcount(rows[count++].pages);

			pages += own;
			cost += cost_of(own);
			if (count < OS_RANGES && pages < walk->wanted && cost < walk->left)
				continue;
			give_back(cache, walk, rows, count);
			pages = cost = count = 0;
		}
	if (count)
		give_back(cache, walk, rows, count);
}

/* Seldom worth it, and far from the code of each tick. */
static __attribute__((noinline)) void hollow_walk(struct slab_cache *cache, struct hollowing *walk)
{
	bool more = true;

	begin_unlocked(cache);
	while (more && !is_over(walk)) {
		lock_cache(cache);
		more = gather(cache, walk);
		cpuslab_spin_unlock(&cache->lock);
		hollow_parts(cache, walk);
		for (unsigned i = 0; i < walk->count; i++)
			if (walk->parts[i].slab != walk->last)
				cpuslab_pagelock_unlock(&walk->parts[i].slab->lock);
	}
	if (walk->last)
		cpuslab_pagelock_unlock(&walk->last->lock);
	end_unlocked(cache);
}

/*
 * Pages' worth of free objects that are more than those allocated, as far as they may take memory.  Where the
 * allocated ones are so many that they lie in most pages, none: what is freed next makes it more.
 */
static size_t look_at_ebb(const struct slab_cache *cache)
{
	const uint64_t size = cache->traits.size;
	uint64_t allocated = __atomic_load_n(&cache->allocated, __ATOMIC_RELAXED);
	uint64_t there = (uint64_t)__atomic_load_n(&cache->slabs, __ATOMIC_RELAXED) * cache->objects;
	size_t hollow = __atomic_load_n(&cache->hollow, __ATOMIC_RELAXED);

	if (there < 2 * allocated || there * size < allocated * PAGE_BYTES / HOLLOW_SHARING)
		return 0;
	return less((there - 2 * allocated) * size >> PAGE_SHIFT, hollow);
}

size_t slab_hollow(struct slab_cache *cache, enum slab_hollowing which, size_t most)
{
	struct hollowing walk = {.wanted = SIZE_MAX, .left = most, .passes = which == SLAB_HOLLOW_EBB};

	if (!hollow_is_for(cache))
		return 0;
	if (which == SLAB_HOLLOW_EBB) {
		walk.wanted = look_at_ebb(cache);
		if (walk.wanted < HOLLOW_LEAST)
			return 0;
	} else if (which == SLAB_HOLLOW_UNNEEDED) {
		walk.wanted = look_at_need(cache);
		if (!is_worth_a_walk(cache, walk.wanted))
			return 0;
	}
	hollow_walk(cache, &walk);
	/* What it did not find is not there. */
	if (which == SLAB_HOLLOW_UNNEEDED)
		cache->barren = walk.left ? walk.wanted : 0;
	return most - walk.left;
}

/* All slabs of one list.  With the lock, and no object allocated. */
static void collect(struct slab_cache *cache, struct slab *slab, struct slab **surplus)
{
	while (slab) {
		struct slab *next = slab->next;

		assert(slab->in_use == 0);
		cache->slabs--;
		cache->freed++;
		slab->next = *surplus;
		*surplus = slab;
		slab = next;
	}
}

static void free_unused(struct slab_cache *cache)
{
	while (cache->unused) {
		struct slab *slab = cache->unused;

		cache->unused = slab->next;
		metadata_free(slab, descriptor_bytes(cache));
	}
}

uint64_t slab_cache_close(struct slab_cache *cache)
{
	struct slab *surplus = NULL;

	lock_cache(cache);
	uint64_t allocated = cache->allocated;

	if (!allocated) {
		for (unsigned bin = 0; bin <= FULL_BIN; bin++) {
			collect(cache, cache->partial[bin], &surplus);
			cache->partial[bin] = NULL;
		}
		collect(cache, cache->empty, &surplus);
		cache->empty = NULL;
		cache->kept_empty = 0;
	}
	begin_unlocked(cache);
	cpuslab_spin_unlock(&cache->lock);
	release_slabs(cache, surplus);
	end_unlocked(cache);
	if (!allocated)
		free_unused(cache);
	return allocated;
}

void slab_visit_objects(const struct slab_cache *cache, void (*visit)(void *object, void *argument),
			void *argument)
{
	uintptr_t end = page_front.heap_page + page_heap_pages();

	for (uintptr_t page = page_front.heap_page; page < end; page++) {
		char *address = (char *)(page << PAGE_SHIFT);
		const struct slab *slab =
			page_front.map[page] == PAGE_LINKED ? NULL : slab_of_object(address);

		if (!slab || slab->cache != cache || slab->base != address)
			continue;
		for (unsigned i = 0; i < slab->bump; i++)
			if (slab_is_allocated(slab, i, cache->wide))
				visit(address + (size_t)i * cache->traits.size, argument);
	}
}

struct slab_cache *slab_cache_of(const void *address)
{
	const uint32_t *place = &page_front.slab_of[page_of(address)];
	uint32_t reference = __atomic_load_n(place, __ATOMIC_ACQUIRE);
	const struct slab *slab = reference ? metadata_block(reference) : NULL;
	struct slab_cache *cache = slab ? __atomic_load_n(&slab->cache, __ATOMIC_ACQUIRE) : NULL;

	/*
	 * Where the caller holds no object the slab may just have been given back, and its descriptor be
	 * another thing since: then the page leads there no more.  Or it does again, as the descriptor of a
	 * slab that was made there meanwhile: then that has another cache than was read while it was that
	 * thing.
	 */
	return cache && __atomic_load_n(place, __ATOMIC_ACQUIRE) == reference &&
			       __atomic_load_n(&slab->cache, __ATOMIC_RELAXED) == cache
		       ? cache
		       : NULL;
}

void slab_fetch(const void *object)
{
	const char *slab = (const char *)slab_of_object(object);

	if (slab) {
		__builtin_prefetch(slab);
		__builtin_prefetch(slab + METADATA_UNIT);
	}
}

bool slab_is_object(const struct slab_cache *cache, const void *object)
{
	const struct slab *slab = slab_of_object(object);

	if (!slab || slab->cache != cache)
		return false;
	unsigned i = slab_index(cache, slab, object);

	return slab->base + (size_t)i * cache->traits.size == (const char *)object && i < slab->bump &&
	       slab_is_allocated(slab, i, cache->wide);
}

void *slab_object_of(const struct slab_cache *cache, const void *address)
{
	const struct slab *slab = slab_of_object(address);

	if (!slab || slab->cache != cache)
		return NULL;
	/* The reciprocal of slab_index is exact for the starts of objects alone. */
	size_t index = (size_t)((const char *)address - slab->base) / cache->traits.size;
	char *object = slab->base + index * cache->traits.size;

	return slab_is_object(cache, object) ? object : NULL;
}

bool slab_place(const struct slab_cache *cache, const void *address, struct check_place *place)
{
	const struct slab *slab = slab_of_object(address);

	if (!slab || slab->cache != cache)
		return false;
	/* The reciprocal of slab_index is exact for the starts of slots alone. */
	size_t i = (size_t)((const char *)address - slab->base) / cache->traits.size;

	if (i >= cache->objects)
		return false;
	*place = place_of(cache, slab, (unsigned)i);
	return true;
}

static void walk_list(const struct slab_cache *cache, const struct slab *slab,
		      void (*visit)(const struct check_place *place, void *argument), void *argument)
{
	for (; slab; slab = slab->next)
		for (unsigned i = 0; i < cache->objects; i++) {
			struct check_place place = place_of(cache, slab, i);

			visit(&place, argument);
		}
}

void slab_walk(struct slab_cache *cache, void (*visit)(const struct check_place *place, void *argument),
	       void *argument)
{
	lock_cache(cache);
	for (unsigned bin = 0; bin <= FULL_BIN; bin++)
		walk_list(cache, cache->partial[bin], visit, argument);
	walk_list(cache, cache->empty, visit, argument);
	cpuslab_spin_unlock(&cache->lock);
}

/* With the lock. */
static uint64_t count_purged(const struct slab_cache *cache)
{
	uint64_t purged = 0;

	for (const struct slab *slab = cache->partial[0]; slab; slab = slab->next)
		purged += (cpuslab_pagelock_flags(&slab->lock) & PURGED) != 0;
	return purged;
}

void slab_statistics(struct slab_cache *cache, struct slab_statistics *statistics)
{
	cpuslab_spin_lock(&cache->lock);
	adopt_made(cache);
	*statistics = (struct slab_statistics){
		.slabs = cache->slabs,
		.purged = count_purged(cache),
		.kept_empty = cache->kept_empty,
		.hollow = __atomic_load_n(&cache->hollow, __ATOMIC_RELAXED),
		.allocated = __atomic_load_n(&cache->allocated, __ATOMIC_RELAXED),
		.capacity = (uint64_t)cache->slabs * cache->objects,
		.created = cache->created,
		.freed = cache->freed,
		.lock_acquires = cache->lock_acquires,
	};
	cpuslab_spin_unlock(&cache->lock);
}

/*
 * The slab in use that a page belongs to, if it is the cache's; NULL for none.  With the lock: such a slab
 * stays.  But one that is on its way out still has its pages lead to it, and its descriptor may become at any
 * instant that of another, which slab_try_alloc makes without the lock: where that one lies is read last.
 */
static const struct slab *slab_to_watch(const struct slab_cache *cache, const void *address)
{
	const struct slab *slab = slab_of_object(address);

	if (!slab || slab->cache != cache || !__atomic_load_n(&slab->in_use, __ATOMIC_ACQUIRE))
		return NULL;
	return page_of(address) - page_of(slab->base) < cache->pages ? slab : NULL;
}

size_t slab_watch_pages(struct slab_cache *cache, const void *address,
			bool (*watched)(const char *first, unsigned count, bool before))
{
	lock_cache(cache);
	const struct slab *slab = slab_to_watch(cache, address);
	unsigned first = 0;

	if (!slab || slab->base != address) {
		cpuslab_spin_unlock(&cache->lock);
		return 1;
	}
	for (uintptr_t page = page_of(address); page < page_of(address) + cache->pages; page++) {
		size_t end = ((page + 1) << PAGE_SHIFT) - (uintptr_t)address;
		unsigned next = (unsigned)((end + cache->traits.size - 1) / cache->traits.size);
		bool before = page_front.map[page] == PAGE_WATCHED, now;

		if (next > slab->bump)
			next = slab->bump;
		now = first < next &&
		      watched(slab->base + (size_t)first * cache->traits.size, next - first, before);
		first = next;
		if (now != before)
			__atomic_store_n(&page_front.map[page], now ? PAGE_WATCHED : cache->traits.id,
					 __ATOMIC_RELEASE);
	}
	cpuslab_spin_unlock(&cache->lock);
	return cache->pages;
}

void slab_watch_page(struct slab_cache *cache, const void *address)
{
	lock_cache(cache);
	if (slab_to_watch(cache, address))
		__atomic_store_n(&page_front.map[page_of(address)], PAGE_WATCHED, __ATOMIC_RELEASE);
	cpuslab_spin_unlock(&cache->lock);
}

void slab_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("slab", 0, sizeof(struct slab));
	show("slab.base", offsetof(struct slab, base), sizeof(char *));
	show("slab.in_use", offsetof(struct slab, in_use), sizeof(uint16_t));
	show("slab.bump", offsetof(struct slab, bump), sizeof(uint16_t));
	show("slab.lock", offsetof(struct slab, lock), sizeof(struct cpuslab_pagelock));
	show("slab.cache", offsetof(struct slab, cache), sizeof(struct slab_cache *));
}

/* ---- fork ---------------------------------------------------------------------------------------------- */

bool slab_repair_begin(struct slab_cache *cache, bool all)
{
	bool broken = cpuslab_spin_is_locked(&cache->lock) || cache->unlocked || all;

	/* Most are whole; their pages stay shared with the parent. */
	if (cache->under_repair != broken)
		cache->under_repair = broken;
	if (!broken)
		return false;
	cache->unlocked = 0;
	cpuslab_spin_reset(&cache->lock);
	memset(cache->partial, 0, sizeof cache->partial);
	cache->empty = NULL;
	cache->slabs = cache->full_slabs = cache->kept_empty = 0;
	cache->allocated = cache->needed = 0;
	page_count_hollow(-(long)__atomic_exchange_n(&cache->hollow, 0, __ATOMIC_RELEASE));
	return true;
}

static void enlist(struct slab_cache *cache, struct slab *slab, unsigned bin)
{
	enter_bin(cache, slab, bin);
	cpuslab_pagelock_set_flags(&slab->lock, LISTED);
}

static void count_full(struct slab_cache *cache, struct slab *slab)
{
	cache->full_slabs++;
	if (cache->traits.checks)
		enlist(cache, slab, FULL_BIN);
}

static bool waits_in_made(const struct slab_cache *cache, const struct slab *slab)
{
	const struct slab *other = cache->made;

	while (other && other != slab)
		other = other->next;
	return other;
}

/*
 * Whether no object of a slab was ever handed out: a bump tells, though all may have come back by now.  A
 * hardened one's objects are all below it from the first on; of these one must be out.
 */
static bool is_untaken(const struct slab_cache *cache, const struct slab *slab)
{
	unsigned i = 0;

	while (cache->traits.hardened && i < slab->bump && !slab_is_allocated(slab, i, cache->wide))
		i++;
	return i == slab->bump;
}

/* Makes lock, list, counts and bin of one slab anew from its marks. */
static void repair_slab(struct slab_cache *cache, struct slab *slab)
{
	uint8_t flags = cpuslab_pagelock_flags(&slab->lock) & (MAKING | PURGED | ENDED);

	if (flags & MAKING && !waits_in_made(cache, slab)) {
		/* Its maker may be this very thread, forked in a constructor: it goes on, and adds it. */
		if (is_untaken(cache, slab))
			return;
		/* Whoever was taking it over (adopt_made), or about to leave it there, is gone. */
		flags &= (uint8_t)~MAKING;
	}
	cpuslab_pagelock_init(&slab->lock, flags);
	slab->head = NO_INDEX;
	slab->in_use = 0;
	slab->looked = 0;
	for (unsigned i = slab->bump; i-- > 0;) {
		if (slab_is_allocated(slab, i, cache->wide))
			slab->in_use++;
		else
			link_free(slab, i, cache->wide);
	}
	cache->allocated += slab->in_use;
	hollow_repair(cache, slab);
	if (flags & MAKING)
		return;
	cache->slabs++;
	if (slab->in_use <
	    cache->objects) /* an empty one goes to the sparsest bin, and leaves it the usual way */
		enlist(cache, slab, slab->in_use * SLAB_BINS / cache->objects);
	else
		count_full(cache, slab);
}

/* Whether the first page of a slab says the same as another page of it; any of them may be watched. */
static bool has_its_base(const struct slab *slab, uint16_t id)
{
	uint16_t base = page_front.map[page_of(slab->base)];

	return base == id || base == PAGE_WATCHED || (id == PAGE_WATCHED && base == slab->cache->traits.id);
}

/*
 * A page of a slab that was being made or given back is free.  But of a slab that was being retired, which
 * begins with its first page, some pages may be without access: all of them are retired.
 */
static void end_orphan(uintptr_t page, const struct slab *slab)
{
	if (slab && page_front.map[page_of(slab->base)] == PAGE_RETIRED) {
		page_front.map[page] = PAGE_RETIRED;
		return;
	}
	page_front.slab_of[page] = 0;
	page_front.map[page] = PAGE_FREE;
}

bool slab_repair_pages(struct slab_cache *(*cache_of_id)(uint16_t id))
{
	uintptr_t end = page_front.heap_page + page_heap_pages();
	bool orphans = false;

	for (uintptr_t page = page_front.heap_page; page < end; page++) {
		const char *address = (const char *)(page << PAGE_SHIFT);
		uint16_t id = page_front.map[page];

		if (id != PAGE_SLAB && id != PAGE_WATCHED && id < PAGE_ID_RESERVED)
			continue;
		struct slab *slab = slab_of_object(address);
		struct slab_cache *cache = id >= PAGE_ID_RESERVED ? cache_of_id(id)
					   : slab                 ? slab->cache
								  : NULL;

		/* A slab that was being made or given back: nobody is left to finish it. */
		if (!slab || !has_its_base(slab, id)) {
			if (id < PAGE_ID_RESERVED || (cache && cache->under_repair)) {
				end_orphan(page, slab);
				orphans = true;
			}
		} else if (cache && cache->under_repair && slab->base == address) {
			repair_slab(cache, slab);
		}
	}
	return orphans;
}
