/* SPDX-License-Identifier: MIT */
/*
 * large_checks: the checks of check/object.h for large objects, each of which is a slot of its own.
 *
 * Asked for as those of a cache of the name malloc-large; in hardened mode F and Z are always there.  A red
 * zone is what the object's last page has behind what was asked for; before the object and behind its pages
 * nobody has access, nor to a freed one (huge_isolate). So what writes there faults; the rest is found when
 * the object is freed or resized, or on demand.
 *
 * Owns a record for each large object, in metadata: of those in use, and of at least the 1024 that were freed
 * last, which say FREE: so is a second free known for what it is.  A record whose object was freed before
 * those serves another one; none leaves for anything else, so that a thread that still has one, from an
 * address that it should not have freed, finds a record.  Objects from 4 GiB have none.
 *
 * Called by the large objects' functions, from any thread.  Locks: one for the chains of records and the line
 * of the freed ones; under it, as all objects are visited, that of a record, which is otherwise taken alone.
 * Without its own lock a record is its object's owner's.
 */
#ifndef CPUSLAB_LARGE_CHECKS_H
#define CPUSLAB_LARGE_CHECKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/request.h"

extern unsigned large_check_flags; /* 0: large objects are not debugged */

static inline bool large_is_checked(void)
{
	return __builtin_expect(large_check_flags != 0, 0);
}

/* After the environment was read, before the first allocation. */
void large_checks_init(void);

/* Whether this allocation is to fail on purpose. */
bool large_check_fails(void);
/* An object that was just allocated, in `bytes` bytes of memory. */
void large_check_alloc(void *object, size_t requested, size_t bytes);
/*
 * Around an allocation that waits for nobody; false while another thread has the lock.  The object, or NULL,
 * gets no record, and loses what stands at its address.
 */
bool large_checks_try_lock(void);
void large_checks_unlock(const void *object);
/*
 * Of any pointer that no cache owns.  False when it must not be freed, which was reported: freed before, or
 * into an object.  `stated` as in check_free.
 */
bool large_check_free(void *object, size_t stated);
/* The checks of a free, then an object in so many bytes is one of `requested`; false: they do not fit. */
bool large_check_resize(void *object, size_t bytes, size_t requested);
/* The bytes that a program may use at an object of so many bytes of memory. */
size_t large_check_usable(const void *object, size_t bytes);
/* Looks at every object; reports and repairs what is damaged, and returns how many were. */
uint64_t large_checks_validate(void);
/* As magazine_visit_live. */
bool large_checks_visit_live(void (*visit)(uint32_t stack, uint32_t bytes, void *argument), void *argument);

/* In a forked child. */
void large_checks_repair(void);

#endif
