/* SPDX-License-Identifier: MIT */
#include "slab/slab.h"

#include <assert.h>
#include <string.h>

#include "arch/minmax.h"
#include "arch/probe.h"
#include "check/corruption.h"
#include "guard/guard.h"
#include "os/os.h"
#include "page/page.h"
#include "slab/geometry.h"
#include "slab/hollow.h"
#include "slab/state.h"
#include "vcpu/vcpu.h"

enum { DESCRIPTOR_MOST = 4096, IN_NO_BIN = SLAB_FULL_BIN + 1 };

/* ---- geometry ------------------------------------------------------------------------------------------ */

/* Caps the objects so that a descriptor with their records is a block of metadata that can be used again. */
static void limit_to_records(const struct slab_cache *cache, struct geometry *geometry)
{
	uint32_t most = (DESCRIPTOR_MOST - offsetof(struct slab, index) - sizeof(uint64_t)) /
			(geometry->index_bytes + cache->traits.checks->record_bytes);

	if (geometry->objects <= most)
		return;
	geometry->objects = most;
	geometry->bytes = geometry_stride(most * cache->traits.size, PAGE_BYTES);
}

/*
 * A hardened slab is followed by a page without access, which takes an entry in page tables, that a fork
 * copies, and a page in dumps.  So it has 8 pages where one-byte indexes suffice: beside the usual two or
 * three of small objects, the 2 million of 112 bytes in a dump of 400 MiB took 313, and 4 % less memory.
 */
static void enlarge(uint32_t size, struct geometry *geometry)
{
	enum { PAGES = 8, PARTS = 32 /* left over, at most */ };

	while (geometry->bytes < PAGES * PAGE_BYTES && geometry->index_bytes == 1) {
		uint32_t bytes = geometry->bytes + PAGE_BYTES;
		uint32_t objects = min_t(uint32_t, bytes / size, UINT8_MAX);

		if ((bytes - objects * size) * PARTS > bytes)
			break;
		geometry->bytes = bytes;
		geometry->objects = objects;
	}
}

static void choose_geometry(struct slab_cache *cache)
{
	uint32_t size = cache->traits.size;
	struct geometry geometry = geometry_runs(PAGE_BYTES, size);

	if (cache->traits.checks)
		limit_to_records(cache, &geometry);
	if (cache->traits.hardened)
		enlarge(size, &geometry);
	cache->pages = (uint16_t)(geometry.bytes / PAGE_BYTES + cache->traits.hardened);
	cache->objects = (uint16_t)geometry.objects;
	cache->wide = geometry.index_bytes > 1;
	cache->reciprocal = (uint32_t)(((1ull << 32) + size - 1) / size);
	/* Rounded up, so that full bins come out exact; the error is too small to matter. */
	cache->bin_scale = ((uint64_t)SLAB_BINS << 32) / cache->objects + 1;
}

static size_t descriptor_bytes(const struct slab_cache *cache)
{
	const struct checks *checks = cache->traits.checks;

	if (checks)
		return slab_records_start(cache) + (size_t)checks->record_bytes * cache->objects;
	if (cache->traits.hardened && cache->traits.size > SLAB_MARKED_BY_ADDRESS)
		return slab_index_end(cache) + 1 + cache->objects * sizeof(uint16_t);
	return slab_index_end(cache);
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

	return next == i ? SLAB_NO_INDEX : next;
}

/* ---- lists: with the cache's lock ------------------------------------------------------------------ */

static bool is_listed(const struct slab *slab)
{
	return cpuslab_pagelock_flags(&slab->lock) & SLAB_LISTED;
}

/* With the slab's lock. */
static void set_in_use(struct slab *slab, unsigned in_use)
{
	__atomic_store_n(&slab->in_use, (uint16_t)in_use, __ATOMIC_RELAXED);
}

/* Whether slabs stay the cache's for good, so that nothing else ever gets their addresses. */
static bool keeps_slabs(const struct slab_cache *cache)
{
	return cache->traits.type_stable || cache->traits.hardened;
}

