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
#include "malloc/operators.h"
#include "malloc/own.h"
#include "process/process.h"
#include "malloc/realloc.h"
#include "malloc/replaced.h"
#include "malloc/size_class.h"
#include "options/options.h"
#include "page/sparse.h"

#define likely(condition)   __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

static void *malloc_large(size_t size, size_t alignment)
{
	bool zeroed;
	void *object = size <= PTRDIFF_MAX ? large_alloc(size, alignment, &zeroed) : NULL;

	return likely(object) ? object : malloc_failed();
}

static struct request request_of(size_t size, size_t alignment)
{
	return (struct request){(uint32_t)size, (uint32_t)alignment};
}

/*
 * For when the heap has no room for another slab but the system may still have memory: gives an object
 * pages of its own, unless it would fill too little of them.
 */
static __attribute__((noinline, cold)) void *malloc_without_class(unsigned index, size_t size,
								  size_t alignment)
{
	bool zeroed;

	if (size_class_bytes(index) < PAGE_BYTES || size_class_is_checked(index))
		return malloc_failed();
	void *object = large_alloc(size ? size : 1, alignment, &zeroed);
	struct cache *cache = size_class_if_made(index);

	/* Objects that lay in magazines have reached the slabs since these were asked. */
	if (!object && cache)
		object = options.hardened ? hardened_alloc_any(cache, request_of(size, alignment))
					  : magazine_alloc_requested(cache, request_of(size, alignment));
	return likely(object) ? object : malloc_failed();
}

/* ---- hardened mode: every allocation and free of a class ------------------------------------------- */

/* From a class, which may be debugged instead of hardened. */
static __attribute__((noinline)) void *alloc_hardened(unsigned index, size_t size, size_t alignment)
{
	struct cache *cache = size_class(index);
	void *object = likely(magazine_is_hardened(cache))
			       ? hardened_alloc_any(cache, request_of(size, alignment))
			       : magazine_alloc_checked(cache, size);

	return likely(object) ? object : malloc_without_class(index, size, alignment);
}

static void *malloc_nothing(void)
{
	void *object = hardened_alloc_untouchable(&size_class_nothing);

	return likely(object) ? object : malloc_failed();
}

/* Start-up, the larger classes, misses, large objects, and those of zero bytes. */
static __attribute__((noinline)) void *malloc_hardened_missed(size_t size)
{
	if (unlikely(!process_enter()))
		return malloc_failed();
	if (unlikely(size > SIZE_CLASS_MAX - HARDENED_CANARY))
		return malloc_large(size, 1);
	if (unlikely(!size))
		return malloc_nothing();
	return alloc_hardened(size_class_index(size + HARDENED_CANARY), size, SIZE_CLASS_STEP);
}

/* Sizes above SIZE_CLASS_SMALL with the canary, and HARDENED_ROW at most. */
static __attribute__((noinline)) void *malloc_hardened_medium(size_t size)
{
	const struct cache *cache = size_class_if_made(size_class_index(size + HARDENED_CANARY));
	void *object = likely(cache) ? hardened_alloc(hardened_of(cache->id), size) : NULL;

	return likely(object) ? object : malloc_hardened_missed(size);
}

