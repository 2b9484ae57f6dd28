/* SPDX-License-Identifier: MIT */
/*
 * replaced: which functions of the malloc family and operators a program has replaced by its own.
 *
 * glibc and libstdc++ make some of these functions of others: reallocarray calls realloc, free_sized calls
 * free, new[] calls new, new calls malloc.  They call them by their public names, so a program that replaces
 * realloc has replaced reallocarray as well.  Ours do the same.  While nothing is replaced, all of them end
 * in the same hit path: each has that path inlined, and only its misses come by the public names.  Once
 * something is replaced, none may hit: their limits (forward_limit in page.h and size_class.h) stay zero.
 *
 * A program's function is found in front of ours in the dynamic linker's order, or in the program's own file,
 * where ours are weak.
 */
#ifndef CPUSLAB_REPLACED_H
#define CPUSLAB_REPLACED_H

#include <stdbool.h>

/* Returns whether a function that others are made of is the program's. */
bool replaced_any(void);
/* Returns whether operator new in this form, or what the array form is made of, is the program's. */
bool replaced_new(bool array, bool aligned);
/* Returns whether aligned_alloc is the program's. */
bool replaced_aligned_alloc(void);

#endif