/* The bin of a slab with `in_use` allocated objects, or IN_NO_BIN. */
static unsigned bin_for(const struct slab_cache *cache, unsigned in_use)
{
	bool in_none = in_use == cache->objects ? !cache->traits.checks : in_use == 0 && !keeps_slabs(cache);

	return in_none ? IN_NO_BIN : (unsigned)(in_use * cache->bin_scale >> 32);
}

/* Whether a slab is in the right bin.  The slab's lock is enough. */
static bool is_settled(const struct slab_cache *cache, const struct slab *slab)
{
	return bin_for(cache, slab->in_use) ==
	       (is_listed(slab) ? __atomic_load_n(&slab->bin, __ATOMIC_RELAXED) : (unsigned)IN_NO_BIN);
}

/* Moves a slab whose in_use has changed to the right bin.  Returns the flags that the caller must flip. */
static uint8_t settle(struct slab_cache *cache, struct slab *slab)
{
	unsigned bin = bin_for(cache, slab_in_use(slab));
	bool was_listed = is_listed(slab);

	if (was_listed && bin == slab->bin)
		return 0;
	if (was_listed)
		slab_leave_bin(cache, slab);
	if (bin != IN_NO_BIN)
		slab_enter_bin(cache, slab, bin);
	return was_listed == (bin != IN_NO_BIN) ? 0 : SLAB_LISTED;
}

bool slab_try_lock(struct slab *slab)
{
	return cpuslab_pagelock_trylock_expecting(&slab->lock, cpuslab_pagelock_flags(&slab->lock));
}

/* A taker is a vCPU, by its id, or ANYONE, whom every slab serves. */
enum { ANYONE = -1, FOREIGN_MOST = 64, NO_HOME = UINT16_MAX };

static int vcpu_here(const struct slab_cache *cache)
{
	unsigned here = (uint16_t)arch_id(vcpu_self);

	/* Threads that have slots share homes, as many as there are CPUs: each has its objects all over a
	 * slab. */
	return (int)(cache->traits.hardened ? here % slab_homes() : here);
}

/*
 * Whether a slab has untouched objects and is another vCPU's.  With the cache's lock.
 *
 * A hardened slab hands objects out in random order, so it counts as untouched until all of them have been
 * out once.  Otherwise two vCPUs would have objects whose marks share cache lines, and each allocation and
 * free writes a mark.
 */
static bool is_foreign(const struct slab_cache *cache, const struct slab *slab, int taker)
{
	if (taker == ANYONE || slab->home == taker || slab->home == NO_HOME)
		return false;
	return cache->traits.hardened || __atomic_load_n(&slab->bump, __ATOMIC_RELAXED) < cache->objects;
}

/*
 * Locks a slab that has a free object for this taker; NULL for none.  Skips slabs whose lock another thread
 * holds: it must not wait for one with the cache's lock held, and others do as well.  After FOREIGN_MOST
 * slabs of other vCPUs, whose scan takes time, it takes the next one.
 */
static struct slab *lock_slab_with_free_object(struct slab_cache *cache, int taker)
{
	unsigned foreign = 0;

	for (int bin = SLAB_BINS - 1; bin >= 0; bin--)
		for (struct slab *slab = cache->partial[bin]; slab; slab = slab->next) {
			if (is_foreign(cache, slab, taker) && foreign++ < FOREIGN_MOST)
				continue;
			if (slab_try_lock(slab))
				return slab;
		}
	struct slab *slab = cache->empty;

	if (!slab || !slab_try_lock(slab))
		return NULL;
	cache->empty = slab->next;
	cache->kept_empty--;
	slab->home = (uint16_t)vcpu_here(cache);
	return slab;
}

/* ---- slabs --------------------------------------------------------------------------------------------- */

void slab_adopt_made(struct slab_cache *cache)
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
		 * Its object may be in the middle of being freed.  Whether settle() sees in_use before or
		 * after that, the freeing thread finds the slab in the wrong bin, or empty, and waits for
		 * this lock.
		 */
		cpuslab_pagelock_flip_flags(&slab->lock, settle(cache, slab) | SLAB_MAKING);
		slab = next;
	}
}

