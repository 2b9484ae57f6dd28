/* SPDX-License-Identifier: MIT */
/*
 * lock_kinds: the library's locks, other libraries' locks, and the bare instructions, behind one interface.
 */
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
	void (*pairs)(uint64_t pairs); /* inline lock + unlock, so many times; NULL: not on this machine */
	void (*lock)(void), (*unlock)(void); /* called; NULL for kinds that are only measured alone */
};

extern struct lock_kind lock_kinds[LOCK_KINDS];

/* Whether the processor can demote a cache line: without it the demoting unlock is a useless call. */
bool lock_kinds_demote(void);

/* The two spinlocks of the migratory test. */
struct cpuslab_spinlock *lock_kinds_spin(bool demoting);

/*
 * A counter for the owners of a contended lock, at an address that aliases no lock here (see lock_kinds.c).
 */
uint64_t *lock_kinds_guarded(void);

/* Finds the kinds from other libraries; must be called first. */
void lock_kinds_find(void);

#endif
