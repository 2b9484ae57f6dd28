/* SPDX-License-Identifier: MIT */
/*
 * check/blank: memory that is to be all zero, of objects that start at multiples of 16 bytes and span such
 * multiples.  Depends only on the arguments and on what the processor can do.
 */
#ifndef CPUSLAB_CHECK_BLANK_H
#define CPUSLAB_CHECK_BLANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "arch/arch.h"

enum { BLANK_UNIT = 16 };

typedef uint64_t blank_unit __attribute__((vector_size(BLANK_UNIT), may_alias));

/* False until blank_init() has found wide instructions. */
extern ARCH_INTERNAL bool blank_wide;

void blank_init(void);

static inline bool blank_by_wide(void)
{
#if ARCH_HAS_WIDE
	return __builtin_expect(blank_wide, 1);
#else
	return false;
#endif
}

/*
 * Returns the middle one of one to three units, without a branch; of fewer than three it is the first or the
 * last.
 */
static inline blank_unit *blank_middle(const void *object, size_t bytes)
{
	return (blank_unit *)object + bytes / (2 * BLANK_UNIT);
}

static inline blank_unit *blank_last(const void *object, size_t bytes)
{
	return (blank_unit *)object + bytes / BLANK_UNIT - 1;
}

static inline void blank_fill_units(void *object, size_t bytes)
{
	blank_unit *unit = object, *end = unit + bytes / BLANK_UNIT;

	while (unit < end) {
		*unit++ = (blank_unit){0};
		/* Otherwise compilers turn the loop into a call of memset, with a frame for it. */
		ARCH_HIDE(unit);
	}
}

/* Zeroes every unit that the first `bytes` bytes touch, one at least. */
static inline __attribute__((always_inline)) void blank_fill(void *object, size_t bytes)
{
	size_t whole = (bytes + BLANK_UNIT - 1) & ~(size_t)(BLANK_UNIT - 1);

	if (whole < ARCH_WIDE_BYTES) {
		*(blank_unit *)object = *blank_middle(object, whole) = *blank_last(object, whole) =
			(blank_unit){0};
		return;
	}
#if ARCH_HAS_WIDE
	if (blank_by_wide()) {
		arch_clear_wide(object, whole);
		return;
	}
#endif
	blank_fill_units(object, whole);
}

static inline bool blank_is_units(const void *object, size_t bytes)
{
	const blank_unit *unit = object, *end = unit + bytes / BLANK_UNIT;
	blank_unit even = {0}, odd = {0};

	for (; unit + 1 < end; unit += 2) {
		even |= unit[0];
		odd |= unit[1];
	}
	if (unit < end)
		even |= *unit;
	even |= odd;
	return !(even[0] | even[1]);
}

/*
 * Four to six units, without a branch.  None of these loads crosses a cache line, as half of the 32-byte
 * loads would where objects of 80 bytes lie side by side.
 */
enum { BLANK_FEW_BYTES = 6 * BLANK_UNIT };

static inline bool blank_is_few(const void *object, size_t bytes)
{
	const blank_unit *unit = object, *last = blank_last(object, bytes);
	blank_unit all = (unit[0] | unit[1] | unit[2]) | (unit[3] | last[-1] | last[0]);

	return !(all[0] | all[1]);
}

/* Whether `bytes` bytes, one whole unit or more, are zero. */
static inline __attribute__((always_inline)) bool blank_is(const void *object, size_t bytes)
{
	if (bytes < ARCH_WIDE_BYTES) {
		blank_unit all = *(const blank_unit *)object | *blank_middle(object, bytes) |
				 *blank_last(object, bytes);

		return !(all[0] | all[1]);
	}
	if (bytes <= BLANK_FEW_BYTES)
		return blank_is_few(object, bytes);
#if ARCH_HAS_WIDE
	if (blank_by_wide())
		return arch_is_clear_wide(object, bytes);
#endif
	return blank_is_units(object, bytes);
}

#endif
