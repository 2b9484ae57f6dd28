/* SPDX-License-Identifier: MIT */
/*
 * magazine/census: the list of all caches.  For the magazine room's own files.
 *
 * Owns the caches' numbers: creates caches, changes their tunables, and takes them out of use.  Lock:
 * census_lock for the list; while it is held no cache goes away, and its holder alone empties other vCPUs'
 * words.  Looking up the cache of a number takes no lock (magazine_cache_number).
 */
#ifndef CPUSLAB_MAGAZINE_CENSUS_H
#define CPUSLAB_MAGAZINE_CENSUS_H

#include "magazine/magazine.h"

/* Cache numbers begin after those whose offsets are page ids without a cache. */
enum { CENSUS_FIRST = PAGE_ID_RESERVED / PAGE_ID_STEP };

extern ARCH_INTERNAL struct cache *census_caches[VCPU_CACHES]; /* by number; NULL where a number is free */
extern ARCH_INTERNAL unsigned census_count;                    /* cache numbers are below this */
extern ARCH_INTERNAL unsigned census_lasting; /* malloc's numbers are below this; it never decreases */
extern ARCH_INTERNAL struct cpuslab_spinlock census_lock;

/* The cache that a word belongs to, which may be a hardened cache's second word; NULL for none. */
static inline struct cache *census_of_word(unsigned number)
{
	struct cache *before = census_caches[number - 1];

	if (census_caches[number])
		return census_caches[number];
	return before && before->returns_number == number ? before : NULL;
}

#endif
