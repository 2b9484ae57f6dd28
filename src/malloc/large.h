/* SPDX-License-Identifier: MIT */
/*
 * large: objects beyond the size classes: page runs of the heap up to LARGE_RUN_MAX, mappings above.
 * Slow paths all; the library has started.  Sizes in bytes.
 */
#ifndef CPUSLAB_LARGE_H
#define CPUSLAB_LARGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "page/page.h"

enum { LARGE_RUN_MAX = 1 << 30 };

/* NULL when there is no memory, even after everything that can be given back was. */
void *large_alloc(size_t size, size_t alignment, bool *zeroed);
/* The same, if one was freed a moment ago that is expected back (see page_take_standby); else NULL. */
void *large_alloc_again(size_t size);
/*
 * Without waiting for another thread; NULL where that cannot be.  In debug mode what lay there before is
 * forgotten, and the object itself is not known: to be, it would have to wait.
 */
void *large_try_alloc(size_t size, size_t alignment);
/* For an object that has outgrown its place: one where it can grow. */
void *large_alloc_to_grow(size_t size);
/* The same: a mapping of its own whatever the size, which grows without a copy, if there can be one. */
void *large_alloc_mapping(size_t size);
/* Frees an object in a large run, if it is expected to be asked for again at once; else false. */
bool large_free_again(void *object);
/* Frees any pointer that no cache owns; aborts on one that is nobody's.  `stated` as in check_free. */
void large_free(void *object, size_t stated);
/* The bytes of its pages; 0 for a pointer that is not the start of a large object. */
size_t large_bytes(const void *object);
/* Those that the program may use, which are fewer where the rest is a red zone. */
size_t large_usable(const void *object);
/* The same of an object that is asked for with so many bytes. */
size_t large_granted(size_t size);
/* Grows an object where it is, without a lock, if it can; else false.  Never shrinks it. */
bool large_grow(void *object, size_t size);
/* Resizes where it is, or by moving the mapping; NULL when the contents must be copied. */
void *large_resize(void *object, size_t size);
/* How many calls of large_alloc and large_free there were. */
void large_calls(uint64_t *alloc_calls, uint64_t *free_calls);
/* Names these counters for a reader of this process's memory (see report/root.h). */
void large_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
