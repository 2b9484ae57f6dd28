/* SPDX-License-Identifier: MIT */
#include <cpuslab/lock.h>

void cpuslab_unlock(struct cpuslab_pagelock *lock);

#if defined(CPUSLAB_UNLOCK_TWO_STEP) || defined(CPUSLAB_UNLOCK_TWO_STEP_BYTE)
/* Reads the lock again to see whether there are waiters. */
static inline bool anyone_waits(const uint8_t *byte)
{
#if defined(CPUSLAB_UNLOCK_TWO_STEP)
	typedef uint64_t __attribute__((may_alias)) flags;
	const flags *word = (const flags *)((uintptr_t)byte & ~(uintptr_t)7);

	return (__atomic_load_n(word, __ATOMIC_RELAXED) >> ((uintptr_t)byte % 8 * 8)) &
	       CPUSLAB_PAGELOCK_WAITERS;
#else
	return (int8_t)__atomic_load_n(byte, __ATOMIC_RELAXED) < 0;
#endif
}

void cpuslab_unlock(struct cpuslab_pagelock *lock)
{
	cpuslab_clear_bit_unlock(0, &lock->byte);
	/* Waking takes the usual steps. */
	if (__builtin_expect(anyone_waits(&lock->byte), 0))
		cpuslab_pagelock_wake_unlocked(&lock->byte);
}
#else
void cpuslab_unlock(struct cpuslab_pagelock *lock)
{
	cpuslab_pagelock_unlock(lock);
}
#endif
