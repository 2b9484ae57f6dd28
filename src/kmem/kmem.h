/* SPDX-License-Identifier: MIT */
/*
 * kmem: those parts of the kernel's own interface (include/cpuslab/kmem.h, gfp.h, mempool.h) that do not fit
 * inline functions: allocation by flags, reallocation, memory pools, sheaves.
 *
 * Owns no memory.  Called by programs.  Locks: each pool's own, held for a few instructions; no allocator is
 * called under it.
 */
#ifndef CPUSLAB_KMEM_ROOM_H
#define CPUSLAB_KMEM_ROOM_H

#include <stdbool.h>

#include "cpuslab/kmem.h"

/*
 * With __GFP_NOFAIL and permission to wait: sleeps briefly and returns true.  But not for more bytes than the
 * machine has, or the process may have: the kernel refuses those, too (vmalloc in mm/vmalloc.c).
 */
bool kmem_tries_again(gfp_t flags, size_t bytes);

#endif
