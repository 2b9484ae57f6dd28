/* SPDX-License-Identifier: MIT */
/*
 * mcs: the queued lock's waiting and waking.
 *
 * A newcomer swaps itself in as the tail and then tells the node ahead of it: between the two steps the
 * queue has a gap.  An unlock that finds the tail moved on, but no successor yet, must wait out that gap.
 * It is a few instructions long unless the newcomer lost its CPU there, so the unlock yields after a while.
 */
#include "lock/lock.h"

enum { WAITING, PARKED, GRANTED };

/*
 * A waiter spins on its own cache line, which disturbs nobody: as many pauses as other waiters make in all.
 */
enum { LOOKS = 700 };

__attribute__((noinline)) void cpuslab_mcs_lock_slow(struct cpuslab_mcs_node *ahead,
						     struct cpuslab_mcs_node *node)
{
	/* Release: the thread that unlocks `ahead` writes to this node. */
	__atomic_store_n(&ahead->next, node, __ATOMIC_RELEASE);
	for (unsigned look = 0; look < LOOKS; look++) {
		if (__atomic_load_n(&node->state, __ATOMIC_ACQUIRE) == GRANTED)
			return;
		arch_pause();
	}

	/*
	 * The exchange decides: either this thread parks first and is woken, or it was granted the lock and
	 * stays awake.
	 */
	uint32_t state = WAITING;
	if (!__atomic_compare_exchange_n(&node->state, &state, PARKED, false, __ATOMIC_ACQUIRE,
					 __ATOMIC_ACQUIRE))
		return;
	while (__atomic_load_n(&node->state, __ATOMIC_ACQUIRE) != GRANTED)
		os_futex_wait(&node->state, PARKED, NULL);
}

__attribute__((noinline)) void cpuslab_mcs_unlock_slow(struct cpuslab_mcs_node *node)
{
	struct lock_backoff backoff = LOCK_BACKOFF;
	struct cpuslab_mcs_node *next;

	while (!(next = __atomic_load_n(&node->next, __ATOMIC_ACQUIRE)))
		if (!lock_back_off(&backoff))
			os_nap(LOCK_NAP);
	/*
	 * After this exchange the successor may unlock, return, and reuse its node: only its address may be
	 * used.
	 */
	if (__atomic_exchange_n(&next->state, GRANTED, __ATOMIC_ACQ_REL) == PARKED)
		os_futex_wake(&next->state, 1);
}
