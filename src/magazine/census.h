/* SPDX-License-Identifier: MIT */
/*
 * magazine/census: the list of all caches.  For the magazine room's own files.
 *
 * Owns the caches' numbers: makes a cache, changes its tunables, and takes it out of use.  Lock: census_lock
 * for the list; with it no cache goes away, and one thread at a time looks at other vCPUs' words.  Who only
 * wants the cache of a number reads the list without it (magazine_cache_number).
 */
#ifndef CPUSLAB_MAGAZINE_CENSUS_H
#define CPUSLAB_MAGAZINE_CENSUS_H

#include "magazine/magazine.h"

/* Cache numbers start after the page ids that mean no cache. */
enum { CENSUS_FIRST = PAGE_ID_RESERVED / PAGE_ID_STEP };

extern ARCH_INTERNAL struct cache *census_caches[VCPU_CACHES]; /* by number; NULL where a number is free */
extern ARCH_INTERNAL unsigned census_count;                    /* numbers of caches are below this */
extern ARCH_INTERNAL unsigned census_lasting; /* those of malloc's below this; it never becomes less */
extern ARCH_INTERNAL struct cpuslab_spinlock census_lock;

/* The cache that a word belongs to, which a hardened one's second word does as well; NULL for none. */
static inline struct cache *census_of_word(unsigned number)
{
	struct cache *before = census_caches[number - 1];

	if (census_caches[number])
		return census_caches[number];
	return before && before->returns_number == number ? before : NULL;
}

#endif
