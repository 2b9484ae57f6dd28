/* SPDX-License-Identifier: MIT */
/*
 * large: objects beyond the size classes: page runs of the heap up to LARGE_RUN_MAX, mappings above.  Slow
 * paths all; the library has started.  Sizes are in bytes.
 */
#ifndef CPUSLAB_LARGE_H
#define CPUSLAB_LARGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "page/page.h"

enum {
	LARGE_RUN_MAX = 1 << 30,
	LARGE_ALIGNMENT = 64, /* of every large object */
	/*
	 * From these bytes on an object that cannot grow in the heap becomes a mapping, and its pages move.
	 * That takes 20 us for 1 MiB and 54 us for 16 MiB, copying to pages that are resident 34 us and 3.7
	 * ms, to fresh ones 0.4 and 20 ms (Xeon, Linux 6.18, 2026-11-27).  But the next such object then
	 * finds no resident pages where this one grew: from 16 MiB on, vectors that come and go took 200
	 * times as long (docs/performance/large-blocks.md, "realloc").  Smaller ones are copied sparsely.
	 */
	LARGE_MOVES_FROM = 32 << 20,
};

/* Returns NULL when there is no memory even after everything that can be given back has been. */
void *large_alloc(size_t size, size_t alignment, bool *zeroed);
/* The same from an object freed a moment ago and expected back (see page_take_standby); else NULL. */
void *large_alloc_again(size_t size);
/*
 * Never waits for another thread; returns NULL where it would have to.  In debug mode the earlier object at
 * that address is forgotten and the new one has no record, since making one could wait.
 */
void *large_try_alloc(size_t size, size_t alignment);
/* Allocates where an object that has outgrown its place can grow further. */
void *large_alloc_to_grow(size_t size);
/* The same, as a mapping whatever the size, which grows without a copy; if there can be one. */
void *large_alloc_mapping(size_t size);
/* Frees an object in a large run if it is expected to be asked for again at once; else returns false. */
bool large_free_again(void *object);
/* Frees any pointer that no cache owns; aborts if it is not an object.  `stated` as in check_free. */
void large_free(void *object, size_t stated);
/* The bytes of an object's memory; 0 for a pointer that is not the start of a large object. */
size_t large_bytes(const void *object);
/* Returns the large object that has an address in its first two pages, or at least its first 4096 bytes; else
 * NULL. */
void *large_object_of(const void *address);
/* The bytes that the program may use, fewer where the rest is a red zone. */
size_t large_usable(const void *object);
/* The same for an object that would be requested with `size`. */
size_t large_granted(size_t size);
/* Grows an object in place, without a lock, if possible; else returns false.  Never shrinks it. */
bool large_grow(void *object, size_t size);
/* Resizes in place or by moving the mapping; NULL when the contents must be copied. */
void *large_resize(void *object, size_t size);
/* Counts of the calls of large_alloc and large_free. */
void large_calls(uint64_t *alloc_calls, uint64_t *free_calls);
/* Names these counters for an outside reader of this process's memory (see report/root.h). */
void large_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
