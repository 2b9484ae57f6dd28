/* SPDX-License-Identifier: MIT */
/*
 * magazine/reclaim: gives back hoards (depot/ebb.h).  For the magazine room's own files, beside
 * magazine_tick, magazine_heap_tick and magazine_trim, which slow paths call.
 *
 * By age: what no vCPU has asked for since the last tick goes from the words to the depots, and from these to
 * the slabs.  In an ebb (depot/ebb.h): what the program no longer needs, and then some pages of slabs.  What
 * leaves the depots goes by portions, one with each slow path.  When memory has ended: everything at once.
 *
 * Lock: the census lock, for every walk over caches and other vCPUs' words.  A slow path that finds it taken
 * goes on, since its holder does the same work.
 */
#ifndef CPUSLAB_MAGAZINE_RECLAIM_H
#define CPUSLAB_MAGAZINE_RECLAIM_H

#include <stdbool.h>

enum { RECLAIM_TICK = 100 }; /* milliseconds */

/*
 * Moves what caches with numbers below `end` have on the words of all reachable vCPUs to their depots.  With
 * the census lock.
 */
void reclaim_words(unsigned end);
/* Whether a batch of what is due to go back is left for the next magazine_tick(). */
bool reclaim_goes_on(void);
/* Moves every object from every reachable vCPU and depot to the slabs. */
void reclaim_all(void);

#endif
