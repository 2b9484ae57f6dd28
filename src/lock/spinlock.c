/* SPDX-License-Identifier: MIT */
/*
 * spinlock, the part that is not inline: waiting and waking.
 *
 * The race.  Unlock is a plain store to `locked` followed by a plain load of `attention`.  A waiter sets
 * PARKED in `attention`, looks at `locked`, and sleeps if it is still set.  A processor lets the load of
 * unlock overtake its store; so each side could miss the other's write, and the waiter would sleep with
 * nobody to wake it.
 *
 * What closes it.  After setting PARKED and before its last look, the waiter makes every running thread of
 * the process pass a full barrier (membarrier, PRIVATE_EXPEDITED).  An unlock whose store came before that
 * barrier is seen by the look; one whose store comes after it loads `attention` later still and sees
 * PARKED.  A thread that was not running passed a full barrier when it was switched out.  So the side that
 * is about to sleep pays for the barrier, and the side that is about to run pays nothing.
 *
 * Where the system has no membarrier, a waiter never announces itself: it sleeps for short times and tries
 * again.  It waits for no wakeup, so none can be lost.
 *
 * Who owes a wakeup.  The thread that clears PARKED wakes one sleeper.  A woken sleeper that takes the lock
 * sets PARKED again as its owner (others may sleep; at worst one futex_wake is in vain); one that finds the
 * lock taken sets PARKED before it sleeps again.  So while any thread sleeps, PARKED is set, or a thread
 * that will set it is awake.  A waiter that finds PARKED already set may skip the barrier: the waiter that
 * set it has still to pass its own barrier and to look, and either gets the lock, with PARKED set, or has
 * made sure that the owner will see PARKED.  tests/models/spinlock.pml checks all this with store buffers.
 */
#include "lock/lock.h"

enum { POLL_LONGEST = 1000000 }; /* nanoseconds; only without membarrier */

typedef uint32_t __attribute__((may_alias)) spin_word;

/* The word's value with which a waiter may sleep: the futex compares lock and flags at once. */
static uint32_t parked_word(const struct cpuslab_spinlock *lock)
{
	struct cpuslab_spinlock expected = {.locked = 1};

	expected.attention =
		(uint8_t)((__atomic_load_n(&lock->attention, __ATOMIC_RELAXED) & CPUSLAB_SPIN_DEMOTE) |
			  CPUSLAB_SPIN_PARKED);
	return *(const spin_word *)&expected;
}

static bool spin_for_lock(struct cpuslab_spinlock *lock) CPUSLAB_IS_A_LOCK
{
	struct lock_backoff backoff = LOCK_BACKOFF;

	do
		if (!cpuslab_spin_is_locked(lock) && cpuslab_spin_trylock(lock))
			return true;
	while (lock_back_off(&backoff));
	return false;
}

static void poll_for_lock(struct cpuslab_spinlock *lock) CPUSLAB_IS_A_LOCK
{
	long nap = LOCK_NAP;

	while (!cpuslab_spin_trylock(lock)) {
		os_nap(nap);
		if (nap < POLL_LONGEST)
			nap *= 2;
	}
}

__attribute__((noinline)) void cpuslab_spin_lock_slow(struct cpuslab_spinlock *lock) CPUSLAB_IS_A_LOCK
{
	bool slept = false;

	for (;;) {
		if (spin_for_lock(lock))
			break;
		if (!(__atomic_fetch_or(&lock->attention, CPUSLAB_SPIN_PARKED, __ATOMIC_SEQ_CST) &
		      CPUSLAB_SPIN_PARKED) &&
		    os_barrier_all_threads() != 0) {
			/*
			 * Others may sleep on the PARKED that this waiter set: so it counts as one that
			 * slept.
			 */
			poll_for_lock(lock);
			slept = true;
			break;
		}
		if (cpuslab_spin_trylock(lock))
			return;
		os_futex_wait((uint32_t *)(void *)lock, parked_word(lock), NULL);
		slept = true;
	}
	if (slept)
		__atomic_fetch_or(&lock->attention, CPUSLAB_SPIN_PARKED, __ATOMIC_RELAXED);
}

__attribute__((noinline)) void cpuslab_spin_unlock_slow(struct cpuslab_spinlock *lock)
{
	uint8_t attention = __atomic_load_n(&lock->attention, __ATOMIC_RELAXED);

	if (attention & CPUSLAB_SPIN_DEMOTE)
		arch_demote(lock);
	/* Clearing PARKED changes the word, so a waiter that has not reached the futex yet stays awake. */
	if ((attention & CPUSLAB_SPIN_PARKED) &&
	    (__atomic_fetch_and(&lock->attention, (uint8_t)~CPUSLAB_SPIN_PARKED, __ATOMIC_SEQ_CST) &
	     CPUSLAB_SPIN_PARKED))
		os_futex_wake((uint32_t *)(void *)lock, 1);
}
