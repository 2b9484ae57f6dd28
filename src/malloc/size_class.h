/* SPDX-License-Identifier: MIT */
/*
 * size_class: which cache serves a size.
 *
 * Multiples of 16 up to 128, then eight classes for each doubling up to 256 KiB, so that above 128 bytes a
 * class is at most an eighth larger than the request it serves; malloc has little use for those beyond 128
 * KiB (see is_large there).  Programs like to add a header of their own to 1, 2 or 4 KiB, for which the next
 * of these classes is nearly an eighth too large: so behind each there is a narrow class, as large as it can
 * be with one object fewer in 64 KiB.  All of it follows from size_class_bytes(); the table that the fast
 * path reads is made from it at start.
 *
 * Hosts.  A class has a page at least, with a few objects in it where a program has few of that size, and
 * these pages are a part of what a small program needs.  So up to SIZE_CLASS_SMALL a class is made when it is
 * worth that: until then its sizes are served by a host, the next class of a power of two or of three.  The
 * second miss of a size that finds 8 KiB of its host's objects allocated makes its own class
 * (size_class_serving), and the table leads there from then on: what has an object or two does not come so
 * far.  Objects of the host stay what they are: free goes by the page.
 *
 * Alignment.  Slabs start on a page, and a class promises no more than that.  For each power of two beyond it
 * there is an aligned class beside the usual one, whose slabs are aligned as its objects are: aligned_alloc
 * and its like alone take from it, so that who asks for no such alignment has none of the gaps between such
 * slabs.  In hardened mode they serve all such sizes that leave as much of an object as a mark can count: a
 * mapping for each would take two of those that a process may have.
 */
#ifndef CPUSLAB_SIZE_CLASS_H
#define CPUSLAB_SIZE_CLASS_H

#include <stddef.h>
#include <stdint.h>

#include "magazine/hardened.h"
#include "options/options.h"

enum {
	SIZE_CLASS_STEP = 16,
	SIZE_CLASS_LINEAR = 128,     /* up to here in steps */
	SIZE_CLASS_SMALL = 1024,     /* up to here by table */
	SIZE_CLASS_RUNS = 128 << 10, /* beyond: page runs of malloc's, where nothing looks at classes */
	SIZE_CLASS_MAX = 256 << 10,  /* beyond: page runs */
	SIZE_CLASS_NARROW_FROM = 10, /* narrow classes lie above 2^10 */
	SIZE_CLASS_NARROWS = 3,      /* and as many powers of two */
	SIZE_CLASSES_USUAL = SIZE_CLASS_LINEAR / SIZE_CLASS_STEP + 8 * 11 + SIZE_CLASS_NARROWS,
	SIZE_CLASS_ALIGNED_FROM = 13, /* aligned classes from 2^13 on */
	SIZE_CLASSES_ALIGNED = 6,     /* to SIZE_CLASS_MAX; their indices follow those of the usual ones */
	SIZE_CLASSES = SIZE_CLASSES_USUAL + SIZE_CLASSES_ALIGNED,
};

/* What malloc's fast path reads; `small_limit` is zero until the library has started. */
struct malloc_front {
	size_t small_limit;
	uint16_t offset[SIZE_CLASS_SMALL / SIZE_CLASS_STEP + 1];
};
extern ARCH_INTERNAL struct malloc_front malloc_front;
/* NULL where a class is not made yet: in hardened mode, or debugged, all are there from the start. */
extern ARCH_INTERNAL struct cache *size_class_made[SIZE_CLASSES];
/* In hardened mode: objects of no bytes, at addresses that nobody may access. */
extern ARCH_INTERNAL struct cache size_class_nothing;
/* In the place of malloc_front, whose small_limit stays zero. */
extern ARCH_INTERNAL struct hardened hardened_front[SIZE_CLASS_SMALL / SIZE_CLASS_STEP + 1];

/* Of 64 KiB that are cut into as many as the power of two is in them, less one; in whole steps. */
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

/* The smallest usual class that holds `size` bytes, for sizes up to SIZE_CLASS_MAX. */
static inline unsigned size_class_index(size_t size)
{
	if (size <= SIZE_CLASS_LINEAR)
		return size ? (unsigned)(size - 1) / SIZE_CLASS_STEP : 0;
	unsigned last = (unsigned)size - 1;
	unsigned log = 31 - (unsigned)__builtin_clz(last); /* 7 for 129 to 256 */
	unsigned index = SIZE_CLASS_LINEAR / SIZE_CLASS_STEP + (log - 7) * 8 + ((last >> (log - 3)) & 7);

	/* Compared beside the logarithm, and without a branch. */
	return index + (size > size_class_narrow[0]) + (size > size_class_narrow[1]) +
	       (size > size_class_narrow[2]);
}

/* What all objects of a class are aligned to, as far as it is a page or more; else they are multiples of it.
 */
static inline uint32_t size_class_alignment(unsigned index)
{
	uint32_t bytes = size_class_bytes(index), divisor = bytes & -bytes;

	return index < SIZE_CLASSES_USUAL && divisor > PAGE_BYTES ? PAGE_BYTES : divisor;
}

/* The aligned class whose objects have so many bytes, a power of two. */
static inline unsigned size_class_of_power(uint32_t bytes)
{
	return SIZE_CLASSES_USUAL + (unsigned)__builtin_ctz(bytes) - SIZE_CLASS_ALIGNED_FROM;
}

/* The aligned class that is large enough, canary included; SIZE_CLASSES for none. */
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
 * The aligned class of sizes that are as near to it as those of the usual class are; SIZE_CLASSES for none:
 * what is aligned to more than it is large needs its pages alone.
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
 * The smallest class whose objects hold `size` bytes, with the canary in hardened mode, and are aligned to a
 * power of two; SIZE_CLASSES for none.
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
 * Creates the caches, or their numbers alone: a cache takes memory, of which a program that needs few classes
 * would not use most.
 */
void size_class_init(void);
/* Creates a cache that is not there yet, without a lock; `waits`: not by tries alone.  NULL: no memory. */
struct cache *size_class_make(unsigned index, bool waits);
/* All of them, for who looks at or names them. */
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

/* The class that serves the sizes of one for now: its own, or its host.  NULL when there is no memory. */
struct cache *size_class_serving(unsigned index);

static inline bool size_class_is_checked(unsigned index)
{
	const struct cache *cache = size_class_if_made(index);

	return cache && magazine_is_checked(cache);
}

/* Opens the fast path. */
void size_class_open(void);

#endif