static bool try_lock_cache(struct slab_cache *cache)
{
	if (!cpuslab_spin_trylock(&cache->lock))
		return false;
	cache->lock_acquires++;
	slab_adopt_made(cache);
	return true;
}

/* ---- slabs that come and go ---------------------------------------------------------------------------- */

/* Marks the chosen ones of a new slab's pages, so that frees into them are seen. */
static void watch_chosen(const struct slab_cache *cache, const char *base)
{
	uintptr_t end = page_of(base) + cache->pages;

	for (uintptr_t page = guard_chosen_from(page_of(base)); page < end; page += guard.spread)
		__atomic_store_n(&page_entries[page], PAGE_WATCHED, __ATOMIC_RELEASE);
}

/* Whether the program touches each page of the cache's slabs: it writes to every object, but not all of each.
 */
static bool is_touched(const struct slab_cache *cache)
{
	return cache->traits.size <= PAGE_BYTES;
}

/* Lays out a slab that only the page room knows of yet, in memory that was just allocated. */
static struct slab *lay_out(struct slab_cache *cache, struct slab *slab, char *base, uint8_t flags,
			    bool zeroed)
{
	*slab = (struct slab){.base = base,
			      .head = SLAB_NO_INDEX,
			      .cache = cache,
			      .home = (uint16_t)vcpu_here(cache),
			      .clean_tail = zeroed};
	cpuslab_pagelock_init(&slab->lock, flags);
	if (cache->traits.hardened)
		slab_harden(cache, slab, zeroed);
	/*
	 * The descriptor is complete before anyone, a repair included, can find it.  A repair trusts a slab
	 * whose first page refers to it, so that page is set last here, and cleared first in slab_release.
	 */
	for (uintptr_t page = page_of(base) + cache->pages; page-- > page_of(base);)
		__atomic_store_n(&page_front.slab_of[page], metadata_reference(slab), __ATOMIC_RELEASE);
	if (cache->traits.hardened)
		slab_forbid(cache, slab);
	if (is_touched(cache))
		page_count_touched(cache->pages);
	if (guard_is_on() && cache->traits.guarded && guard_goes_on())
		watch_chosen(cache, base);
	return slab;
}

/*
 * Most programs have a few objects in each of many sizes.  The first slab of such a size should not lie on
 * resident pages, since most of them would never be touched.  Small slabs have few pages, those of one to
 * three objects are mostly used whole, and constructors touch everything.
 */
static bool is_sparse(const struct slab_cache *cache)
{
	enum { PAGES_LEAST = 10, OBJECTS_LEAST = 4 };
	const struct slab_traits *traits = &cache->traits;

	return !cache->slabs && cache->pages >= PAGES_LEAST && cache->objects >= OBJECTS_LEAST &&
	       traits->alignment <= 1 && !traits->construct && !traits->checks;
}

static struct slab *make_slab(struct slab_cache *cache, uint8_t flags)
{
	const struct slab_traits *traits = &cache->traits;
	struct slab *slab = metadata_alloc(descriptor_bytes(cache));

	if (!slab)
		return NULL;
	bool zeroed;
	char *base = is_sparse(cache) ? page_alloc_sparse(cache->pages, traits->id, &zeroed)
				      : page_alloc(cache->pages, traits->alignment ? traits->alignment : 1,
						   traits->id, &zeroed);

	if (!base) {
		metadata_free(slab, descriptor_bytes(cache));
		return NULL;
	}
	return lay_out(cache, slab, base, flags, zeroed);
}

/* Undoes check_prepare for each slot; constructors have no counterpart. */
static void unprepare(const struct slab_cache *cache, const struct slab *slab)
{
	for (unsigned i = 0; i < cache->objects; i++)
		check_release(cache->traits.checks, slab_place_of(cache, slab, i).slot);
}

