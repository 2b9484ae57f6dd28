/* SPDX-License-Identifier: MIT */
/* slab/shuffle: a random order in which the objects of a new slab are handed out, so that none can guess it.
 */
#ifndef CPUSLAB_SHUFFLE_H
#define CPUSLAB_SHUFFLE_H

#include <stdint.h>

#include "os/os.h"

/* Fills `order` with the numbers below `count`, at most 65536, in random order. */
static inline void shuffle_numbers(uint16_t *order, unsigned count)
{
	uint64_t random = os_random();

	for (unsigned i = 0; i < count; i++) {
		random = random * 0x5851f42d4c957f2du + 0x14057b7ef767814fu;
		unsigned at = (unsigned)((random >> 32) * (i + 1) >> 32);

		order[i] = order[at];
		order[at] = (uint16_t)i;
	}
}

#endif
