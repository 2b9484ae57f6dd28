/* SPDX-License-Identifier: MIT */
/* slab/shuffle: the order in which the objects of a new slab are handed out, where nobody is to guess it. */
#ifndef CPUSLAB_SHUFFLE_H
#define CPUSLAB_SHUFFLE_H

#include <stdint.h>

#include "os/os.h"

/* The numbers below `count`, 65536 at most, in random order. */
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