static __attribute__((noinline)) void *malloc_hardened(size_t size)
{
	/* Size 0 becomes the largest number. */
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

/* NULL when there is no memory, or where the class has been told to fail. */
static inline __attribute__((always_inline)) void *alloc_from_class(unsigned index, size_t size,
								    size_t alignment)
{
	struct cache *cache = size_class_if_made(index);

	/* A host is at least as aligned: its size is a multiple of the same power of two. */
	if (unlikely(!cache) && unlikely(!(cache = size_class_serving(index))))
		return NULL;
	void *object = magazine_alloc(&cache->offset);

	if (likely(object))
		return object;
	return magazine_is_checked(cache) ? magazine_alloc_checked(cache, size)
					  : magazine_alloc_requested(cache, request_of(size, alignment));
}

/*
 * Returns whether a size above SIZE_CLASS_RUNS is served by a page run.  A program that replaces blocks of
 * many sizes has fewer of each than the one or two that its class would hoard, and each time its other
 * large objects want pages these would have to come back; a page run suits any size.  But only a class can
 * be hardened, debugged by its name, or guarded.
 */
static __attribute__((noinline)) bool is_large(size_t size)
{
	return size > SIZE_CLASS_MAX || !(guard_is_on() || malloc_is_special(size));
}

/*
 * Everything but a hit in a class up to SIZE_CLASS_SMALL: start-up, the larger classes, misses, large runs.
 */
static __attribute__((noinline)) void *malloc_usual(size_t size)
{
	if (unlikely(!process_enter()))
		return malloc_failed();
	/* The library has just started. */
	if (unlikely(options.hardened))
		return malloc_hardened(size);
	if (unlikely(size > SIZE_CLASS_RUNS) && is_large(size))
		return malloc_large(size, 1);
	unsigned index = size_class_index(size);
	void *object = alloc_from_class(index, size, SIZE_CLASS_STEP);

	return likely(object) ? object : malloc_without_class(index, size, SIZE_CLASS_STEP);
}

ARCH_FAST_PATH static __attribute__((noinline)) void *malloc_slow(size_t size)
{
	/* First, and marked likely: in hardened mode each call comes here. */
	if (likely(options.hardened))
		return malloc_hardened(size);
	/* Enough for blocks of one size that are allocated and freed by turns. */
	if (size > SIZE_CLASS_RUNS && likely(process_enter()) && likely(is_large(size))) {
		void *object = size <= PTRDIFF_MAX ? large_alloc_again(size) : NULL;

		if (likely(object))
			return object;
	}
	return malloc_usual(size);
}

/* free() comes here from every page of a linked cache, as the map does not lead to the cache's word. */
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

/* For an object of no magazine cache, with the caller's `size`. */
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

/* For objects that hardened_find has no row for. */
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

/* `size` is the caller's; SIZE_MAX when it gave none. */
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

/* The same with the caller's size, which a debugged cache compares with its own. */
void malloc_free_sized_missed(void *object, size_t size)
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

ARCH_FAST_PATH REPLACEABLE void *malloc(size_t size)
{
	void *object = malloc_fast(size);

	return likely(object) ? object : malloc_slow(size);
}

ARCH_FAST_PATH REPLACEABLE void free(void *object)
{
	if (!free_fast(object))
		free_slow(object);
}

REPLACEABLE void free_sized(void *object, size_t size)
{
	if (unlikely(!forwards_fast()) && replaced_any())
		free(object);
	else
		own__ZdlPvm(object, size);
}

REPLACEABLE void free_aligned_sized(void *object, size_t alignment, size_t size)
{
	if (unlikely(options.hardened) && !replaced_any() && (uintptr_t)object & (alignment - 1))
		corruption_abort(NULL, object, "free with an alignment that the object does not have");
	free_sized(object, size);
}

/* ---- calloc and realloc, and how large an object is --------------------------------------------------- */

bool malloc_is_special(size_t bytes)
{
	if (options.hardened)
		return bytes <= SIZE_CLASS_MAX - HARDENED_CANARY;
	return bytes <= SIZE_CLASS_MAX && size_class_is_checked(size_class_index(bytes));
}

/*
 * From SPARSE_ZEROES bytes on.  Pages of their own: the page room knows which ones read as zero, and these
 * are not touched.  What a class must serve is read, and cleared where it has to be.
 */
static __attribute__((noinline)) void *alloc_zeroes(size_t alignment, size_t bytes)
{
	bool zeroed = false;
	void *object = NULL;

	if (unlikely(!process_enter()))
		return malloc_failed();
	if (unlikely(!is_large(bytes)))
		object = malloc_aligned(alignment, bytes);
	else if (bytes <= PTRDIFF_MAX)
		object = large_alloc(bytes, alignment, &zeroed);
	if (unlikely(!object))
		return malloc_failed();
	if (!zeroed)
		sparse_clear(object, bytes);
	return object;
}

REPLACEABLE void *calloc(size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes))
		return malloc_failed();
	if (unlikely(bytes >= SPARSE_ZEROES))
		return alloc_zeroes(1, bytes);
	void *object = own_malloc(bytes);

	return likely(object) ? memset(object, 0, bytes) : NULL;
}

void *malloc_aligned_zeroed(size_t alignment, size_t size)
{
	if (unlikely(size >= SPARSE_ZEROES))
		return alloc_zeroes(alignment, size);
	void *object = malloc_aligned(alignment, size);

	return likely(object) ? memset(object, 0, size) : NULL;
}

size_t malloc_usable(const void *object)
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

REPLACEABLE void *realloc(void *object, size_t size)
{
	/* Asks neither the map for NULL nor code that other objects need: each costs a forked child a fault.
	 */
	if (!object)
		return own_malloc(size);
	size_t usable = magazine_usual(object);

	if (unlikely(!size || usable - 1 >= REALLOC_LARGE - 1))
		return realloc_special(object, size);
	return realloc_stays(size, usable) ? object : realloc_usual(object, size, usable);
}

REPLACEABLE void *reallocarray(void *object, size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes))
		return malloc_failed();
	return realloc(object, bytes); /* the program's, if it has its own */
}

/* In hardened mode, stops a program that asks for what is neither an object nor one of no bytes. */
static __attribute__((noinline)) size_t usable_unusual(const void *object)
{
	size_t usable = malloc_usable(object);

	if (unlikely(!usable) && options.hardened && cpuslab_object_of(object) != object)
		corruption_abort(NULL, object, "size of a pointer that is not the start of an object");
	return usable;
}

REPLACEABLE size_t malloc_usable_size(void *object)
{
	size_t usable = magazine_usual(object);

	return likely(usable) || !object ? usable : usable_unusual(object);
}

