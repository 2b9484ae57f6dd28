/* SPDX-License-Identifier: MIT */
/*
 * guard: allocations picked at random, each alone between inaccessible pages.
 *
 * Owns a pool of SLOTS: ranges of address space, each with a guard page before and behind it, all
 * inaccessible but for the pages of an object in use.  The object ends where its slot does, or begins where
 * it begins, at random, or as near to that as its alignment allows.  The rest of its pages is filled with a
 * known byte; pages beyond them are inaccessible like the guard pages.  So an access past the object,
 * before it, or after its free faults at once, or the write is found at the free.  A freed slot is reused
 * as late as possible: at most half of the slots are in use at any time, and the one that has been free
 * longest is next.
 *
 * Picks.  The fast paths count nothing.  An allocation reaches a slow path when a NULL lies above the
 * object in its magazine (a mark).  Slow paths place marks:
 *   - as a magazine is filled from the slabs, each of its objects is marked with probability 1/RATE;
 *   - one page in SPREAD, a power of two, is CHOSEN for some time: its map entry leads frees to the slow
 *     path, which marks the object with probability SPREAD/RATE.  The chosen pages are those whose number
 *     has a certain remainder, drawn at random, so that finding them takes no look at the others.
 * An allocation returns either a fresh object or one that was freed before, so each is picked with a mean
 * of one in RATE, whatever its size.  How pages and magazines are marked is the magazine room's business.
 *
 * Bounds.  Memory: at most twice as many pages as there are slots.  Mappings: two for each slot.  Time: at
 * most options.guard_cost thousandths of the program's CPU time, and at most options.guard_second picks a
 * second.  While either bound is reached guarding rests: nothing is picked, no marks are placed, and a
 * chosen page becomes an ordinary one at the first free that comes to the slow path for it.  Guarding
 * resumes, with other pages, at a turn (guard_turn).
 *
 * Called from slow paths by any thread, and in forked children.  No lock: a compare-and-exchange of a
 * slot's age claims the slot, and its contents are then its owner's alone.  A slot that a thread was about
 * to take or to give up when another thread forked is free in the child (guard_repair).
 */
#ifndef CPUSLAB_GUARD_H
#define CPUSLAB_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guard/state.h"

enum { GUARD_LARGEST = 256 << 10, GUARD_ALIGNMENT = 16 };

enum guard_slot_state { GUARD_UNUSED, GUARD_BUSY, GUARD_LIVE, GUARD_FREED };

/* Which thread did something with an object, and when. */
struct guard_owner {
	uint32_t stack; /* its number in check/stack.h */
	uint32_t thread;
	uint64_t when; /* milliseconds */
};

struct guard_slot {
	uint32_t state; /* enum guard_slot_state */
	uint32_t reported;
	char *object;
	size_t requested;  /* bytes that the program may use */
	const void *owner; /* the object's owner, as the rooms above define it */
	struct guard_owner allocated, freed;
};

struct guard_statistics {
	uint64_t picked;       /* guarded allocations */
	uint64_t refused;      /* picks without a free slot or memory */
	uint64_t passed;       /* marks met while guarding rests */
	uint64_t spent;        /* CPU time of guarding in nanoseconds; 0 where it is not bounded */
	uint64_t live, bytes;  /* objects in use now, and their requested bytes */
	uint64_t pages, slots; /* accessible pages now, and slots of the pool */
};

/* Sets up guarding as the option guard says; before other threads exist. */
void guard_begin(void);

/* ---- what it costs --------------------------------------------------------------------------------- */

/*
 * guard_meter returns the calling thread's CPU time; guard_charge charges guarding what the thread has used
 * since.
 */
uint64_t guard_meter(void);
void guard_charge(uint64_t since);
/* Charges a short slow path that was taken only for guarding. */
void guard_charge_estimate(void);

/* ---- picks ------------------------------------------------------------------------------------------- */

/* Returns whether to mark an object of a chosen page that is being freed. */
bool guard_picks_freed(void);
/*
 * Returns which of the objects taken from the slabs to mark: the one of this number, from 0, and each
 * RATE-th after it.
 */
unsigned guard_picks_fresh(void);
/*
 * Credits what guarding may cost, and chooses other pages, which the caller must then find.  False where
 * another thread does so, or guarding rests.
 */
bool guard_turn(uint64_t now, size_t heap_pages);

/* ---- guarded objects ------------------------------------------------------------------------------- */

/*
 * Returns whether a slot has room for this many bytes wherever the alignment, a power of two, lets them
 * begin.
 */
static inline bool guard_fits(size_t requested, size_t alignment)
{
	size_t skipped = alignment > OS_PAGE_BYTES ? alignment - OS_PAGE_BYTES : 0;

	return requested <= GUARD_LARGEST && skipped < GUARD_LARGEST &&
	       ((requested + OS_PAGE_BYTES - 1) & -(size_t)OS_PAGE_BYTES) <= GUARD_LARGEST - skipped;
}
/* Returns a zeroed object, aligned to a power of two and to 16; NULL where this one cannot be guarded. */
void *guard_alloc(size_t requested, size_t alignment, const void *owner);
/*
 * Frees an object; `stated` is its size as the caller states it, SIZE_MAX for none.  If it is not in use,
 * or was overrun, reports that and stops, or continues under the option debug_continue.
 */
void guard_free(void *object, size_t stated);
/* The owner of the object in use at an address, or of the last one there; NULL if there was none. */
const void *guard_owner(const void *object);
/* Calls `visit` for each of an owner's objects in use; returns how many there are. */
unsigned guard_visit_live(const void *owner, void (*visit)(void *object, void *argument), void *argument);

/* The bytes that may be used of an object in use; 0 for any other address. */
size_t guard_usable(const void *object);
/* The start of the object in use that contains an address; NULL for none. */
void *guard_object_of(const void *address);

/* Repairs the room's state in a forked child, where only the caller's thread is left. */
void guard_repair(void);

void guard_statistics(struct guard_statistics *statistics);
/* Names all this for an outside reader of this process's memory (see report/root.h). */
void guard_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
