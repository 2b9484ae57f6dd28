/* SPDX-License-Identifier: MIT */
/* guard/slot: what the files of this room share; see guard.h. */
#ifndef CPUSLAB_GUARD_SLOT_H
#define CPUSLAB_GUARD_SLOT_H

#include "guard/guard.h"

enum { SLOT_BYTES = GUARD_LARGEST, SLOT_STRIDE = SLOT_BYTES + OS_PAGE_BYTES };

/* Indexed by slot number. */
extern ARCH_INTERNAL struct guard_slot *guard_slots;

static inline char *slot_start(unsigned number)
{
	return (char *)guard.start + OS_PAGE_BYTES + (size_t)number * SLOT_STRIDE;
}

/*
 * The slot that contains an address of the pool; for an address in a guard page, the neighbour whose object
 * is nearer.
 */
struct guard_slot *slot_near(const void *address);

static inline uint32_t slot_state(const struct guard_slot *slot)
{
	/* Acquire: the thread that sees an object in use sees it complete. */
	return __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
}

/* One of two sides, at random. */
bool pick_side(void);

/* Opens the account of what guarding may cost. */
void cost_begin(void);
/* Credits, at a turn, what guarding may cost from now on; `now` in milliseconds. */
void cost_credit(uint64_t now);
/* Counts another guarded allocation if it is allowed; else returns false. */
bool cost_take_pick(void);
/* Adjusts the account in a forked child. */
void cost_repair(void);

/* Installs the fault handler, at first and whenever the program has installed its own. */
void fault_watch(void);

/* Reports what is wrong at an address, with the calling thread's stack and what is known of the slot. */
void report_damage(const struct guard_slot *slot, const void *address, const char *what);

#endif
