/* SPDX-License-Identifier: MIT */
/*
 * check/annotate: what tools that watch a program's memory have to be told about the objects of caches.
 *
 *   AddressSanitizer   a free object is poisoned
 *   ThreadSanitizer    what was done to an object before its free comes before what is done to it after its
 * next allocation; what this library does to its own memory is none of its business MemorySanitizer    an
 * allocated object is not initialised memcheck           objects are heap blocks
 *
 * A process is annotated when one of these is in it, which is known by the sanitizer's functions (weak
 * symbols) or valgrind's answer.  Each cache of such a process is a checked one (object.h), whose calls all
 * come to the slow paths.  In other processes nothing here is ever called but annotate_wanted, once for each
 * cache.
 *
 * No state but that; callable from any thread.
 */
#ifndef CPUSLAB_CHECK_ANNOTATE_H
#define CPUSLAB_CHECK_ANNOTATE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a tool wants to be told. */
bool annotate_wanted(void);

/* In between, ThreadSanitizer takes no notice of this thread's accesses. */
void annotate_begin(void);
void annotate_end(void);

/* An object of a new slab, free.  `readable`: it may be looked at while it is free. */
void annotate_made(void *object, size_t bytes, bool readable);
/* `kept`: its content is that of its constructor, or of its last use. */
void annotate_allocated(void *object, size_t bytes, bool kept);
void annotate_freed(void *object, size_t bytes, bool readable);
/* A free object whose memory goes back to where it came from. */
void annotate_gone(void *object, size_t bytes);

#endif
