/* SPDX-License-Identifier: MIT */
/*
 * cache: what callers of object caches see (include/cpuslab/cache.h): arguments, errors, merging, reports.
 *
 * Owns two kinds of metadata.  A `struct cache_memory` is what objects come from: an engine's cache and its
 * name.  A handle, `struct cpuslab_cache`, is what a program has: its own name and size, and copies
 * of what the fast paths need of the memory.  Caches that are alike share a memory: each is a handle in its
 * list.
 *
 * Called by programs, from any thread.  Lock: none of its own; magazine_keep_caches() while caches are
 * visited, while one is destroyed, so that a visitor never has a cache that is gone, and while one is created
 * that may share its memory, so that it does not share what is about to go.
 *
 * Fork: a handle is complete before it is in its memory's list, and a memory before it is in the magazine
 * room's; both leave before they are freed, and every list changes by one store.
 */
#ifndef CPUSLAB_CACHE_ROOM_H
#define CPUSLAB_CACHE_ROOM_H

#include <cpuslab/cache.h>

#include "linked/linked.h"
#include "magazine/magazine.h"

struct cache_memory {
	struct cpuslab_cache *handles;
	struct cache_memory *next_alike; /* in its chain of the memories that others may share */
	uint32_t flags;                  /* those that must be the same in caches that share it */
	uint32_t bytes;                  /* of this block of metadata */
	uint32_t stride;                 /* from an object to the next */
	bool shareable;
	uint8_t engine;
	const char *name;   /* that of the first cache; behind what the engine needs */
	struct cache cache; /* of the magazine engine; the linked engine's begins right behind the name */
};

enum { CACHE_MEMORY_HEAD = offsetof(struct cache_memory, name) + sizeof(const char *) };

static inline struct linked_cache *cache_linked(const struct cache_memory *memory)
{
	return (struct linked_cache *)((char *)memory + CACHE_MEMORY_HEAD);
}

struct cpuslab_cache {
	/* Copies, for the fast paths: all that they need lies in one cache line. */
	const void *map;
	uint16_t offset, id;
	uint32_t size; /* as asked for */

	struct cache_memory *memory;
	struct cpuslab_cache *next; /* of the same memory */
	void (*constructor)(void *object);
	uint32_t bytes;        /* of this block of metadata */
	bool is_linked;        /* its engine */
	uint8_t alignment_log; /* of its objects */
	char name[];
};

#endif
