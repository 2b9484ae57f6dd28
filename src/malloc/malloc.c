/* SPDX-License-Identifier: MIT */
#include "malloc/malloc.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check/corruption.h"
#include "guard/guard.h"
#include "linked/linked.h"
#include "malloc/fast.h"
#include "malloc/large.h"
#include "malloc/large_checks.h"
#include "malloc/process.h"
#include "malloc/size_class.h"
#include "options/options.h"

#define likely(condition)   __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

enum {
	/* From here on calloc takes pages that are known to be zero instead of clearing reused ones. */
	CALLOC_FROM_PAGES = 32 << 10,
	/*
	 * What outgrows so many bytes becomes a run of pages, which can grow where it is; and from GROW_AGAIN
	 * on what has outgrown its place before.
	 */
	GROW_FROM = 32 << 10,
	GROW_AGAIN = 4 << 10,
	/* And a mapping of its own, which can move without a copy. */
	MOVE_FROM = 32 << 20,
};

static void *out_of_memory(void)
{
	errno = ENOMEM;
	return NULL;
}

static void *malloc_large(size_t size)
{
	bool zeroed;
	void *object = size <= PTRDIFF_MAX ? large_alloc(size, 1, &zeroed) : NULL;

	return likely(object) ? object : out_of_memory();
}

/* ---- hardened mode: every allocation and free of a class ------------------------------------------- */

/* From a class, which may be debugged instead. */
static __attribute__((noinline)) void *alloc_hardened(unsigned index, size_t size,
						      void *(*alloc)(struct cache *, size_t))
{
	struct cache *cache = size_class(index);
	void *object = likely(magazine_is_hardened(cache)) ? alloc(cache, size)
							   : magazine_alloc_checked(cache, size);

	return likely(object) ? object : out_of_memory();
}

static void *malloc_nothing(void)
{
	void *object = hardened_alloc_untouchable(&size_class_nothing);

	return likely(object) ? object : out_of_memory();
}

/* Start-up, the larger classes, misses, large objects and those without bytes. */
static __attribute__((noinline)) void *malloc_hardened_missed(size_t size)
{
	process_enter();
	if (unlikely(size > SIZE_CLASS_MAX - HARDENED_CANARY))
		return malloc_large(size);
	if (unlikely(!size))
		return malloc_nothing();
	return alloc_hardened(size_class_index(size + HARDENED_CANARY), size, hardened_alloc_any);
}

/* More than SIZE_CLASS_SMALL with the canary; HARDENED_ROW at most. */
static __attribute__((noinline)) void *malloc_hardened_medium(size_t size)
{
	const struct cache *cache = size_class_if_made(size_class_index(size + HARDENED_CANARY));
	void *object = likely(cache) ? hardened_alloc(hardened_of(cache->id), size) : NULL;

	return likely(object) ? object : malloc_hardened_missed(size);
}

static __attribute__((noinline)) void *malloc_hardened(size_t size)
{
	/* Not 0, which becomes the largest number. */
	if (likely(size - 1 < SIZE_CLASS_SMALL - HARDENED_CANARY)) {
		void *object = hardened_alloc(
			&hardened_front[(size + HARDENED_CANARY + SIZE_CLASS_STEP - 1) / SIZE_CLASS_STEP],
			size);

		if (likely(object))
			return object;
	} else if (size - 1 < HARDENED_ROW - HARDENED_CANARY) {
		return malloc_hardened_medium(size);
	}
	return malloc_hardened_missed(size);
}

/* ---- malloc and free ---------------------------------------------------------------------------------- */

/*
 * Everything but a hit in a class up to SIZE_CLASS_SMALL: start-up, the larger classes, misses, large runs.
 */
static __attribute__((noinline)) void *malloc_usual(size_t size)
{
	if (unlikely(!process_enter()))
		return out_of_memory();
	/* It has just started. */
	if (unlikely(options.hardened))
		return malloc_hardened(size);
	if (likely(size <= SIZE_CLASS_MAX)) {
		unsigned index = size_class_index(size);
		struct cache *cache = size_class_if_made(index);

		if (unlikely(!cache) && unlikely(!(cache = size_class_serving(index))))
			return out_of_memory();
		void *object = magazine_alloc(&cache->offset);

		if (likely(object))
			return object;
		object = magazine_is_checked(cache) ? magazine_alloc_checked(cache, size)
						    : magazine_alloc_requested(cache, size);
		return likely(object) ? object : out_of_memory();
	}
	return malloc_large(size);
}

