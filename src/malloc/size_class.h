/* SPDX-License-Identifier: MIT */
/*
 * size_class: which cache serves a size.
 *
 * Classes are the multiples of 16 up to 128, then eight for each doubling up to 256 KiB, so that above 128
 * bytes a class is at most an eighth larger than the request; malloc makes little use of those above 128
 * KiB (see is_large there).  Programs often add a header of their own to 1, 2 or 4 KiB, for which the next
 * of these classes is nearly an eighth too large: so behind each of the three there is a narrow class, as
 * large as it can be with one object fewer in 64 KiB.  All of this follows from size_class_bytes(); the
 * table that the fast path reads is computed from it at start.
 *
 * Hosts.  A class takes at least a page, even for a few objects, and such pages are a large part of a small
 * program's memory.  So up to SIZE_CLASS_SMALL a class is made only when it is worth that.  Until then its
 * sizes are served by a host: the next class of a power of two, or of three of them.  When a size misses
 * for the second time while its host has 8 KiB of objects allocated, its own class is made
 * (size_class_serving), and the table leads there from then on; a size with an object or two does not get
 * that far.  Objects of the host stay what they are: free goes by the page.  In hardened mode with thread
 * slots the hosts serve all sizes up to 128 KiB, for good.
 *
 * Alignment.  Slabs start on a page, and a class promises no more than that.  For each power of two above a
 * page there is an aligned class beside the usual one, whose slabs are aligned as its objects are.  Only
 * aligned_alloc and its like take from it, so that callers without such an alignment do not pay for the
 * gaps between those slabs.  In hardened mode the aligned classes serve all such sizes whose slack a mark
 * can count: a mapping for each object would take two of those that a process may have.
 */
#ifndef CPUSLAB_SIZE_CLASS_H
#define CPUSLAB_SIZE_CLASS_H

#include <stddef.h>
#include <stdint.h>

#include "magazine/hardened.h"
#include "options/options.h"

enum {
	SIZE_CLASS_STEP = 16,
	SIZE_CLASS_LINEAR = 128,     /* multiples of SIZE_CLASS_STEP up to here */
	SIZE_CLASS_SMALL = 1024,     /* looked up in a table up to here */
	SIZE_CLASS_RUNS = 128 << 10, /* above: page runs, but see is_large in malloc.c */
	SIZE_CLASS_MAX = 256 << 10,  /* above: page runs */
	SIZE_CLASS_NARROW_FROM = 10, /* narrow classes lie behind powers of two from 2^10 on */
	SIZE_CLASS_NARROWS = 3,      /* behind this many of them */
	SIZE_CLASSES_USUAL = SIZE_CLASS_LINEAR / SIZE_CLASS_STEP + 8 * 11 + SIZE_CLASS_NARROWS,
	SIZE_CLASS_ALIGNED_FROM = 13, /* aligned classes from 2^13 on */
	SIZE_CLASSES_ALIGNED = 6,     /* up to SIZE_CLASS_MAX; their indices follow the usual ones */
	SIZE_CLASSES = SIZE_CLASSES_USUAL + SIZE_CLASSES_ALIGNED,
};

/*
 * What malloc's fast path reads; the limits are zero until the library has started.  `forward_limit` is for
 * functions that stand for malloc, and stays zero where a program has functions of its own (replaced.h).
 */
struct malloc_front {
	size_t small_limit, forward_limit;
	uint16_t offset[SIZE_CLASS_SMALL / SIZE_CLASS_STEP + 1];
};
extern ARCH_INTERNAL struct malloc_front malloc_front;
/* NULL where a class is not made yet.  Hardened or debugged classes are all made at start. */
extern ARCH_INTERNAL struct cache *size_class_made[SIZE_CLASSES];
/* In hardened mode: objects of zero bytes, at inaccessible addresses. */
extern ARCH_INTERNAL struct cache size_class_nothing;
/* In hardened mode: used in place of malloc_front, whose small_limit stays zero. */
extern ARCH_INTERNAL struct hardened hardened_front[SIZE_CLASS_SMALL / SIZE_CLASS_STEP + 1];

/* 64 KiB divided by one less than the number of such powers of two in it, rounded down to whole steps. */
static const uint16_t size_class_narrow[SIZE_CLASS_NARROWS] = {1040, 2112, 4368};

static inline uint32_t size_class_bytes(unsigned index)
{
	enum {
		EIGHTHS = SIZE_CLASS_LINEAR / SIZE_CLASS_STEP,
		NARROW = EIGHTHS + 8 * (SIZE_CLASS_NARROW_FROM - 7)
	};

	if (index < EIGHTHS)
		return (index + 1) * SIZE_CLASS_STEP;
	if (index >= SIZE_CLASSES_USUAL)
		return 1u << (SIZE_CLASS_ALIGNED_FROM + index - SIZE_CLASSES_USUAL);
	if (index >= NARROW + 9 * SIZE_CLASS_NARROWS) {
		index -= SIZE_CLASS_NARROWS;
	} else if (index >= NARROW) {
		unsigned doubling = (index - NARROW) / 9;

		if ((index - NARROW) % 9 == 0)
			return size_class_narrow[doubling];
		index -= doubling + 1;
	}
	index -= EIGHTHS;
	return (9 + index % 8) << (4 + index / 8);
}