EXPORT size_t cpuslab_malloc_size(size_t size)
{
	process_enter(); /* for a hardened or debugged class, which grants no more than was asked for */
	if (size > SIZE_CLASS_RUNS && is_large(size))
		return size > PTRDIFF_MAX ? 0 : large_granted(size);
	unsigned index = size_class_index(size);
	const struct cache *cache = __atomic_load_n(&size_class_made[index], __ATOMIC_ACQUIRE);

	return cache ? magazine_granted(cache, size) : size_class_bytes(index);
}

size_t malloc_alignment(size_t size)
{
	size_t room = options.hardened ? HARDENED_CANARY : 0;

	if (size > SIZE_CLASS_MAX - room || (size > SIZE_CLASS_RUNS && is_large(size)))
		return LARGE_ALIGNMENT;
	size_t bytes = size_class_bytes(size_class_index(size + room));

	return bytes % PAGE_BYTES ? bytes & -bytes : PAGE_BYTES;
}

EXPORT void *cpuslab_object_of(const void *address)
{
	process_enter();
	const struct cache *cache = magazine_cache(address);

	if (cache)
		return magazine_object_of(cache, address);
	const struct linked_cache *linked = linked_cache_of(address);

	if (linked)
		return linked_object_of(linked, address);
	if (guard_contains(address))
		return guard_object_of(address);
	return large_object_of(address);
}

/* ---- alignment ---------------------------------------------------------------------------------------- */

static void *aligned_hardened(size_t alignment, size_t size)
{
	unsigned index = size_class_aligned(alignment, size + HARDENED_CANARY);

	if (likely(index < SIZE_CLASSES))
		return alloc_hardened(index, size, alignment);
	return malloc_large(size ? size : 1, alignment);
}

static __attribute__((noinline)) void *malloc_aligned_usual(size_t alignment, size_t size)
{
	if (alignment <= SIZE_CLASS_STEP)
		return own_malloc(size);
	if (size > PTRDIFF_MAX || alignment > PTRDIFF_MAX)
		return malloc_failed();
	if (unlikely(!process_enter()))
		return malloc_failed();
	if (unlikely(options.hardened) && size <= SIZE_CLASS_MAX)
		return aligned_hardened(alignment, size);
	unsigned index = size_class_aligned(alignment, size);

	if (likely(index < SIZE_CLASSES)) {
		void *object = alloc_from_class(index, size, alignment);

		return likely(object) ? object : malloc_without_class(index, size, alignment);
	}
	return malloc_large(size ? size : 1, alignment);
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

REPLACEABLE void *aligned_alloc(size_t alignment, size_t size)
{
	if (!is_power_of_two(alignment)) {
		errno = EINVAL;
		return NULL;
	}
	return malloc_aligned(alignment, size);
}

REPLACEABLE void *memalign(size_t alignment, size_t size)
{
	/* glibc rounds an alignment up to a power of two, of which this is the largest. */
	if (alignment > (size_t)PTRDIFF_MAX + 1) {
		errno = EINVAL;
		return NULL;
	}
	size_t rounded = SIZE_CLASS_STEP;

	while (rounded < alignment)
		rounded *= 2;
	return malloc_aligned(rounded, size);
}

REPLACEABLE int posix_memalign(void **object, size_t alignment, size_t size)
{
	if (!is_power_of_two(alignment) || alignment % sizeof(void *))
		return EINVAL;

	void *aligned = malloc_aligned_fast(alignment, size);

	if (unlikely(!aligned)) {
		int saved = errno;

		aligned = malloc_aligned_usual(alignment, size);
		errno = saved; /* POSIX: the result reports the error, errno need not */
		if (!aligned)
			return ENOMEM;
	}
	*object = aligned;
	return 0;
}

REPLACEABLE void *valloc(size_t size)
{
	return malloc_aligned(PAGE_BYTES, size);
}

REPLACEABLE void *pvalloc(size_t size)
{
	size_t rounded = (size + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);

	if (rounded < size)
		return malloc_failed();
	return malloc_aligned(PAGE_BYTES, rounded ? rounded : PAGE_BYTES);
}

/*
 * The names by which glibc's own functions bypass an interposed malloc.  A program or a tracer that uses
 * them together with free() must not mix two heaps.
 */
#define LIBC_ALIAS(function)                                                                                 \
	extern EXPORT __typeof__(function) __libc_##function __attribute__((alias(#function)))
LIBC_ALIAS(malloc);
LIBC_ALIAS(free);
LIBC_ALIAS(calloc);
LIBC_ALIAS(realloc);
LIBC_ALIAS(memalign);
LIBC_ALIAS(valloc);
LIBC_ALIAS(pvalloc);

/* free's old name: libc keeps it for programs linked before glibc 2.26. */
extern REPLACEABLE __typeof__(free) cfree __attribute__((alias("free")));

OWN(malloc);
OWN(free);
OWN(calloc);
OWN(realloc);
OWN(aligned_alloc);
OWN(malloc_usable_size);