ARCH_FAST_PATH static __attribute__((noinline)) void *malloc_slow(size_t size)
{
	/* First, and as if it were likely: in hardened mode each call comes here. */
	if (likely(options.hardened))
		return malloc_hardened(size);
	/* Blocks of one size that come and go need no more than this. */
	if (size > SIZE_CLASS_MAX && likely(process_enter())) {
		void *object = size <= PTRDIFF_MAX ? large_alloc_again(size) : NULL;

		if (likely(object))
			return object;
	}
	return malloc_usual(size);
}

/* free() leads here from every page of a linked cache, whose word it does not know. */
static void free_linked(struct linked_cache *cache, void *object)
{
	if (unlikely(!linked_free(cache, object)))
		linked_free_missed(cache, object);
}

/* Everything but a hit: NULL, start-up, misses, large and foreign memory. */
static __attribute__((noinline)) void free_usual(void *object)
{
	if (!object)
		return;
	process_enter();

	struct cache *cache = magazine_cache(object);
	struct linked_cache *linked = cache ? NULL : linked_cache_of(object);

	if (likely(cache))
		magazine_free_missed(cache, object);
	else if (linked)
		free_linked(linked, object);
	else if (guard_contains(object))
		guard_free(object, SIZE_MAX);
	else
		large_free(object, SIZE_MAX);
}

/* What no cache of the magazine engine owns, of which the caller says how large it is. */
static void free_other(void *object, size_t size)
{
	if (large_is_checked() && large_bytes(object))
		large_free(object, size);
	else
		free_usual(object);
}

static __attribute__((noinline)) void free_hardened_missed(void *object)
{
	process_enter();
	hardened_return_missed(object);
}

/* Of what hardened_find has no row for. */
static __attribute__((noinline)) void free_hardened_unusual(void *object, size_t size)
{
	process_enter();
	if (hardened_free_unusual(object, size))
		return;
	if (guard_contains(object)) {
		guard_free(object, size);
		return;
	}
	free_other(object, size);
}

/* `size` as the caller says; SIZE_MAX when it says nothing. */
static inline __attribute__((always_inline)) void free_hardened(void *object, size_t size)
{
	const struct hardened *cache = hardened_find(object);

	if (unlikely(!cache))
		free_hardened_unusual(object, size);
	else if (unlikely(!hardened_free(cache, object, size)))
		free_hardened_missed(object);
}

static __attribute__((noinline)) void free_unsized_hardened(void *object)
{
	free_hardened(object, SIZE_MAX);
}

static __attribute__((noinline)) void free_sized_hardened(void *object, size_t size)
{
	free_hardened(object, size);
}

ARCH_FAST_PATH static __attribute__((noinline)) void free_slow(void *object)
{
	/* As in malloc_slow. */
	if (likely(options.hardened)) {
		free_unsized_hardened(object);
		return;
	}
	if (page_is_heap(object) && page_id(object) == PAGE_LARGE && likely(process_enter()) &&
	    likely(large_free_again(object)))
		return;
	free_usual(object);
}

/* The same where the caller says how large the object is, which a debugged cache compares. */
static __attribute__((noinline)) void free_sized_slow(void *object, size_t size)
{
	if (unlikely(options.hardened)) {
		free_sized_hardened(object, size);
		return;
	}
	process_enter();

	struct cache *cache = magazine_cache(object);

	if (unlikely(cache && magazine_is_checked(cache)))
		magazine_free_checked(cache, object, size);
	else if (unlikely(guard_contains(object)))
		guard_free(object, size);
	else
		free_other(object, size);
}

ARCH_FAST_PATH EXPORT void *malloc(size_t size)
{
	void *object = malloc_fast(size);

	return likely(object) ? object : malloc_slow(size);
}

ARCH_FAST_PATH EXPORT void free(void *object)
{
	if (!free_fast(object))
		free_slow(object);
}

EXPORT void free_sized(void *object, size_t size)
{
	if (!free_fast(object))
		free_sized_slow(object, size);
}

EXPORT void free_aligned_sized(void *object, size_t alignment, size_t size)
{
	if (unlikely(options.hardened) && (uintptr_t)object & (alignment - 1))
		corruption_abort(NULL, object, "free with an alignment that the object does not have");
	free_sized(object, size);
}

/* ---- calloc and realloc ------------------------------------------------------------------------------- */

/* Whether even large objects of a class must come from it. */
static bool is_special_size(size_t bytes)
{
	if (options.hardened)
		return bytes <= SIZE_CLASS_MAX - HARDENED_CANARY;
	return bytes <= SIZE_CLASS_MAX && size_class_is_checked(size_class_index(bytes));
}

