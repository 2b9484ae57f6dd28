/* SPDX-License-Identifier: MIT */
#include <cpuslab/lock.h>

void cpuslab_unlock(struct cpuslab_pagelock *lock);

#if defined(CPUSLAB_UNLOCK_TWO_STEP)
void cpuslab_unlock(struct cpuslab_pagelock *lock)
{
	cpuslab_clear_bit_unlock(0, &lock->byte);
	/* Whether somebody waits, by a second look; waking takes the same steps as ever. */
	if (__builtin_expect(__atomic_load_n((int8_t *)&lock->byte, __ATOMIC_RELAXED) < 0, 0))
		cpuslab_pagelock_wake_unlocked(&lock->byte);
}
#else
void cpuslab_unlock(struct cpuslab_pagelock *lock)
{
	cpuslab_pagelock_unlock(lock);
}
#endif
