/* SPDX-License-Identifier: MIT */
/*
 * large_checks: the checks of check/object.h for large objects, each a slot of its own.
 *
 * Requested like those of a cache named malloc-large; hardened mode always has F and Z.  The red zone is
 * what the object's last page has behind the requested bytes.  The memory before the object and behind its
 * pages is inaccessible, and so is a freed object (huge_isolate).  So writes there fault; other damage is
 * found when the object is freed or resized, or on demand.
 *
 * Owns a record for each large object, in metadata: for those in use, and for at least the 1024 freed last,
 * whose records say FREE, so that a second free is recognised.  Older records are reused for new objects
 * and for nothing else, so that a thread that still holds one, from an address that it should not have
 * freed, always finds a record.  Objects of 4 GiB and more have none.
 *
 * Called by the large objects' functions, from any thread.  Locks: chains_lock for the chains of records
 * and the line of freed ones; walks of all objects take a record's own lock under it, which is otherwise
 * taken alone.  Outside its lock a record belongs to the owner of its object.
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

/* Call after the environment was read, before the first allocation. */
void large_checks_init(void);

/* Returns whether this allocation should fail on purpose. */
bool large_check_fails(void);
/* Notes an object just allocated in `bytes` bytes of memory. */
void large_check_alloc(void *object, size_t requested, size_t bytes);
/*
 * Bracket an allocation that must not wait; false while another thread holds the lock.  The object, if not
 * NULL, gets no record, and an earlier object's record at its address is dropped.
 */
bool large_checks_try_lock(void);
void large_checks_unlock(const void *object);
/*
 * Checks any pointer that no cache owns.  False when it must not be freed, which has been reported: it was
 * freed before, or points into an object.  `stated` as in check_free.
 */
bool large_check_free(void *object, size_t stated);
/*
 * Checks an object as a free would, then resizes it within its `bytes` to `requested`; false if that does
 * not fit.
 */
bool large_check_resize(void *object, size_t bytes, size_t requested);
/* The bytes that a program may use of an object in `bytes` bytes of memory. */
size_t large_check_usable(const void *object, size_t bytes);
/* The bytes that it asked for, as far as is known. */
size_t large_check_requested(const void *object, size_t bytes);
/* Checks every object, reports and repairs damage, and returns how many were damaged. */
uint64_t large_checks_validate(void);
/* As magazine_visit_live. */
bool large_checks_visit_live(void (*visit)(uint32_t stack, uint32_t bytes, void *argument), void *argument);

/* Repairs the records in a forked child. */
void large_checks_repair(void);

#endif
