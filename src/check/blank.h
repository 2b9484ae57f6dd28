/* SPDX-License-Identifier: MIT */
/*
 * check/blank: memory that is to be all zero.  Of objects, which start at multiples of 16 bytes and take such
 * multiples.  Pure functions of their arguments.
 */
#ifndef CPUSLAB_CHECK_BLANK_H
#define CPUSLAB_CHECK_BLANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { BLANK_UNIT = 16, BLANK_BY_UNITS = 256 };

typedef uint64_t blank_unit __attribute__((vector_size(BLANK_UNIT), may_alias));

/* Zeroes the units that the first `bytes` bytes lie in; at least one. */
static inline void blank_fill(void *object, size_t bytes)
{
	blank_unit *unit = object, *end = unit + (bytes + BLANK_UNIT - 1) / BLANK_UNIT;

	if (bytes > BLANK_BY_UNITS) {
		memset(object, 0, (size_t)((char *)end - (char *)object));
		return;
	}
	do
		*unit++ = (blank_unit){0};
	while (unit < end);
}

/* Whether `bytes` bytes, in whole units, are zero. */
static inline bool blank_is(const void *object, size_t bytes)
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

#endif
