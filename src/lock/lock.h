/* SPDX-License-Identifier: MIT */
/*
 * lock: waiting and waking for the public locks (include/cpuslab/lock.h has their fast paths).
 *
 * Owns the 256 wait queues of the pagelocks, and the debug checks' table of held locks.  Knows only arch
 * and os; never allocates.
 *
 * Lock order: a queue's guard is a spinlock and the innermost lock of the library; nothing is called under
 * it.  A thread holds at most one guard.
 *
 * The room's own locks are invisible to the checks, which would otherwise check themselves.
 */
#ifndef CPUSLAB_LOCK_LOCK_H
#define CPUSLAB_LOCK_LOCK_H

#undef CPUSLAB_DEBUG_LOCKS
#include <cpuslab/lock.h>

#include "arch/arch.h"
#include "os/os.h"

/* The guard of the queue for a pagelock's byte, for tests of what happens while another thread holds it. */
struct cpuslab_spinlock *pagelock_guard(const uint8_t *byte);

/*
 * How long a waiter spins before it sleeps.  The pauses between two looks grow up to a limit, because each
 * look takes the cache line away from the owner, who needs it to unlock.  Found by measurement (`cpuslab
 * bench locks --only contended`, docs/locks.md):
 *
 * - A short first pause lets two threads take the lock, and its line, from each other after every few turns.
 *   With 8 pauses instead of 32 they made a third fewer turns where the CPUs are far from each other, and a
 *   few per cent fewer where they are close.
 * - Half as many looks cost the same threads a sixth of their turns where the owner holds the lock nearly all
 *   of the time: a waiter that goes to sleep stops the owner by its barrier, and is woken at once.
 */
enum { LOCK_LOOKS = 24, LOCK_PAUSES = 128, LOCK_FIRST_PAUSES = 32, LOCK_GROWTH = 2 };

/* Nanoseconds of the shortest sleep of a thread that nobody wakes. */
enum { LOCK_NAP = 50000 };

struct lock_backoff {
	unsigned looks, pauses, growth;
};

#define LOCK_BACKOFF                                                                                         \
	{                                                                                                    \
		LOCK_LOOKS, LOCK_FIRST_PAUSES, LOCK_GROWTH                                                   \
	}

/* Pauses, longer each time; false when it is time to sleep instead. */
static inline bool lock_back_off(struct lock_backoff *backoff)
{
	if (backoff->looks == 0)
		return false;
	backoff->looks--;
	for (unsigned i = 0; i < backoff->pauses; i++)
		arch_pause();
	if (backoff->pauses < LOCK_PAUSES)
		backoff->pauses *= backoff->growth;
	return true;
}

#endif