static void construct(const struct slab_cache *cache, const struct slab *slab)
{
	for (unsigned i = 0; i < cache->objects; i++) {
		if (cache->traits.checks) {
			struct check_place place = slab_place_of(cache, slab, i);

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

/* Makes a slab and constructs its objects.  Gives up the lock meanwhile: a constructor may do anything. */
static struct slab *make_constructed_slab(struct slab_cache *cache)
{
	cpuslab_spin_unlock(&cache->lock);
	struct slab *slab = make_slab(cache, SLAB_MAKING);

	if (slab)
		construct(cache, slab);
	slab_lock_cache(cache);
	if (slab)
		cpuslab_pagelock_clear_flags(&slab->lock, SLAB_MAKING);
	return slab;
}

/* Creates a slab, and locks it. */
static struct slab *create_slab(struct slab_cache *cache)
{
	struct slab *slab = has_constructor(cache) ? make_constructed_slab(cache) : make_slab(cache, 0);

	if (slab) {
		cpuslab_pagelock_lock(&slab->lock); /* no other thread knows it */
		cache->slabs++;
		cache->created++;
		ARCH_PROBE("slab_new", (uintptr_t)cache->traits.name, cache->slabs);
	}
	return slab;
}

unsigned slab_release(const struct slab_cache *cache, struct slab *slab)
{
	unsigned released = 0;

	for (; slab; released++) {
		struct slab *next = slab->next;
		char *base = slab->base;

		ARCH_PROBE("slab_free", (uintptr_t)cache->traits.name, (uintptr_t)base);
		if (cache->traits.checks)
			unprepare(cache, slab);
		hollow_forget(slab);
		if (is_touched(cache))
			page_count_touched(-(long)cache->pages);
		if (cpuslab_pagelock_flags(&slab->lock) & SLAB_PURGED)
			slab_not_purged(cache);
		if (cpuslab_pagelock_flags(&slab->lock) & SLAB_ENDED)
			page_count_hollow(-1);
		/* First, so that no forked child takes pages without access for free ones. */
		if (cache->traits.hardened)
			page_retire(base, cache->pages, cpuslab_pagelock_flags(&slab->lock) & SLAB_ENDED);
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

/* Raises the peak of allocated objects.  With the lock; a concurrent look_at_need() may miss this peak. */
static void note_need(struct slab_cache *cache, uint64_t allocated)
{
	if (allocated > __atomic_load_n(&cache->needed, __ATOMIC_RELAXED))
		__atomic_store_n(&cache->needed, allocated, __ATOMIC_RELAXED);
}

/* Takes up to `count` objects of a locked slab, filling downwards from `end`. */
static inline unsigned take(struct slab_cache *cache, struct slab *slab, void **end, unsigned count,
			    bool wide)
{
	const size_t size = cache->traits.size;
	char *base = slab->base;
	/* Copied to registers: stores to the indexes may alias these fields. */
	unsigned taken = 0, head = slab->head, bump = slab->bump;

	slab->looked = 0;
	for (; taken < count && head != SLAB_NO_INDEX; taken++) {
		unsigned i = head;

		head = next_of(slab, i, wide);
		slab_set_index(slab, i, wide ? SLAB_ALLOCATED_WIDE : SLAB_ALLOCATED_NARROW, wide);
		*--end = base + i * size;
	}
	slab->head = (uint16_t)head;

	unsigned fresh = cache->objects - bump;

	if (fresh > count - taken)
		fresh = count - taken;
	for (unsigned i = bump; i < bump + fresh; i++) {
		slab_set_index(slab, i, wide ? SLAB_ALLOCATED_WIDE : SLAB_ALLOCATED_NARROW, wide);
		*--end = base + i * size;
	}
	/* After the indexes that it makes valid: a repair must not read those that were never written. */
	__atomic_store_n(&slab->bump, (uint16_t)(bump + fresh), __ATOMIC_RELEASE);
	taken += fresh;
	set_in_use(slab, slab->in_use + taken);
	return taken;
}

/* As take(), then unlocks the slab.  With the cache's lock. */
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
	uint8_t purged = cpuslab_pagelock_flags(&slab->lock) & SLAB_PURGED;

	if (purged) {
		slab_not_purged(cache);
		page_contain(slab->base, cache->pages);
	}
	cpuslab_pagelock_unlock_flip(&slab->lock, settle(cache, slab) | purged);
	return taken;
}

unsigned slab_alloc_batch(struct slab_cache *cache, void **objects, unsigned count)
{
	unsigned taken = 0;
	int here = vcpu_here(cache);

	slab_lock_cache(cache);
	while (taken < count) {
		struct slab *slab = lock_slab_with_free_object(cache, here);

		if (!slab) {
			/* Returns what it has rather than run constructors. */
			if (taken && has_constructor(cache))
				break;
			slab = create_slab(cache);
		}
		/* When the system has no more memory, another vCPU's slab will do. */
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

/* Pushes onto a stack without the lock.  There is no ABA, since stacks are only ever detached whole. */
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

/* Makes a slab of the caller's own, and constructs its objects. */
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
		/* Freeing the descriptor might wait. */
		push_made(&cache->unused, slab);
		return NULL;
	}
	lay_out(cache, slab, base, SLAB_MAKING, zeroed);
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
		/* While another thread holds the lock for long, one surplus slab is enough. */
		return NULL;
	}
	if (object)
		return object;
	struct slab *slab = try_make_slab(cache);

	if (!slab)
		return NULL;
	/* Nobody else knows the slab.  But once the caller has the object any thread may free it, and by then
	 * the slab must be on the stack. */
	slab_begin_unlocked(cache);
	object = take_one(cache, slab);
	count_allocated(cache, 1);
	push_made(&cache->made, slab);
	slab_end_unlocked(cache);
	return object;
}

/*
 * Marks objects[0], which lies in this slab, and those that follow it free, up to the first that lies
 * elsewhere or is not allocated; returns how many.  With the slab's lock, or alone.
 */
static inline unsigned mark_free(const struct slab_cache *cache, struct slab *slab, void *const *objects,
				 unsigned count, bool wide)
{
	const uintptr_t base = (uintptr_t)slab->base;
	const uint32_t size = cache->traits.size, reciprocal = cache->reciprocal;
	const unsigned bump = slab->bump;
	/* The last object of a list is its own next: the first of these, if the list is empty. */
	size_t head = slab->head == SLAB_NO_INDEX ? slab_index(cache, slab, *objects) : slab->head;
	void *const *next = objects, *const *end = objects + count;

	for (; next < end; next++) {
		/* An address outside this slab is not the start of one of its objects either. */
		uintptr_t offset = (uintptr_t)*next - base, i = offset * reciprocal >> 32;

		if (__builtin_expect(i * size != offset || i >= bump, 0) ||
		    __builtin_expect(!slab_is_allocated(slab, i, wide), 0))
			break;
		slab_set_index(slab, i, head, wide);
		head = i;
	}

	unsigned n = (unsigned)(next - objects);

	if (n)
		slab->head = (uint16_t)head;
	set_in_use(slab, slab->in_use - n);
	return n;
}

/* Whether an empty slab may be kept: one is, unless it would be a single object. */
static bool keeps_another(const struct slab_cache *cache)
{
	return !cache->empty && cache->objects > 1;
}

/* Keeps a slab that became empty and has left its bin, or adds it to the surplus. */
static void leave(struct slab_cache *cache, struct slab *slab, struct slab **surplus)
{
	if (keeps_another(cache)) {
		/* Hands objects out from its lowest address again. */
		slab->bump = 0;
		slab->head = SLAB_NO_INDEX;
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

/* A call that frees objects: the slab that it works on, slabs to give back, and what it has locked. */
struct freeing {
	struct slab *slab, *surplus;
	bool was_full, cache_is_locked;
	bool alone; /* all slabs are this thread's, with the cache's lock (SLAB_ALONE); none is locked */
};

/* Of a batch: fewer are not worth being alone for; after more the others have waited long enough. */
enum { ALONE_LEAST = 8, ALONE_MOST = 128 };

/*
 * Tries to get all slabs for this thread, with the cache's lock: locking each would cost more than all the
 * rest.  A thread that locks slabs without the cache's lock is counted in `unlocked` before it looks for
 * SLAB_ALONE.  So either it is seen here, or it sees SLAB_ALONE and waits for the cache's lock.  This
 * function waits for nobody: a thread that is counted may be waiting for the lock that was just taken here.
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

/* Lets other threads in, and tries to be alone for the next part of `count` objects. */
static __attribute__((noinline)) void begin_part(struct slab_cache *cache, unsigned count,
						 struct freeing *freeing)
{
	if (freeing->alone)
		end_alone(cache, freeing);
	freeing->alone = count >= ALONE_LEAST && !cache->traits.checks && begin_alone(cache, freeing);
}

/*
 * Locks a slab, one at a time.  A slab's lock comes before its cache's, so with the cache's lock held it is
 * only tried: its holder may be waiting for that lock.
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
 * Unlocks a slab after frees.  Most frees leave it in its bin, and then the cache's lock is not needed.  An
 * empty slab is always settled before its own lock is released.  So a slab with an allocated object stays,
 * and the thread that frees the object can lock it.
 */
static void unlock_slab(struct slab_cache *cache, struct freeing *freeing)
{
	struct slab *slab = freeing->slab;
	uint8_t changed = 0;

	if (!slab->in_use || !is_settled(cache, slab)) {
		if (!freeing->cache_is_locked)
			slab_lock_cache(cache);
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

/* Prefetches the slabs of objects from `from` up to `end`; returns where to go on. */
static unsigned fetch_slabs(void *const *objects, unsigned from, unsigned end)
{
	for (; from < end; from++)
		__builtin_prefetch(slab_of_object(objects[from]), 1);
	return from;
}

/* The same for the indexes of objects whose slabs were prefetched before. */
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
 * Aborts the program for an object that cannot be freed.  Unlocks everything first: its handler for SIGABRT
 * may allocate.
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
	slab_end_unlocked(cache);
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
		/* After several of one slab the next are likely to be of it, too. */
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

	/* slab_walk keeps other threads off a debugged cache by the cache's lock. */
	if (slab_begin_unlocked(cache) || cache->traits.checks) {
		slab_lock_cache(cache);
		freeing.cache_is_locked = true;
	}
	free_objects(cache, objects, count, &freeing);
	count_allocated(cache, -(uint64_t)count);
	if (freeing.cache_is_locked)
		cpuslab_spin_unlock(&cache->lock);
	unsigned released = slab_release(cache, freeing.surplus);

	slab_end_unlocked(cache);
	return released;
}

/* Removes the empty slabs from the cache.  With the lock. */
static struct slab *take_empty(struct slab_cache *cache)
{
	struct slab *taken = NULL;

	while (cache->empty) {
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

void slab_cache_shrink(struct slab_cache *cache)
{
	if (cache->traits.hardened) {
		slab_shrink_hardened(cache);
		return;
	}
	slab_lock_cache(cache);
	(void)slab_unlock_and_release(cache, take_empty(cache));
}

/* Moves all slabs of a list to the surplus.  With the lock, and no object allocated. */
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

	slab_lock_cache(cache);
	uint64_t allocated = cache->allocated;

	if (!allocated) {
		for (unsigned bin = 0; bin <= SLAB_FULL_BIN; bin++) {
			collect(cache, cache->partial[bin], &surplus);
			cache->partial[bin] = NULL;
		}
		collect(cache, cache->empty, &surplus);
		cache->empty = NULL;
		cache->kept_empty = 0;
	}
	slab_begin_unlocked(cache);
	cpuslab_spin_unlock(&cache->lock);
	slab_release(cache, surplus);
	slab_end_unlocked(cache);
	if (!allocated)
		free_unused(cache);
	return allocated;
}
