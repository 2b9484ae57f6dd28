/* SPDX-License-Identifier: MIT */
/*
 * kmem: what of the kernel's own spelling (include/cpuslab/kmem.h, gfp.h, mempool.h) does not fit an inline
 * function: allocation by flags, reallocation, memory pools.
 *
 * Owns no memory.  Called by programs.  Lock: each pool's own, held for a few instructions; an allocator is
 * never called under it.
 */
#ifndef CPUSLAB_KMEM_ROOM_H
#define CPUSLAB_KMEM_ROOM_H

#include <stdbool.h>

#include "cpuslab/kmem.h"

/*
 * With __GFP_NOFAIL and the right to wait: sleeps a little and returns true.  Not for more bytes than the
 * machine has, or the process may have: the kernel refuses those, too (vmalloc in mm/vmalloc.c).
 */
bool kmem_tries_again(gfp_t flags, size_t bytes);

#endif
