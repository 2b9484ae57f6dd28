/* SPDX-License-Identifier: MIT */
/*
 * policy: the constants that tune how much depots keep, how large magazines become, and when.  Each with its
 * unit, its reason, and the page and heading of docs/performance with the measurement that set it.  Private
 * to depot.c.
 */
#ifndef CPUSLAB_DEPOT_POLICY_H
#define CPUSLAB_DEPOT_POLICY_H

enum {
	/* ---- size of magazines; magazines.md, "Magazines begin small and grow" --------------------------
	 */

	/* bytes of metadata: the block of a magazine as a cache begins, and at most ("Up to 500 objects") */
	FIRST_BLOCK = 2048,
	LARGEST_BLOCK = 4096,
	/* bytes of objects in a magazine as a cache begins: all vCPUs' are lost to the program */
	FIRST_BYTES = 4 << 10,
	/* bytes of objects in a magazine at most ("Larger and smaller at most") */
	MOST_BYTES = 128 << 10,
	/*
	 * objects that a magazine may have in any case, if they are 64 KiB or less: with three, every third
	 * call would miss ("Magazines of large objects")
	 */
	MOST_LARGE = 11,
	MOST_LARGE_BYTES = MOST_LARGE * (64 << 10),
	/*
	 * parts of what the heap can become that FIRST_BYTES and MOST_BYTES are at most: each thread slot
	 * keeps two magazines of each class
	 */
	FIRST_PART = 4096,
	MOST_PART = 1024,
	/*
	 * times the objects in all vCPUs' magazines of the next size that must be in use to earn it, up to
	 * the largest one to begin with and beyond: what they hold is a small part then ("Up to 500 objects")
	 */
	PLENTY = 4,
	PLENTY_BEYOND_FIRST = 8,
	/* bytes of the next size that each recent miss earns: misses take a share of the time ("Growing
	   sooner") */
	BYTES_PER_MISS = 2,
	/*
	 * ticks without a miss after which magazines shrink; more than one: a thread that has lost its CPU
	 * for long has not missed either
	 */
	IDLE_TICKS = 4,

	/* ---- refills; magazines.md, "Refills" -----------------------------------------------------------
	 */

	/* bytes of a refill: not much more at once than the program is likely to want soon */
	BATCH_BYTES = 8 << 10,
	/* objects of a refill, at least */
	SMALLEST_BATCH = 4,

	/* ---- how much waits; depots.md, "How much may wait in full magazines" ---------------------------
	 */

	/*
	 * bytes of an object from which all may wait in any order: a slot is little beside it, and neighbours
	 * matter little to it
	 */
	BULKY = 256,
	/* part of the allocated objects that may wait at first: more would make a program grow as it frees */
	WAITING_PART = 8,
	/*
	 * part of the allocated objects that DEPOT_PORTION is at most where full magazines gather
	 * (returning-memory.md, "Portions of objects")
	 */
	GATHERING_PART = 16,
	/* empty magazines kept where full ones gather or leave, for exchange with the next full ones */
	EMPTY_KEPT = 6,

	/* ---- order; depots.md, "What went: swings, and the order of flows" ------------------------------
	 */

	/*
	 * bytes of objects that wait in all depots for each vCPU, whatever their order: about what a core has
	 * in caches of its own
	 */
	SCATTERED_BYTES = 1 << 20,
	/* pairs of objects looked at, on the two or three cache lines of a magazine that are needed first */
	SCATTERED_LOOKS = 11,
	/* pairs further apart than a page that make a magazine scattered: in order there is one where a slab
	   ends */
	SCATTERED_JUMPS = 2,
};

#endif
