/* SPDX-License-Identifier: MIT */
/*
 * check/annotate: tells tools that watch a program's memory about the objects of caches.
 *
 *   AddressSanitizer   a free object is poisoned
 *   ThreadSanitizer    what happened to an object before its free precedes what happens to it after its next
 *                      allocation; what this library does to its own memory is ignored
 *   MemorySanitizer    an allocated object is uninitialised memory
 *   memcheck           objects are heap blocks
 *
 * A process is annotated when one of these is in it, as the sanitizer's functions (weak symbols) or
 * valgrind's answer tell.  Every cache of such a process is a checked one (object.h), all of whose calls
 * reach the slow paths.  In other processes nothing here is ever called but annotate_wanted(), once for each
 * cache.
 *
 * No other state; callable from any thread.
 */
#ifndef CPUSLAB_CHECK_ANNOTATE_H
#define CPUSLAB_CHECK_ANNOTATE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a tool is present. */
bool annotate_wanted(void);

/* Between these, ThreadSanitizer ignores this thread's accesses. */
void annotate_begin(void);
void annotate_end(void);

/* A new slab's object, free.  `readable`: it may be read while it is free. */
void annotate_made(void *object, size_t bytes, bool readable);
/* `kept`: it holds what its constructor or its last use left. */
void annotate_allocated(void *object, size_t bytes, bool kept);
void annotate_freed(void *object, size_t bytes, bool readable);
/* An allocated object that the library has filled with zeroes. */
void annotate_cleared(void *object, size_t bytes);
/* A free object whose memory leaves the cache. */
void annotate_gone(void *object, size_t bytes);

#endif