EXPORT void *calloc(size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes))
		return out_of_memory();
	if (unlikely(bytes >= CALLOC_FROM_PAGES) && process_enter() && !is_special_size(bytes)) {
		bool zeroed = false;
		void *object = bytes <= PTRDIFF_MAX ? large_alloc(bytes, 1, &zeroed) : NULL;

		if (!object)
			return out_of_memory();
		return zeroed ? object : memset(object, 0, bytes);
	}
	void *object = malloc(bytes);

	return likely(object) ? memset(object, 0, bytes) : NULL;
}

/* Bytes that the caller may use at `object`, which is not NULL; 0 if it is no object. */
static size_t usable_size(const void *object)
{
	process_enter();
	struct cache *cache = magazine_cache(object);

	if (cache)
		return magazine_usable(cache, object);
	const struct linked_cache *linked = linked_cache_of(object);

	if (linked)
		return linked->usable;
	return guard_contains(object) ? guard_usable(object) : large_usable(object);
}

/* What realloc does with an object that cannot stay: so many bytes of it go where there is room for more. */
static inline void *move_to(void *moved, void *object, size_t bytes)
{
	memcpy(moved, object, bytes);
	free(object);
	return moved;
}

/* Whether realloc leaves an object of a class where it is: as long as at most half of it is wasted. */
static inline bool stays(size_t size, size_t usable)
{
	return size <= usable && size >= usable / 2;
}

/* An object of a debugged cache: it moves, or the zone behind it does. */
static void *realloc_checked(struct cache *cache, void *object, size_t size)
{
	size_t most = cache->depot.slabs.traits.checks->zones.object_bytes;
	size_t before = magazine_usable(cache, object);

	if (size >= most / 2 && magazine_resize_checked(cache, object, size))
		return object;
	void *moved = malloc(size);

	if (!moved)
		return magazine_resize_checked(cache, object, size) ? object : out_of_memory();
	return move_to(moved, object, size < before ? size : before);
}

/* An object of a hardened class: it stays if the class does. */
static void *realloc_hardened(struct cache *cache, void *object, size_t size)
{
	size_t before = hardened_judge(cache, object);

	if (size <= SIZE_CLASS_MAX - HARDENED_CANARY &&
	    size_class(size_class_index(size + HARDENED_CANARY)) == cache) {
		hardened_resize(cache, object, size);
		return object;
	}
	void *moved = malloc(size);

	if (!moved)
		return out_of_memory();
	return move_to(moved, object, size < before ? size : before);
}

/* A large one that is debugged: it moves, so that its pages are out of reach, while there is memory. */
static void *realloc_large_checked(void *object, size_t size)
{
	size_t before = large_usable(object);
	void *moved = malloc(size);

	if (!moved)
		return large_check_resize(object, large_bytes(object), size) ? object : out_of_memory();
	return move_to(moved, object, size < before ? size : before);
}

/*
 * Of what is no object that the program has: where large ones are debugged it is reported as its free would
 * be, and who goes on after that gets new memory.
 */
static __attribute__((noinline, cold)) void *realloc_invalid(void *object, size_t size)
{
	if (!large_is_checked() || large_check_free(object, SIZE_MAX))
		corruption_abort(NULL, object, "realloc of a pointer that is not the start of an object");
	return malloc(size);
}

/*
 * For an object that has outgrown its place, and may grow again.  A run of pages does so without a copy where
 * free pages follow, as they often do at the end of the heap.  A mapping of its own can move without one,
 * which pays where the copy would cost more than the page faults of all that is new.
 */
static void *alloc_to_grow(size_t size, size_t usable)
{
	if (usable >= MOVE_FROM)
		return large_alloc_mapping(size);
	return usable >= GROW_FROM ? large_alloc_to_grow(size) : malloc(size);
}

/* Everything else: NULL, objects that are debugged, hardened, guarded or large, and those of no size. */
static __attribute__((noinline)) void *realloc_special(void *object, size_t size)
{
	if (!object)
		return malloc(size);
	if (size == 0) {
		/* As glibc does; C23 leaves it undefined. */
		free(object);
		return NULL;
	}
	if (size > PTRDIFF_MAX)
		return out_of_memory();

	process_enter();
	/* What grows over and over needs no more than this. */
	if (large_grow(object, size))
		return object;

	struct cache *cache = magazine_cache(object);

	if (unlikely(cache && magazine_is_checked(cache)))
		return realloc_checked(cache, object, size);
	if (unlikely(cache && magazine_is_hardened(cache)))
		return realloc_hardened(cache, object, size);
	if (unlikely(!cache && large_is_checked() && large_bytes(object)))
		return realloc_large_checked(object, size);

	size_t usable = likely(cache) ? magazine_usable(cache, object) : usable_size(object);

	if (unlikely(!usable))
		return realloc_invalid(object, size);
	if (stays(size, usable) && usable <= SIZE_CLASS_MAX)
		return object;
	if (!cache && large_bytes(object)) {
		void *resized = large_resize(object, size);

		if (resized)
			return resized;
	}

	void *moved = size > usable ? alloc_to_grow(size, usable) : malloc(size);

	if (!moved)
		return size <= usable ? object : out_of_memory();
	return move_to(moved, object, size < usable ? size : usable);
}

