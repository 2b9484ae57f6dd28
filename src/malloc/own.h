/* SPDX-License-Identifier: MIT */
/*
 * own: the library's functions of the malloc family under names that lead to no others.
 *
 * A program may replace the public ones (replaced.h), by an allocator that knows nothing of our objects: the
 * library itself calls these.
 */
#ifndef CPUSLAB_OWN_H
#define CPUSLAB_OWN_H

#include <stddef.h>

#include "arch/arch.h"

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmissing-attributes" /* another name may have fewer */
#endif

/* In the file that defines NAME: makes own_NAME another name of it. */
#define OWN(name) extern ARCH_INTERNAL __typeof__(name) own_##name __attribute__((alias(#name)))

extern ARCH_INTERNAL void *own_malloc(size_t size);
extern ARCH_INTERNAL void own_free(void *object);
extern ARCH_INTERNAL void *own_calloc(size_t count, size_t size);
extern ARCH_INTERNAL void *own_realloc(void *object, size_t size);
extern ARCH_INTERNAL void *own_aligned_alloc(size_t alignment, size_t size);
extern ARCH_INTERNAL size_t own_malloc_usable_size(void *object);
extern ARCH_INTERNAL void own_malloc_stats(void);

#endif
