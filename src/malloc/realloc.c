/* SPDX-License-Identifier: MIT */
#include "malloc/realloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check/corruption.h"
#include "magazine/hardened.h"
#include "magazine/magazine.h"
#include "malloc/large.h"
#include "malloc/large_checks.h"
#include "malloc/malloc.h"
#include "malloc/own.h"
#include "process/process.h"
#include "malloc/size_class.h"
#include "page/sparse.h"

#define likely(condition)   __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

enum {
	/* From here on, not only from REALLOC_LARGE, an object that has grown before becomes a run. */
	GROW_AGAIN = 4 << 10,
};

/* Copies `bytes` of an object to its new place and frees the old one. */
static inline void *move_to(void *moved, void *object, size_t bytes)
{
	sparse_copy(moved, object, bytes);
	own_free(object);
	return moved;
}

/* An object of a debugged cache: moves, or else the red zone behind it does. */
static void *realloc_checked(struct cache *cache, void *object, size_t size)
{
	size_t most = cache->depot.slabs.traits.checks->zones.object_bytes;
	size_t before = magazine_usable(cache, object);

	if (size >= most / 2 && magazine_resize_checked(cache, object, size))
		return object;
	void *moved = own_malloc(size);

	if (!moved)
		return magazine_resize_checked(cache, object, size) ? object : malloc_failed();
	return move_to(moved, object, size < before ? size : before);
}

/* Returns whether a cache is the class of `bytes`, usual or aligned. */
static bool is_served_by(const struct cache *cache, size_t bytes)
{
	if (bytes > SIZE_CLASS_MAX)
		return false;
	unsigned aligned = size_class_beyond_pages(2 * PAGE_BYTES, bytes);

	return size_class_if_made(size_class_index(bytes)) == cache ||
	       (aligned < SIZE_CLASSES && size_class_if_made(aligned) == cache);
}

/* An object of a hardened class: stays if its class does. */
static void *realloc_hardened(struct cache *cache, void *object, size_t size)
{
	size_t before = hardened_judge(cache, object);

	if (is_served_by(cache, size + HARDENED_CANARY)) {
		hardened_resize(cache, object, size);
		return object;
	}
	void *moved = own_malloc(size);

	if (!moved)
		return malloc_failed();
	return move_to(moved, object, size < before ? size : before);
}

/* A debugged large object: moves while there is memory, so that its old pages become inaccessible. */
static void *realloc_large_checked(void *object, size_t size)
{
	void *moved = large_resize(object, size);

	if (moved)
		return moved;

	size_t before = large_usable(object);

	moved = own_malloc(size);

	if (!moved)
		return large_check_resize(object, large_bytes(object), size) ? object : malloc_failed();
	return move_to(moved, object, size < before ? size : before);
}

/*
 * For a pointer that is not an object in use.  Where large objects are debugged it is reported as its free
 * would be, and a program that continues after that gets new memory.
 */
static __attribute__((noinline, cold)) void *realloc_invalid(void *object, size_t size)
{
	if (!large_is_checked() || large_check_free(object, SIZE_MAX))
		corruption_abort(NULL, object, "realloc of a pointer that is not the start of an object");
	return own_malloc(size);
}

/*
 * Allocates for an object that has outgrown its place and may grow again.  A run of pages can grow without
 * a copy where free pages follow, as they often do at the end of the heap.  A mapping can move without one,
 * which pays where the copy would cost more than the page faults of all the new memory.
 */
static void *alloc_to_grow(size_t size, size_t usable)
{
	if (usable >= LARGE_MOVES_FROM)
		return large_alloc_mapping(size);
	return usable >= REALLOC_LARGE ? large_alloc_to_grow(size) : own_malloc(size);
}

void *realloc_in_pages(void *object, size_t size)
{
	bool moves = process_enter() && (uintptr_t)object % PAGE_BYTES == 0 && large_bytes(object);

	return moves ? large_resize(object, size) : NULL;
}

void *realloc_special(void *object, size_t size)
{
	if (size == 0) {
		/* As glibc does; C23 leaves it undefined. */
		own_free(object);
		return NULL;
	}
	if (size > PTRDIFF_MAX)
		return malloc_failed();

	process_enter();
	/* Enough for an object that grows over and over. */
	if (large_grow(object, size))
		return object;

	struct cache *cache = magazine_cache(object);

	if (unlikely(cache && magazine_is_checked(cache)))
		return realloc_checked(cache, object, size);
	if (unlikely(cache && magazine_is_hardened(cache)))
		return realloc_hardened(cache, object, size);
	if (unlikely(!cache && large_is_checked() && large_bytes(object)))
		return realloc_large_checked(object, size);

	size_t usable = likely(cache) ? magazine_usable(cache, object) : malloc_usable(object);

	if (unlikely(!usable))
		return realloc_invalid(object, size);
	if (realloc_stays(size, usable) && usable <= SIZE_CLASS_MAX)
		return object;
	if (!cache && large_bytes(object)) {
		void *resized = large_resize(object, size);

		if (resized)
			return resized;
	}

	void *moved = size > usable ? alloc_to_grow(size, usable) : own_malloc(size);

	if (!moved)
		return size <= usable ? object : malloc_failed();
	return move_to(moved, object, size < usable ? size : usable);
}

/*
 * Objects that realloc has moved once to enlarge them, by address, until they grow again.  One that does
 * will probably do so once more, and becomes a run of pages.  After ALL_GROW in a row have grown again, the
 * next ones become runs the first time, which saves a copy; but one in WATCHED still goes the usual way, to
 * see whether the pattern holds.  An object that another one displaces here counts as not grown again.  Two
 * threads at once, or an address with a new object, may mislead this: being wrong costs little.
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

/* An object of a usual class, of GROW_AGAIN bytes or more, that has outgrown it. */
static __attribute__((noinline)) void *realloc_grown(void *object, size_t size, size_t usable)
{
	bool again =
		grows_again(object) && size <= PTRDIFF_MAX && process_enter() && !malloc_is_special(size);
	void *moved = again ? large_alloc_to_grow(size) : own_malloc(size);

	if (unlikely(!moved))
		return malloc_failed();
	if (!again)
		note_grown_once(moved);
	return move_to(moved, object, usable);
}

/* Whether an address cannot be an object of a class of `usable` bytes, by its alignment. */
static bool is_misaligned(const void *object, size_t usable)
{
	return (uintptr_t)object & (((usable & -usable) - 1) & (PAGE_BYTES - 1));
}

void *realloc_usual(void *object, size_t size, size_t usable)
{
	if (unlikely(is_misaligned(object, usable)))
		corruption_abort(NULL, object, "realloc of a pointer that is not the start of an object");
	if (size > usable && usable >= GROW_AGAIN)
		return realloc_grown(object, size, usable);

	void *moved = own_malloc(size);

	if (unlikely(!moved))
		return size <= usable ? object : NULL;
	return move_to(moved, object, size < usable ? size : usable);
}
