/* SPDX-License-Identifier: MIT */
/* lock_kinds: the library's locks, other people's, and the bare instructions, all called alike. */
#ifndef CPUSLAB_BENCH_LOCK_KINDS_H
#define CPUSLAB_BENCH_LOCK_KINDS_H

#include <cpuslab/lock.h>

#include <stdbool.h>
#include <stdint.h>

#define OWN_LINES __attribute__((aligned(128)))

enum lock_class { LOCK_BARE, LOCK_SLEEPING, LOCK_SPINNING };

enum lock_kind_number {
#define LOCK_KIND(number, name, class, text) number,
#include "lock_kinds.def"
#undef LOCK_KIND
	LOCK_KINDS
};

struct lock_kind {
	const char *name;
	enum lock_class class;
	void (*pairs)(uint64_t pairs); /* lock and unlock, inline, so many times; NULL: not on this machine */
	void (*lock)(void), (*unlock)(void); /* called; NULL for those that are measured alone only */
};

extern struct lock_kind lock_kinds[LOCK_KINDS];

/* Whether the processor can give a cache line away: without it the demoting unlock is a call for nothing. */
bool lock_kinds_demote(void);

/* The two spinlocks that the migratory test passes to and fro. */
struct cpuslab_spinlock *lock_kinds_spin(bool demoting);

/* A counter for the owners of a contended lock: its address is like that of no lock here (see there). */
uint64_t *lock_kinds_guarded(void);

/* Finds those that are libraries of their own.  Before anything else. */
void lock_kinds_find(void);

#endif
