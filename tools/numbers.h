/* SPDX-License-Identifier: MIT */
/* Numbers on a command line: each function parses the whole text, or returns false. */
#ifndef CPUSLAB_TOOLS_NUMBERS_H
#define CPUSLAB_TOOLS_NUMBERS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Digits only: no sign, no space. */
static inline bool parse_count(const char *text, uint64_t *count, char **end)
{
	errno = 0;
	*count = strtoull(text, end, 10);
	return *text >= '0' && *text <= '9' && !errno;
}

/* A number of bytes, with K, M or G for powers of 1024. */
static inline bool parse_bytes(const char *text, uint64_t *bytes)
{
	char *end;
	unsigned shift = 0;

	if (!parse_count(text, bytes, &end))
		return false;
	if (*end == 'K' || *end == 'k')
		shift = 10;
	else if (*end == 'M' || *end == 'm')
		shift = 20;
	else if (*end == 'G' || *end == 'g')
		shift = 30;
	if (end[shift != 0] || *bytes > UINT64_MAX >> shift)
		return false;
	*bytes <<= shift;
	return true;
}

/* From `least` to `most`, possibly with a fraction. */
static inline bool parse_seconds(const char *text, double *seconds, double least, double most)
{
	char *end;

	*seconds = strtod(text, &end);
	return end != text && !*end && *seconds >= least && *seconds <= most;
}

#endif
