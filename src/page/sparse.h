/* SPDX-License-Identifier: MIT */
/*
 * sparse: memory that may be large and mostly untouched.  Whatever reads as zero is not written to a place
 * that does so already: untouched pages take no memory for being read.
 */
#ifndef CPUSLAB_SPARSE_H
#define CPUSLAB_SPARSE_H

#include <stddef.h>

/* Copies between places that do not overlap. */
void sparse_copy(void *to, const void *from, size_t bytes);
void sparse_clear(void *start, size_t bytes);

#endif