/* Returns the smallest usual class that holds `size` bytes, up to SIZE_CLASS_MAX. */
static inline unsigned size_class_index(size_t size)
{
	if (size <= SIZE_CLASS_LINEAR)
		return size ? (unsigned)(size - 1) / SIZE_CLASS_STEP : 0;
	unsigned last = (unsigned)size - 1;
	unsigned log = 31 - (unsigned)__builtin_clz(last); /* 7 for 129 to 256 */
	unsigned index = SIZE_CLASS_LINEAR / SIZE_CLASS_STEP + (log - 7) * 8 + ((last >> (log - 3)) & 7);

	/* Compared in parallel with the logarithm, and without a branch. */
	return index + (size > size_class_narrow[0]) + (size > size_class_narrow[1]) +
	       (size > size_class_narrow[2]);
}

/*
 * Returns the alignment of all objects of a class: the largest power of two that divides its size, but at
 * most a page in a usual class.
 */
static inline uint32_t size_class_alignment(unsigned index)
{
	uint32_t bytes = size_class_bytes(index), divisor = bytes & -bytes;

	return index < SIZE_CLASSES_USUAL && divisor > PAGE_BYTES ? PAGE_BYTES : divisor;
}

/* Returns the aligned class of `bytes`, a power of two. */
static inline unsigned size_class_of_power(uint32_t bytes)
{
	return SIZE_CLASSES_USUAL + (unsigned)__builtin_ctz(bytes) - SIZE_CLASS_ALIGNED_FROM;
}

/* Returns the smallest aligned class for `size` bytes, canary included; SIZE_CLASSES for none. */
static inline unsigned size_class_beyond_pages_hardened(size_t alignment, size_t size)
{
	uint32_t bytes = (uint32_t)alignment;

	while (bytes < size)
		bytes *= 2;
	return bytes > SIZE_CLASS_MAX || bytes - size > HARDENED_SLACK_MOST - HARDENED_CANARY
		       ? SIZE_CLASSES
		       : size_class_of_power(bytes);
}

/*
 * Returns the aligned class of the same number of bytes as the usual class of `size`; SIZE_CLASSES if there
 * is none: an object smaller than its alignment takes a run of just the pages it needs.
 */
static inline unsigned size_class_beyond_pages(size_t alignment, size_t size)
{
	if (size > SIZE_CLASS_MAX || alignment > SIZE_CLASS_MAX)
		return SIZE_CLASSES;
	if (options.hardened)
		return size_class_beyond_pages_hardened(alignment, size);
	uint32_t bytes = size_class_bytes(size_class_index(size));

	return bytes < alignment || bytes & (bytes - 1) ? SIZE_CLASSES : size_class_of_power(bytes);
}

/*
 * Returns the smallest class whose objects hold `size` bytes, canary included in hardened mode, and are
 * aligned to a power of two; SIZE_CLASSES for none.
 */
static inline unsigned size_class_aligned(size_t alignment, size_t size)
{
	size_t wanted = size > alignment ? size : alignment;

	if (alignment > PAGE_BYTES)
		return size_class_beyond_pages(alignment, size);
	if (wanted > SIZE_CLASS_MAX)
		return SIZE_CLASSES;
	unsigned index = size_class_index(wanted);

	while (size_class_bytes(index) & (alignment - 1))
		index++;
	return index;
}

/*
 * Creates the caches in hardened mode, else reserves their numbers: a cache takes memory, which would be
 * wasted on a program that needs few classes.
 */
void size_class_init(void);
/*
 * Creates the cache of a class that has none yet, without a lock.  `waits`: may wait for another thread.
 * NULL: no memory, or a wait would be needed to tell.
 */
struct cache *size_class_make(unsigned index, bool waits);
/* Creates all of them, for callers that look at them or name them. */
void size_class_make_all(void);

static inline struct cache *size_class_if_made(unsigned index)
{
	return __atomic_load_n(&size_class_made[index], __ATOMIC_ACQUIRE);
}

/* NULL when there is no memory. */
static inline struct cache *size_class(unsigned index)
{
	struct cache *cache = size_class_if_made(index);

	return __builtin_expect(cache != NULL, 1) ? cache : size_class_make(index, true);
}

/*
 * Returns the class that serves another's sizes for now: itself or its host.  NULL when there is no memory.
 */
struct cache *size_class_serving(unsigned index);

static inline bool size_class_is_checked(unsigned index)
{
	const struct cache *cache = size_class_if_made(index);

	return cache && magazine_is_checked(cache);
}

/* Lets calls into the fast path. */
void size_class_open(bool all_ours);

#endif
