/* SPDX-License-Identifier: MIT */
/*
 * single: a spinlock that a process with one thread takes by a plain store.  For the library's own locks.
 *
 * A locked instruction would wait for everything that the program has just stored, into a block that it is
 * about to free.  With one thread there is nobody to race with, as long as no thread is created while the
 * lock is held: its holder calls no code of the program's.  A signal handler that comes between the check
 * and the store has released the lock when it returns.
 */
#ifndef CPUSLAB_SINGLE_H
#define CPUSLAB_SINGLE_H

#include <sys/single_threaded.h>

#include "cpuslab/lock.h"

/* As cpuslab_spin_lock. */
static inline void lock_spin_single(struct cpuslab_spinlock *lock) CPUSLAB_ACQUIRE(lock) CPUSLAB_IS_A_LOCK
{
	if (!__libc_single_threaded || cpuslab_spin_is_locked(lock)) {
		cpuslab_spin_lock(lock);
		return;
	}
	__atomic_store_n(&lock->locked, 1, __ATOMIC_RELAXED);
	CPUSLAB_CHECK_LOCK(lock_taken(lock, CPUSLAB_LOCK_SPIN));
}

#endif
