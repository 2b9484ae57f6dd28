/* SPDX-License-Identifier: MIT */
/*
 * guard: some allocations, picked at random, lie alone between pages that nobody may touch.
 *
 * Owns a pool of SLOTS: stretches of address space, each with a guard page before and behind it, none of
 * which may be accessed but for the pages of an object that is in use.  The object ends where its slot does,
 * or begins where it begins, at random, or as near to that as its alignment lets it; the rest of its pages is
 * filled with a known byte, and those beyond are out of reach as the guard pages are.  Writing past it,
 * or before it, or after it was freed thus faults at once, or is found as it is freed.  A slot that was freed
 * is used again as late as possible: at most half of the slots are in use at any time, and the one that has
 * been free for longest is next.
 *
 * Who is picked.  Nothing counts on the fast paths.  An allocation comes to a slow path where NULL stands
 * above the object in its magazine (a mark), and marks are put by slow paths:
 *   - as a magazine is filled from the slabs, each of its objects gets one with the probability 1/RATE;
 *   - one page in SPREAD, a power of two, is CHOSEN for some time: its map entry leads frees to the slow
 * path, which marks the object with the probability SPREAD/RATE.  Chosen are the pages whose number leaves a
 *     certain remainder, drawn at random, so that nobody need look at the others to find them.
 * What is allocated is a fresh object or one that was freed before, so that each allocation is picked with
 * the mean of one in RATE, whatever its size.  How pages and magazines are marked is the magazine room's
 * business.
 *
 * Memory is bounded: at most twice as many pages as there are slots.  So are mappings: two for each slot.  So
 * is time: guarding takes at most options.guard_cost thousandths of the program's CPU time, and at most
 * options.guard_second picks in a second.  While either bound is reached it rests: nothing is picked, no
 * marks are put, and a chosen page becomes one as others are at the first free that comes to the slow path
 * for it.  It goes on, with other pages, at a turn.
 *
 * Called from slow paths by any thread, and in forked children.  No lock: a slot is claimed by a
 * compare-and-exchange of its age, and what is written to it then is its owner's alone.  A slot that a thread
 * which a fork leaves behind was about to take or to leave is free in the child (guard_repair).
 */
#ifndef CPUSLAB_GUARD_H
#define CPUSLAB_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"
#include "os/os.h"

enum { GUARD_LARGEST = 256 << 10, GUARD_ALIGNMENT = 16 };

enum guard_slot_state { GUARD_UNUSED, GUARD_BUSY, GUARD_LIVE, GUARD_FREED };

/* Who did something with an object, and when. */
struct guard_owner {
	uint32_t stack; /* a number of check/stack.h */
	uint32_t thread;
	uint64_t when; /* milliseconds */
};

struct guard_slot {
	uint32_t state; /* enum guard_slot_state */
	uint32_t reported;
	char *object;
	size_t requested;  /* bytes that are the program's */
	const void *owner; /* whose object it is, as the rooms above say */
	struct guard_owner allocated, freed;
};

struct guard_statistics {
	uint64_t picked;       /* allocations that were guarded */
	uint64_t refused;      /* picks for which there was no slot, or no memory */
	uint64_t passed;       /* marks that were come upon while it rests */
	uint64_t spent;        /* CPU time that guarding took, in nanoseconds; 0 where it is not bounded */
	uint64_t live, bytes;  /* objects in use now, and what was asked for them */
	uint64_t pages, slots; /* accessible now, and of the pool */
};

struct guard_state {
	uintptr_t start; /* of the address space of all slots */
	size_t bytes;    /* 0: nothing is guarded */
	unsigned slots, rate;
	unsigned spread;  /* one page in so many is chosen; a power of two, at most the rate */
	uintptr_t chosen; /* which ones: the remainder of their number, divided by that */
	uint64_t secret;
	uint64_t turn; /* when others will be, in milliseconds */
};
extern ARCH_INTERNAL struct guard_state guard;

/* What guarding has cost and taken, and may: see cost.c. */
struct guard_account {
	uint64_t spent, allowed; /* CPU time in nanoseconds; UINT64_MAX without a bound */
	uint64_t taken, granted; /* GUARD_PICK for each pick; the same */
};
enum { GUARD_PICK = 1000 }; /* in a millisecond as many are granted as picks in a second */
extern ARCH_INTERNAL struct guard_account guard_account;

