/* SPDX-License-Identifier: MIT */
/*
 * unlock_probe: included before every source of the library in three builds of it, which `cpuslab bench
 * pagelock` profiles (libcpuslab-unlock-fused.so, -two-step.so and -two-step-byte.so).
 *
 * In each, all locks of the allocator are page locks, and unlocking is a separate function, cpuslab_unlock,
 * so that a profile has a line for it.  The builds differ only in that function: one locked instruction whose
 * sign flag says whether there are waiters; or the bit is cleared first, and then the word of eight bytes
 * that contains it, or the byte, is read again for the answer.  The kernel read the word before seed 004: its
 * page flags are one.
 *
 * A spinlock is used as a page lock by its address: it is larger, bit 0 of its first byte is the lock in
 * both, and zero is unlocked.
 */
#ifndef CPUSLAB_BENCH_UNLOCK_PROBE_H
#define CPUSLAB_BENCH_UNLOCK_PROBE_H

#include <cpuslab/lock.h>
#include <stdint.h>

void cpuslab_unlock(struct cpuslab_pagelock *lock);

static inline struct cpuslab_pagelock *probe_lock(const void *lock)
{
	return (struct cpuslab_pagelock *)(uintptr_t)lock;
}

#define cpuslab_spin_lock(lock)       cpuslab_pagelock_lock(probe_lock(lock))
#define cpuslab_spin_trylock(lock)    cpuslab_pagelock_trylock(probe_lock(lock))
#define cpuslab_spin_unlock(lock)     cpuslab_unlock(probe_lock(lock))
#define cpuslab_spin_is_locked(lock)  cpuslab_pagelock_is_locked(probe_lock(lock))
#define cpuslab_spin_reset(lock)      cpuslab_pagelock_reset(probe_lock(lock))
#define cpuslab_pagelock_unlock(lock) cpuslab_unlock(lock)

#endif
