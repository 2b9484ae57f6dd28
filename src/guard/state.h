/* SPDX-License-Identifier: MIT */
/* guard/state: what fast questions about guarding are answered from; see guard.h. */
#ifndef CPUSLAB_GUARD_STATE_H
#define CPUSLAB_GUARD_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"
#include "os/os.h"

struct guard_state {
	uintptr_t start; /* of the slots' address space */
	size_t bytes;    /* 0: nothing is guarded */
	unsigned slots, rate;
	unsigned spread;  /* one page in this many is chosen: a power of two, at most the rate */
	uintptr_t chosen; /* the remainder of the chosen pages' numbers modulo `spread` */
	uint64_t secret;
	uint64_t turn; /* time of the next turn in milliseconds */
};
extern ARCH_INTERNAL struct guard_state guard;

/* What guarding has used and may use: see cost.c. */
struct guard_account {
	uint64_t spent, allowed; /* CPU time in nanoseconds; UINT64_MAX: unbounded */
	uint64_t taken, granted; /* GUARD_PICK for each pick; UINT64_MAX: unbounded */
};
enum { GUARD_PICK = 1000 }; /* so that a millisecond grants as many as a second has picks */
extern ARCH_INTERNAL struct guard_account guard_account;

static inline bool guard_is_on(void)
{
	return __builtin_expect(guard.bytes != 0, 0);
}

/* Returns whether an address lies in the pool. */
static inline bool guard_contains(const void *address)
{
	return (uintptr_t)address - guard.start < guard.bytes;
}

/* False while guarding rests. */
static inline bool guard_goes_on(void)
{
	return __atomic_load_n(&guard_account.spent, __ATOMIC_RELAXED) <=
		       __atomic_load_n(&guard_account.allowed, __ATOMIC_RELAXED) &&
	       __atomic_load_n(&guard_account.taken, __ATOMIC_RELAXED) + GUARD_PICK <=
		       __atomic_load_n(&guard_account.granted, __ATOMIC_RELAXED);
}

/* Returns the first chosen page from `page` on.  Pages are numbered by address divided by page size. */
static inline uintptr_t guard_chosen_from(uintptr_t page)
{
	return page + (__atomic_load_n(&guard.chosen, __ATOMIC_RELAXED) - page) % guard.spread;
}

/* Returns whether an object's page is chosen, so that frees into it must be seen. */
static inline bool guard_chooses(const void *object)
{
	uintptr_t page = (uintptr_t)object / OS_PAGE_BYTES;

	return guard_is_on() && guard_goes_on() && guard_chosen_from(page) == page;
}

/* True once in a while: guard_turn is due, with the same time in milliseconds. */
static inline bool guard_is_due(uint64_t now)
{
	return guard_is_on() && now >= __atomic_load_n(&guard.turn, __ATOMIC_RELAXED);
}

#endif
