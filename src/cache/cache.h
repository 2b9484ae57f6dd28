/* SPDX-License-Identifier: MIT */
/*
 * cache: what callers of object caches see (include/cpuslab/cache.h): arguments, errors, reports.
 *
 * Owns the handles, one block of metadata for each cache with its name behind it.  A handle begins with the
 * magazine room's cache, so that the fast paths need nothing else.
 *
 * Called by programs, from any thread.  Lock: none of its own; magazine_keep_caches() while caches are
 * visited and while one is destroyed, so that a visitor never has a cache that is gone.
 *
 * Fork: a handle is complete before its cache is in the magazine room's list, and leaves that list before it
 * is freed.
 */
#ifndef CPUSLAB_CACHE_ROOM_H
#define CPUSLAB_CACHE_ROOM_H

#include <cpuslab/cache.h>

#include "magazine/magazine.h"

struct cpuslab_cache {
	struct cache cache;
	void (*constructor)(void *object);
	uint32_t size; /* as asked for */
	uint32_t flags;
	uint32_t bytes; /* of this block of metadata */
	char name[];
};

#endif
