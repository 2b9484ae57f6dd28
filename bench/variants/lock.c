/* SPDX-License-Identifier: MIT */
/*
 * Compares and stores both words under a lock.  Seed 000 emulates its compare-and-exchange with interrupts
 * disabled; in a program a lock must keep others off a vCPU.
 */
#define VARIANT_NAME lock
#include "names.h"

#include "pair_front.h"

static inline bool pair_replace(struct pair_front *front, const uint64_t expected[2],
				const uint64_t desired[2])
{
	cpuslab_spin_lock(&front->lock);
	bool same = front->pair[0] == expected[0] && front->pair[1] == expected[1];

	if (same) {
		__atomic_store_n(&front->pair[0], desired[0], __ATOMIC_RELAXED);
		__atomic_store_n(&front->pair[1], desired[1], __ATOMIC_RELEASE);
	}
	cpuslab_spin_unlock(&front->lock);
	return same;
}

#define LINKED_FRONT  "pair_front.h"
#define VARIANT_TITLE "lock, unlock"
#include "variant.h"
