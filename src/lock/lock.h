/* SPDX-License-Identifier: MIT */
/*
 * lock: the waiting and waking of the public locks (include/cpuslab/lock.h has their fast paths).
 *
 * Owns: the 256 wait queues of the pagelocks, and the table of the checks.  Knows only arch and os; never
 * allocates.
 *
 * Lock order: a queue's guard is a spinlock and the innermost lock of the library; nothing is called under
 * it.  At most one guard is held by a thread.
 *
 * The room's own locks are invisible to the checks, which would otherwise check themselves.
 */
#ifndef CPUSLAB_LOCK_LOCK_H
#define CPUSLAB_LOCK_LOCK_H

#undef CPUSLAB_DEBUG_LOCKS
#include <cpuslab/lock.h>

#include "arch/arch.h"
#include "os/os.h"

/*
 * How long a waiter looks before it sleeps.  The pauses between two looks double, because each look takes the
 * cache line away from the owner, who needs it to unlock; all together they take about as long as a sleep and
 * a wakeup, so that a waiter never spends much more than twice what the better choice would have cost.  Found
 * by measurement among seven settings (`cpuslab bench locks --only contended`): fewer or shorter pauses lose
 * up to a quarter of the turns with two threads, more gain nothing.
 */
enum { LOCK_LOOKS = 10, LOCK_PAUSES = 256 };

struct lock_backoff {
	unsigned looks, pauses;
};

#define LOCK_BACKOFF                                                                                         \
	{                                                                                                    \
		LOCK_LOOKS, 1                                                                                \
	}

/* Waits a little, longer each time; false when it is time to sleep instead. */
static inline bool lock_back_off(struct lock_backoff *backoff)
{
	if (backoff->looks == 0)
		return false;
	backoff->looks--;
	for (unsigned i = 0; i < backoff->pauses; i++)
		arch_pause();
	if (backoff->pauses < LOCK_PAUSES)
		backoff->pauses *= 2;
	return true;
}

#endif
