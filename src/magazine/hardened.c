/* SPDX-License-Identifier: MIT */
#include "magazine/hardened.h"

#include "check/corruption.h"
#include "guard/guard.h"
#include "magazine/wipe.h"
#include "os/os.h"
#include "slab/descriptor.h"

ARCH_SPARSE struct hardened hardened_by_id[VCPU_AREA_BYTES / 8];
uint64_t hardened_secret[2];

void hardened_init(void)
{
	blank_init();
	hardened_secret[0] = os_random();
	hardened_secret[1] = os_random() | 1;
}

static uint32_t bytes_of(const struct cache *cache)
{
	return cache->depot.slabs.traits.size;
}

void hardened_enter(const struct cache *cache)
{
	if (bytes_of(cache) > HARDENED_ROW)
		return;
	hardened_by_id[cache->id / 8] = (struct hardened){
		.bytes = bytes_of(cache),
		.word = cache->offset,
		.returns = cache->returns,
	};
}

/* NULL where no object starts, if the cache's objects are larger than HARDENED_ROW. */
static uint16_t *mark_of(const struct cache *cache, const void *object)
{
	return slab_mark(&cache->depot.slabs, object);
}

static bool is_untouchable(const struct cache *cache)
{
	return cache->depot.slabs.traits.untouchable;
}

/* ---- what is wrong ------------------------------------------------------------------------------------- */

static _Noreturn void stop(const void *object, const char *what)
{
	const struct cache *cache = magazine_cache(object);

	corruption_abort(cache ? cache->depot.slabs.traits.name : NULL, object, what);
}

__attribute__((noinline, cold)) _Noreturn void hardened_stop_alloc(const void *object)
{
	stop(object, *mark_of(magazine_cache(object), object) <= SLAB_FREE_MOST
			     ? "object was written to while it was free"
			     : "free list leads to an object that is allocated");
}

__attribute__((noinline, cold)) _Noreturn void hardened_stop_free(const void *object, unsigned slack,
								  size_t stated)
{
	const struct cache *cache = magazine_cache(object);
	size_t requested = bytes_of(cache) - slack;

	if (slab_object_of(&cache->depot.slabs, object) != object)
		stop(object, "free of a pointer that is not the start of an object");
	if (slack < HARDENED_CANARY)
		stop(object, "free of an object that is already free");
	if (stated != SIZE_MAX && stated != requested)
		stop(object, "free with a size that is not the object's");
	stop(object, "object was written to behind its end, or the next one before its start");
}

/* ---- misses -------------------------------------------------------------------------------------------- */

/* Hands out an object that keeps its content, and its canary, too, once it has been out. */
static void *hand_out_kept(const struct cache *cache, void *object, size_t requested)
{
	uint16_t *mark = mark_of(cache, object), was = __atomic_load_n(mark, __ATOMIC_RELAXED);
	uint32_t bytes = bytes_of(cache), slack = (uint32_t)(bytes - requested);

	if (was > SLAB_FREE_MOST || (was == SLAB_BACK && !hardened_is_sound(object, bytes, slack)))
		hardened_stop_alloc(object);
	return hardened_give(mark, bytes, object, requested);
}

/*
 * The same for one that was zeroed.  The first time, pages are not looked at, since each that was never
 * written to would cost a fault.
 */
static void *hand_out_blank(const struct cache *cache, void *object, size_t requested)
{
	uint32_t bytes = bytes_of(cache);
	uint16_t *mark = mark_of(cache, object), was = __atomic_load_n(mark, __ATOMIC_RELAXED);
	bool fresh = was == SLAB_NEVER_OUT && bytes > PAGE_BYTES;

	if (was > SLAB_FREE_MOST || !(fresh || wipe_left_blank(object, bytes)))
		hardened_stop_alloc(object);
	wipe_note_out(was, bytes);
	return hardened_give(mark, bytes, object, requested);
}

/* What the magazine room allocates may be a guarded object instead. */
static void *hand_out(const struct cache *cache, void *object, size_t requested)
{
	if (!object || guard_contains(object))
		return object;
	return slab_keeps_content(&cache->depot.slabs.traits) ? hand_out_kept(cache, object, requested)
							      : hand_out_blank(cache, object, requested);
}

void *hardened_alloc_any(struct cache *cache, struct request request)
{
	void *object = magazine_alloc_at(cache->map, &cache->offset);

	return hand_out(cache, object ? object : magazine_alloc_requested(cache, request), request.bytes);
}

void *hardened_try_alloc(struct cache *cache, size_t requested)
{
	void *object = magazine_alloc_at(cache->map, &cache->offset);

	return hand_out(cache, object ? object : magazine_try_alloc_missed(cache), requested);
}

