/* SPDX-License-Identifier: MIT */
/*
 * depot: where magazines wait between the vCPUs and the slabs.
 *
 * Owns magazines and, for each cache, a stack of filled and a stack of empty ones.  A magazine has one owner
 * at a time: a vCPU's word (loaded), a vCPU's spare word, a depot's stack, or the thread that has it in hand.
 *
 * Called by the magazine room, from any thread, with magazines in hand.  Lock: depot.lock for the stacks,
 * held for a few instructions; never together with the slab cache's lock.
 *
 * How much may wait here?  Nothing limits a burst, since giving objects to slabs and taking them back costs
 * more than keeping them.  But what has not been needed since the last look goes to the slabs: at every tick
 * (depot_age), and whenever the heap is about to grow instead of reusing it (see page_has_grown).
 *
 * Fork: both stacks change by one store of their head; depot_repair() counts again.
 */
#ifndef CPUSLAB_DEPOT_H
#define CPUSLAB_DEPOT_H

#include "slab/slab.h"

/*
 *   slot[0] is NULL, slot[1] to slot[capacity] hold objects up to `count`, and slot[capacity + 1] holds the
 *   magazine's own address with bit 0 set: the end mark, which tells a push that the magazine is full, and a
 *   slow path which magazine a word points into.
 */
struct magazine {
	struct magazine *next; /* in a depot's stack */
	uint16_t capacity;
	uint16_t count; /* true only while the magazine is in hand or in a depot */
	uint32_t padding;
	uintptr_t self; /* the end mark once more, just below slot[0] */
	void *slot[];
};

struct depot {
	struct slab_cache slabs;

	struct cpuslab_spinlock lock __attribute__((aligned(64)));
	struct magazine *filled, *empty;
	uint32_t filled_count, empty_count;
	uint32_t filled_low; /* the fewest since the last look */
	uint16_t capacity;   /* of this cache's magazines, in objects */
	uint64_t refills, drains, lock_acquires;
};

/* Magazines of at most this many objects: larger blocks of metadata are not reused. */
enum { DEPOT_CAPACITY_MAX = 500 };

/* `capacity` of its magazines; 0 for what suits the size. */
void depot_init(struct depot *depot, const struct slab_traits *traits, uint16_t capacity);

/* Takes a filled magazine, and in return leaves an empty one (or none: NULL); NULL when there is none. */
struct magazine *depot_take_filled(struct depot *depot, struct magazine *empty);
/* Leaves a filled magazine (or none: NULL), and takes an empty one, new if need be; NULL: out of memory. */
struct magazine *depot_take_empty(struct depot *depot, struct magazine *filled);
/* Leaves a magazine, filled or not. */
void depot_put(struct depot *depot, struct magazine *magazine);

/* Fills an empty magazine to half from the slabs; false when the system has no more memory. */
bool depot_refill(struct depot *depot, struct magazine *magazine);
/* Gives all objects of a magazine to the slabs. */
void depot_drain(struct depot *depot, struct magazine *magazine);

/* Drains what was not needed since the last call; returns whether anything was. */
bool depot_age(struct depot *depot);
/* Drains and frees everything. */
void depot_empty(struct depot *depot);

struct depot_statistics {
	uint64_t filled, empty, objects, refills, drains, lock_acquires;
};
void depot_statistics(struct depot *depot, struct depot_statistics *statistics);
void depot_repair(struct depot *depot);

static inline uintptr_t magazine_end_mark(const struct magazine *magazine)
{
	return (uintptr_t)magazine | 1;
}

#endif