/*
 * Objects that realloc has moved to make them larger, by address, until they grow again: who does will do so
 * once more, and becomes a run of pages.  Where ALL_GROW in a row have grown again, the next become runs the
 * first time, without a copy more; but one in WATCHED of them goes the usual way, to see whether it still is
 * so.  An object that another one follows in its place here has not grown again.  Two threads at once, and
 * who has the address now: to be wrong costs little.
 */
enum { GROWN_PLACES_LOG = 4, ALL_GROW = 16, WATCHED = 8 };

static struct {
	void *once[1 << GROWN_PLACES_LOG];
	unsigned in_a_row, turn;
} grown;

static void **grown_place(const void *object)
{
	return &grown.once[(uintptr_t)object * 0x9e3779b97f4a7c15u >> (64 - GROWN_PLACES_LOG)];
}

static bool grows_again(const void *object)
{
	void **place = grown_place(object);
	unsigned in_a_row = __atomic_load_n(&grown.in_a_row, __ATOMIC_RELAXED);

	if (__atomic_load_n(place, __ATOMIC_RELAXED) == object) {
		__atomic_store_n(place, NULL, __ATOMIC_RELAXED);
		if (in_a_row < ALL_GROW)
			__atomic_store_n(&grown.in_a_row, in_a_row + 1, __ATOMIC_RELAXED);
		return true;
	}
	if (in_a_row < ALL_GROW)
		return false;

	unsigned turn = __atomic_load_n(&grown.turn, __ATOMIC_RELAXED);

	__atomic_store_n(&grown.turn, turn + 1, __ATOMIC_RELAXED);
	return turn % WATCHED != 0;
}

static void note_grown_once(void *object)
{
	void **place = grown_place(object);

	if (__atomic_load_n(place, __ATOMIC_RELAXED))
		__atomic_store_n(&grown.in_a_row, 0, __ATOMIC_RELAXED);
	__atomic_store_n(place, object, __ATOMIC_RELAXED);
}

/* An object of a usual class, from GROW_AGAIN on, that has outgrown it. */
static __attribute__((noinline)) void *realloc_grown(void *object, size_t size, size_t usable)
{
	bool again = grows_again(object) && size <= PTRDIFF_MAX && process_enter() && !is_special_size(size);
	void *moved = again ? large_alloc_to_grow(size) : malloc(size);

	if (unlikely(!moved))
		return out_of_memory();
	if (!again)
		note_grown_once(moved);
	return move_to(moved, object, usable);
}

/* An object of a usual class, of a size that is another's.  The old one will do where there is no memory. */
static __attribute__((noinline)) void *realloc_usual(void *object, size_t size, size_t usable)
{
	if (size > usable && usable >= GROW_AGAIN)
		return realloc_grown(object, size, usable);

	void *moved = malloc(size);

	if (unlikely(!moved))
		return size <= usable ? object : NULL;
	return move_to(moved, object, size < usable ? size : usable);
}

EXPORT void *realloc(void *object, size_t size)
{
	size_t usable = magazine_usual(object);

	if (unlikely(!size || usable - 1 >= GROW_FROM - 1))
		return realloc_special(object, size);
	return stays(size, usable) ? object : realloc_usual(object, size, usable);
}

EXPORT void *reallocarray(void *object, size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes))
		return out_of_memory();
	return realloc(object, bytes);
}

EXPORT size_t malloc_usable_size(void *object)
{
	return object ? usable_size(object) : 0;
}

EXPORT size_t cpuslab_malloc_size(size_t size)
{
	if (size <= SIZE_CLASS_MAX) {
		unsigned index = size_class_index(size);
		const struct cache *cache = __atomic_load_n(&size_class_made[index], __ATOMIC_ACQUIRE);

		return cache ? magazine_granted(cache, size) : size_class_bytes(index);
	}
	return size > PTRDIFF_MAX ? 0 : large_granted(size);
}

size_t malloc_alignment(size_t size)
{
	size_t room = options.hardened ? HARDENED_CANARY : 0;
	size_t bytes =
		size <= SIZE_CLASS_MAX - room ? size_class_bytes(size_class_index(size + room)) : PAGE_BYTES;

	return bytes % PAGE_BYTES ? bytes & -bytes : PAGE_BYTES;
}