/* 64 bits of a pseudorandom sequence (wyrand) that cannot be told without knowing its start. */
static uint64_t next_random(uint64_t *state)
{
	*state += 0x2d358dccaa6c78a5u;
	unsigned __int128 product = (unsigned __int128)*state * (*state ^ 0x8bb84b93962eacc9u);

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline void change_places(void **one, void **other)
{
	void *object = *one;

	*one = *other;
	*other = object;
}

void hardened_shuffle(struct magazine *magazine)
{
	static __thread uint64_t state;
	uint64_t random = state;
	size_t left = magazine->count;
	void **slot = &magazine->slot[1];

	if (magazine->marks)
		return;
	if (!random)
		random = os_random();
	/*
	 * A shuffle from the top: the top-most object of those left changes places with any of them, by 16
	 * random bits.  Eight at a time, since every object that is allocated and freed comes by here.
	 */
	for (; left > ARCH_LANES; left -= ARCH_LANES) {
		arch_lanes other = arch_below(next_random(&random), next_random(&random), left);
		void **top = &slot[left - 1];

#pragma GCC unroll 8
		for (int i = 0; i < ARCH_LANES; i++)
			change_places(top - i, &slot[other[i]]);
	}
	arch_lanes other = arch_below(next_random(&random), next_random(&random), left);

	for (size_t i = 0; i + 1 < left; i++)
		change_places(&slot[left - 1 - i], &slot[other[i]]);
	state = random;
}

__attribute__((noinline)) void hardened_return_missed(void *object)
{
	magazine_return_missed(magazine_cache(object), object);
}

/* An untouchable object has neither canary nor zeroes, only its mark. */
void *hardened_alloc_untouchable(struct cache *cache)
{
	void *object = magazine_alloc_at(cache->map, &cache->offset);

	if (!object)
		object = magazine_alloc_missed(cache);
	if (!object || guard_contains(object))
		return object;
	uint16_t *mark = mark_of(cache, object);

	if (*mark > SLAB_FREE_MOST)
		hardened_stop_alloc(object);
	__atomic_store_n(mark, (uint16_t)bytes_of(cache), __ATOMIC_RELAXED);
	return object;
}

static void take_back(const struct cache *cache, void *object, size_t stated)
{
	uint16_t *mark = mark_of(cache, object);
	unsigned slack = mark ? hardened_exchange_mark(mark) : SLAB_NEVER_OUT;

	if (is_untouchable(cache)) {
		if (slack <= SLAB_FREE_MOST || (uintptr_t)object % PAGE_MARK_UNIT ||
		    (stated && stated != SIZE_MAX))
			hardened_stop_free(object, slack, stated);
	} else if (slab_keeps_content(&cache->depot.slabs.traits)) {
		hardened_check_free(bytes_of(cache), object, slack, stated);
	} else {
		hardened_check_free(bytes_of(cache), object, slack, stated);
		wipe(object, mark, bytes_of(cache), bytes_of(cache) - slack + HARDENED_CANARY);
	}
}

static void free_any(struct cache *cache, void *object, size_t stated)
{
	take_back(cache, object, stated);
	if (page_id(object) == PAGE_WATCHED || !magazine_free_at(cache->map, &cache->returns, object))
		magazine_return_missed(cache, object);
}

void hardened_free_any(struct cache *cache, void *object)
{
	free_any(cache, object, SIZE_MAX);
}

/*
 * Frees objects that hardened_find has no row for: large ones, those without bytes, those of object caches or
 * in a page that a heap profile watches.  False for what is not hardened.
 */
__attribute__((noinline)) bool hardened_free_unusual(void *object, size_t stated)
{
	struct cache *cache = magazine_cache(object);

	if (!cache || !magazine_is_hardened(cache))
		return false;
	/* Callers that free objects of caches know no size of them. */
	free_any(cache, object, cache->owner ? SIZE_MAX : stated);
	return true;
}

/* ---- objects that stay --------------------------------------------------------------------------------- */

/* What the mark of an address says; that of a free object where none starts. */
static unsigned slack_of(const struct cache *cache, const void *object)
{
	const uint16_t *mark = mark_of(cache, object);

	return mark ? __atomic_load_n(mark, __ATOMIC_RELAXED) : (unsigned)SLAB_NEVER_OUT;
}

bool hardened_bytes(const struct cache *cache, const void *object, size_t *bytes)
{
	unsigned slack = slack_of(cache, object);

	*bytes = bytes_of(cache) - slack;
	return slack >= HARDENED_CANARY && (uintptr_t)object % PAGE_MARK_UNIT == 0;
}

size_t hardened_judge(const struct cache *cache, const void *object)
{
	unsigned slack = slack_of(cache, object);
	size_t bytes;

	if (!hardened_bytes(cache, object, &bytes) ||
	    (!is_untouchable(cache) && !hardened_is_sound(object, bytes_of(cache), slack)))
		hardened_stop_free(object, slack, SIZE_MAX);
	return bytes;
}

void hardened_resize(const struct cache *cache, void *object, size_t requested)
{
	size_t before = hardened_judge(cache, object);
	char *end = (char *)object + before + HARDENED_CANARY;

	/*
	 * What is no longer the program's becomes zero, and what becomes the program's does not show the
	 * canary.
	 */
	if (requested < before)
		memset((char *)object + requested, 0, (size_t)(end - (char *)object) - requested);
	else
		*hardened_canary_at(object, before) = 0;
	(void)hardened_give(mark_of(cache, object), bytes_of(cache), object, requested);
}
