/* SPDX-License-Identifier: MIT */
/* guard/slot: what the files of this room share; see guard.h. */
#ifndef CPUSLAB_GUARD_SLOT_H
#define CPUSLAB_GUARD_SLOT_H

#include "guard/guard.h"

enum { SLOT_BYTES = GUARD_LARGEST, SLOT_STRIDE = SLOT_BYTES + OS_PAGE_BYTES };

/* By number; their first bytes are accessible while an object lies there. */
extern ARCH_INTERNAL struct guard_slot *guard_slots;

static inline char *slot_start(unsigned number)
{
	return (char *)guard.start + OS_PAGE_BYTES + (size_t)number * SLOT_STRIDE;
}

/*
 * The slot that an address of the pool lies in, or in a guard page of which: then that of the nearer object
 * of the two that there are.
 */
struct guard_slot *slot_near(const void *address);

static inline uint32_t slot_state(const struct guard_slot *slot)
{
	/* Acquire: an object that is in use has been made, by whichever thread. */
	return __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
}

/* One of two sides, at random. */
bool pick_side(void);

/* Opens the account of what guarding may cost. */
void cost_begin(void);
/* At a turn, of a time in milliseconds: what it may cost from now on. */
void cost_credit(uint64_t now);
/* Whether one more may be guarded; it then counts. */
bool cost_take_pick(void);
/* In a forked child. */
void cost_repair(void);

/*
 * Puts the handler of faults in its place: first of all, and again where the program has put its own there.
 */
void fault_watch(void);

/* Reports what is wrong at an address, with the calling thread's stack, and what is known of the slot. */
void report_damage(const struct guard_slot *slot, const void *address, const char *what);

#endif