EXPORT void *cpuslab_object_of(const void *address)
{
	process_enter();
	const struct cache *cache = magazine_cache(address);
	uintptr_t page = (uintptr_t)address & ~(uintptr_t)(PAGE_BYTES - 1);

	if (cache)
		return magazine_object_of(cache, address);
	const struct linked_cache *linked = linked_cache_of(address);

	if (linked)
		return linked_object_of(linked, address);
	if (guard_contains(address))
		return guard_object_of(address);
	return large_bytes((const void *)page) ? (void *)page : NULL;
}

/* ---- alignment ---------------------------------------------------------------------------------------- */

/* From a debugged class that is larger than the size needs. */
static void *malloc_checked(struct cache *cache, size_t size)
{
	void *object = magazine_alloc_checked(cache, size);

	return likely(object) ? object : out_of_memory();
}

static void *aligned_hardened(size_t alignment, size_t size)
{
	unsigned index = size_class_aligned(alignment, size + HARDENED_CANARY);
	bool zeroed;

	if (likely(index < SIZE_CLASSES))
		return alloc_hardened(index, size, hardened_alloc_aligned);
	void *object = large_alloc(size, alignment, &zeroed);

	return object ? object : out_of_memory();
}

static __attribute__((noinline)) void *malloc_aligned_usual(size_t alignment, size_t size)
{
	if (alignment <= SIZE_CLASS_STEP)
		return malloc(size);
	if (size > PTRDIFF_MAX || alignment > PTRDIFF_MAX)
		return out_of_memory();
	if (unlikely(!process_enter()))
		return out_of_memory();
	if (alignment <= PAGE_BYTES && size <= SIZE_CLASS_MAX) {
		if (unlikely(options.hardened))
			return aligned_hardened(alignment, size);
		unsigned index = size_class_aligned(alignment, size);

		return likely(!size_class_is_checked(index)) ? malloc(size_class_bytes(index))
							     : malloc_checked(size_class(index), size);
	}
	bool zeroed;
	void *object = large_alloc(size ? size : 1, alignment, &zeroed);

	return object ? object : out_of_memory();
}

void *malloc_aligned(size_t alignment, size_t size)
{
	void *object = malloc_aligned_fast(alignment, size);

	return likely(object) ? object : malloc_aligned_usual(alignment, size);
}

static bool is_power_of_two(size_t x)
{
	return x && !(x & (x - 1));
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
	if (!is_power_of_two(alignment)) {
		errno = EINVAL;
		return NULL;
	}
	return malloc_aligned(alignment, size);
}

EXPORT void *memalign(size_t alignment, size_t size)
{
	/* glibc rounds an odd alignment up. */
	if (alignment > PTRDIFF_MAX) {
		errno = EINVAL;
		return NULL;
	}
	size_t rounded = SIZE_CLASS_STEP;

	while (rounded < alignment)
		rounded *= 2;
	return malloc_aligned(rounded, size);
}

EXPORT int posix_memalign(void **object, size_t alignment, size_t size)
{
	if (!is_power_of_two(alignment) || alignment % sizeof(void *))
		return EINVAL;

	void *aligned = malloc_aligned_fast(alignment, size);

	if (unlikely(!aligned)) {
		int saved = errno;

		aligned = malloc_aligned_usual(alignment, size);
		errno = saved; /* POSIX: the result tells, errno need not */
		if (!aligned)
			return ENOMEM;
	}
	*object = aligned;
	return 0;
}

EXPORT void *valloc(size_t size)
{
	return malloc_aligned(PAGE_BYTES, size);
}

EXPORT void *pvalloc(size_t size)
{
	size_t rounded = (size + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);

	if (rounded < size)
		return out_of_memory();
	return malloc_aligned(PAGE_BYTES, rounded ? rounded : PAGE_BYTES);
}

/*
 * The names by which glibc's own functions go past an interposed malloc.  A program or a tracer that uses
 * them beside free() must not mix two heaps.
 */
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmissing-attributes" /* an alias may promise less than its target */
#endif
#define LIBC_ALIAS(function)                                                                                 \
	extern EXPORT __typeof__(function) __libc_##function __attribute__((alias(#function)))
LIBC_ALIAS(malloc);
LIBC_ALIAS(free);
LIBC_ALIAS(calloc);
LIBC_ALIAS(realloc);
LIBC_ALIAS(memalign);
LIBC_ALIAS(valloc);
LIBC_ALIAS(pvalloc);