/* As the option guard says; before other threads are there. */
void guard_begin(void);

static inline bool guard_is_on(void)
{
	return __builtin_expect(guard.bytes != 0, 0);
}

/* Whether an address lies in the pool. */
static inline bool guard_contains(const void *address)
{
	return (uintptr_t)address - guard.start < guard.bytes;
}

/* ---- what it costs --------------------------------------------------------------------------------- */

/* False while it rests. */
static inline bool guard_goes_on(void)
{
	return __atomic_load_n(&guard_account.spent, __ATOMIC_RELAXED) <=
		       __atomic_load_n(&guard_account.allowed, __ATOMIC_RELAXED) &&
	       __atomic_load_n(&guard_account.taken, __ATOMIC_RELAXED) + GUARD_PICK <=
		       __atomic_load_n(&guard_account.granted, __ATOMIC_RELAXED);
}

/* The calling thread's CPU time, and: what it has used since is what guarding costs. */
uint64_t guard_meter(void);
void guard_charge(uint64_t since);
/* A slow path was taken for guarding's sake that does little. */
void guard_charge_estimate(void);

/* ---- who is picked --------------------------------------------------------------------------------- */

/* Numbers of pages, which are addresses divided by their size: the first chosen one from `page` on. */
static inline uintptr_t guard_chosen_from(uintptr_t page)
{
	return page + (__atomic_load_n(&guard.chosen, __ATOMIC_RELAXED) - page) % guard.spread;
}

/* Whether the page of an object is chosen, and frees into it are to be seen. */
static inline bool guard_chooses(const void *object)
{
	uintptr_t page = (uintptr_t)object / OS_PAGE_BYTES;

	return guard_is_on() && guard_goes_on() && guard_chosen_from(page) == page;
}

/* Whether to mark an object of a chosen page that is freed. */
bool guard_picks_freed(void);
/* Which of the objects that come from the slabs to mark: that of this number, from 0, and each RATE-th after
 * it. */
unsigned guard_picks_fresh(void);
/* True once in a while: then it is time for guard_turn, of the time in milliseconds. */
static inline bool guard_is_due(uint64_t now)
{
	return guard_is_on() && now >= __atomic_load_n(&guard.turn, __ATOMIC_RELAXED);
}
/*
 * Credits what guarding may cost.  Chooses other pages, which are to be found; false where another thread
 * does, or guarding rests.
 */
bool guard_turn(uint64_t now, size_t heap_pages);

/* ---- guarded objects ------------------------------------------------------------------------------- */

/* Whether a slot has room for so many bytes wherever in it the alignment, a power of two, lets them begin. */
static inline bool guard_fits(size_t requested, size_t alignment)
{
	size_t skipped = alignment > OS_PAGE_BYTES ? alignment - OS_PAGE_BYTES : 0;

	return requested <= GUARD_LARGEST && skipped < GUARD_LARGEST &&
	       ((requested + OS_PAGE_BYTES - 1) & -(size_t)OS_PAGE_BYTES) <= GUARD_LARGEST - skipped;
}
/* Zeroed, aligned to a power of two and to 16; NULL where this one cannot be guarded. */
void *guard_alloc(size_t requested, size_t alignment, const void *owner);
/*
 * Frees an object; `stated` is what the caller says its size is, SIZE_MAX for nothing.  Reports and stops, or
 * goes on with the option debug_continue, when it is no object in use or was written past.
 */
void guard_free(void *object, size_t stated);
/* Who an object that is in use, or the last one that was there, belongs to; NULL where there was none. */
const void *guard_owner(const void *object);
/* Calls `visit` for each object in use of one owner; returns how many there are. */
unsigned guard_visit_live(const void *owner, void (*visit)(void *object, void *argument), void *argument);

/* Bytes that may be used at an object in use; 0 for any other address. */
size_t guard_usable(const void *object);
/* The start of the object in use that an address lies in; NULL for none. */
void *guard_object_of(const void *address);

/* In a forked child, where only the caller's thread is left. */
void guard_repair(void);

void guard_statistics(struct guard_statistics *statistics);
/* Names all this for a reader of this process's memory (see report/root.h). */
void guard_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
