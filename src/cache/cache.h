/* SPDX-License-Identifier: MIT */
/*
 * cache: object caches as callers see them (include/cpuslab/cache.h): arguments, errors, merging, reports.
 *
 * Owns two kinds of metadata.  A memory, `struct cache_memory`, is what objects come from: an engine's cache
 * and its name.  A handle, `struct cpuslab_cache`, is what a program has: its own name and size, and copies
 * of what the fast paths need of the memory.  Caches that are alike share a memory, which lists their
 * handles.
 *
 * Called by programs, from any thread.  Has no lock of its own, but holds magazine_keep_caches() to visit
 * caches; to destroy one, so that no visitor has a cache that is gone; and to create one that may share a
 * memory, lest it shares one that is about to go.
 *
 * Fork: a handle is complete before its memory lists it, and a memory before the magazine room does; both are
 * delisted before they are freed; and every list changes by one store.
 */
#ifndef CPUSLAB_CACHE_ROOM_H
#define CPUSLAB_CACHE_ROOM_H

#include <cpuslab/cache.h>

#include "linked/linked.h"
#include "magazine/magazine.h"

struct cache_memory {
	struct cpuslab_cache *handles;
	struct cache_memory *next_alike; /* in a chain of memories that may be shared */
	uint32_t flags;                  /* those that must be the same in caches that share it */
	uint32_t bytes;                  /* of this block of metadata */
	uint32_t stride;                 /* distance between objects */
	bool shareable;
	uint8_t engine;
	const char *name;   /* the first cache's; stored behind the engine's cache */
	struct cache cache; /* of the magazine engine; a linked_cache begins right behind `name` instead */
};

enum { CACHE_MEMORY_HEAD = offsetof(struct cache_memory, name) + sizeof(const char *) };

static inline struct linked_cache *cache_linked(const struct cache_memory *memory)
{
	return (struct linked_cache *)((char *)memory + CACHE_MEMORY_HEAD);
}

struct cpuslab_cache {
	/* Copies for the fast paths, all on one cache line. */
	const void *map;
	uint16_t offset, id;
	uint32_t size; /* as requested */

	struct cache_memory *memory;
	struct cpuslab_cache *next; /* of the same memory */
	void (*constructor)(void *object);
	uint32_t bytes;        /* of this block of metadata */
	bool is_linked;        /* linked engine */
	uint8_t alignment_log; /* of its objects */
	char name[];
};

#endif
