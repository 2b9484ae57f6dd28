/* SPDX-License-Identifier: MIT */
/*
 * cpuslab locks: tiny, process-private, and usable before and without any allocation.
 *
 * Nothing here allocates, and nothing changes errno.  The locks are for the threads of one process; they
 * are neither robust nor recursive, and none may be used from a signal handler that can interrupt its own
 * holder.
 */
#ifndef CPUSLAB_LOCK_H
#define CPUSLAB_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- spinlock ----------------------------------------------------------------------------------------- */

/*
 * One 32-bit word.  All zero is unlocked.
 *
 *   locked     1 while held.  Taken by an exchange, given back by a plain store.
 *   attention  what the holder must do after it has given the lock back: somebody is parked, or the cache
 *              line is to be given away as well.  Zero in the common case.
 *
 * A waiter spins for a bounded time and then sleeps: in user space the holder may have lost its CPU.
 * The lock must outlive every unlock call on it (unlock looks at `attention` after the lock is free); a
 * lock that lives inside what it protects, and may be freed by its next owner, must be a pagelock.
 */
struct cpuslab_spinlock {
	uint8_t locked;
	uint8_t attention;
	uint16_t reserved;
} __attribute__((aligned(4)));

enum {
	CPUSLAB_SPIN_PARKED = 1, /* attention: a waiter sleeps, or is about to */
	CPUSLAB_SPIN_DEMOTE = 2, /* attention, and a flag for cpuslab_spin_init */
};

#define CPUSLAB_SPINLOCK_INITIALIZER                                                                         \
	{                                                                                                    \
		0, 0, 0                                                                                      \
	}
/* Unlock also gives the lock's cache line away: for locks that mostly migrate between CPUs. */
#define CPUSLAB_SPINLOCK_INITIALIZER_DEMOTE                                                                  \
	{                                                                                                    \
		0, CPUSLAB_SPIN_DEMOTE, 0                                                                    \
	}

void cpuslab_spin_lock_slow(struct cpuslab_spinlock *lock);
void cpuslab_spin_unlock_slow(struct cpuslab_spinlock *lock);

/* Takes the lock if it is free. */
static inline bool cpuslab_spin_trylock(struct cpuslab_spinlock *lock)
{
	return __atomic_exchange_n(&lock->locked, 1, __ATOMIC_ACQUIRE) == 0;
}

/* Takes the lock; spins, then sleeps, while another thread has it. */
static inline void cpuslab_spin_lock(struct cpuslab_spinlock *lock)
{
	if (__builtin_expect(!cpuslab_spin_trylock(lock), 0))
		cpuslab_spin_lock_slow(lock);
}

/*
 * Gives the lock back.  The processor may delay the store past the load of `attention`; the waiter that
 * sets `attention` answers for that race (src/lock/spinlock.c).
 */
static inline void cpuslab_spin_unlock(struct cpuslab_spinlock *lock)
{
	__atomic_store_n(&lock->locked, 0, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&lock->attention, __ATOMIC_RELAXED) != 0, 0))
		cpuslab_spin_unlock_slow(lock);
}

/* True while any thread has the lock; stale as soon as it is returned. */
static inline bool cpuslab_spin_is_locked(const struct cpuslab_spinlock *lock)
{
	return __atomic_load_n(&lock->locked, __ATOMIC_RELAXED) != 0;
}

/* `flags` is 0 or CPUSLAB_SPIN_DEMOTE. */
static inline void cpuslab_spin_init(struct cpuslab_spinlock *lock, unsigned flags)
{
	__atomic_store_n(&lock->attention, (uint8_t)(flags & CPUSLAB_SPIN_DEMOTE), __ATOMIC_RELAXED);
	__atomic_store_n(&lock->locked, 0, __ATOMIC_RELEASE);
}

/* In a forked child: frees a lock whose holder, and whose waiters, do not exist there.  Keeps the flags. */
static inline void cpuslab_spin_reset(struct cpuslab_spinlock *lock)
{
	cpuslab_spin_init(lock, lock->attention);
}

#ifdef __cplusplus
}
#endif
#endif
