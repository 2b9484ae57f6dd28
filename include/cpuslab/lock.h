/* SPDX-License-Identifier: MIT */
/*
 * cpuslab locks: tiny, process-private, and usable before and without any allocation.
 *
 *   spinlock   32 bits; the cheapest lock and unlock; no order among waiters
 *   pagelock   one byte: two bits for the lock, six for the user; a waiter that has lost a few races is
 * handed the lock; may live inside the memory that its next owner frees mcs        one pointer, and a node
 * for each holder or waiter; strictly first come, first served
 *
 * All three spin briefly and then sleep on a futex.  Nothing here allocates or changes errno.  The locks
 * serve the threads of one process; they are neither robust nor recursive, and a signal handler that can
 * interrupt a lock's holder must not take that lock.  All zero is unlocked, for each of them.
 *
 * With CPUSLAB_DEBUG_LOCKS defined (for the whole program), every call is checked: see the end of the file.
 */
#ifndef CPUSLAB_LOCK_H
#define CPUSLAB_LOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct timespec; /* strict C99 does not declare it; such code can still include this file */

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Clang's thread-safety analysis (-Wthread-safety); nothing elsewhere ------------------------------- */

#if defined(__clang__) && !defined(SWIG)
#define CPUSLAB_THREAD_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#else
#define CPUSLAB_THREAD_ATTRIBUTE(...)
#endif

#define CPUSLAB_CAPABILITY(name)            CPUSLAB_THREAD_ATTRIBUTE(capability(name))
#define CPUSLAB_SCOPED_CAPABILITY           CPUSLAB_THREAD_ATTRIBUTE(scoped_lockable)
#define CPUSLAB_GUARDED_BY(lock)            CPUSLAB_THREAD_ATTRIBUTE(guarded_by(lock))
#define CPUSLAB_POINTED_TO_GUARDED_BY(lock) CPUSLAB_THREAD_ATTRIBUTE(pt_guarded_by(lock))
#define CPUSLAB_REQUIRES(...)               CPUSLAB_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define CPUSLAB_EXCLUDES(...)               CPUSLAB_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define CPUSLAB_ACQUIRE(...)                CPUSLAB_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define CPUSLAB_RELEASE(...)                CPUSLAB_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define CPUSLAB_TRY_ACQUIRE(...)            CPUSLAB_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define CPUSLAB_ASSERT_CAPABILITY(lock)     CPUSLAB_THREAD_ATTRIBUTE(assert_capability(lock))
/* For the functions that implement the locks. */
#define CPUSLAB_IS_A_LOCK CPUSLAB_THREAD_ATTRIBUTE(no_thread_safety_analysis)

/* ---- what the checks hang on --------------------------------------------------------------------------- */

enum cpuslab_lock_kind {
	CPUSLAB_LOCK_SPIN, /* the holder must wait for nothing but another spinlock */
	CPUSLAB_LOCK_PAGE,
	CPUSLAB_LOCK_MCS,
};

void cpuslab_debug_lock_wanted(const volatile void *lock, enum cpuslab_lock_kind kind);
void cpuslab_debug_lock_taken(const volatile void *lock, enum cpuslab_lock_kind kind);
void cpuslab_debug_lock_released(const volatile void *lock, enum cpuslab_lock_kind kind);
void cpuslab_debug_lock_held(const volatile void *lock);
void cpuslab_debug_lock_forget(const volatile void *lock);
void cpuslab_debug_may_sleep(const char *what);

#ifdef CPUSLAB_DEBUG_LOCKS
#define CPUSLAB_CHECK_LOCK(call) cpuslab_debug_##call
#else
#define CPUSLAB_CHECK_LOCK(call) ((void)0)
#endif

/* ---- bits of a byte ------------------------------------------------------------------------------------ */

/*
 * Hides a constant from the optimizer without emitting an instruction.  Clang up to at least 16 compiles
 * "atomic and, or, xor with a constant, is the result negative?" to a compare-exchange loop, but with the
 * mask in a register to one locked instruction and its sign flag. gcc uses the sign flag either way.
 */
static inline int8_t cpuslab_bit_mask(uint8_t mask)
{
	int8_t hidden = (int8_t)mask;

#ifdef __clang__
	__asm__("" : "+r"(hidden));
#endif
	return hidden;
}

/*
 * Clears a bit (0 to 6) with release order, and returns whether bit 7 is set in the very value that was
 * stored.  On x86-64: `lock andb` and the sign flag.  Reading the byte again would stall on the store, and
 * would read memory that may no longer be the caller's.
 */
static inline bool cpuslab_clear_bit_unlock_is_negative_byte(unsigned bit, uint8_t *byte)
{
	return __atomic_and_fetch((int8_t *)byte, cpuslab_bit_mask((uint8_t) ~(1u << bit)),
				  __ATOMIC_RELEASE) < 0;
}

/*
 * Flips the bits of `mask` (not bit 7) with release order, and returns whether bit 7 is set in the value
 * stored.
 */
static inline bool cpuslab_xor_unlock_is_negative_byte(uint8_t mask, uint8_t *byte)
{
	return __atomic_xor_fetch((int8_t *)byte, cpuslab_bit_mask(mask), __ATOMIC_RELEASE) < 0;
}

/*
 * Sets a bit with acquire order if it was clear.  Returns its old value: false means that the caller has set
 * it.
 */
static inline bool cpuslab_test_and_set_bit_lock(unsigned bit, uint8_t *byte)
{
	uint8_t mask = (uint8_t)(1u << bit), seen = __atomic_load_n(byte, __ATOMIC_RELAXED);

	do {
		if (seen & mask)
			return true;
	} while (!__atomic_compare_exchange_n(byte, &seen, (uint8_t)(seen | mask), true, __ATOMIC_ACQUIRE,
					      __ATOMIC_RELAXED));
	return false;
}

/* Fully ordered; each returns the bit's old value. */
static inline bool cpuslab_test_and_set_bit(unsigned bit, uint8_t *byte)
{
	uint8_t mask = (uint8_t)(1u << bit);

	return (__atomic_fetch_or(byte, mask, __ATOMIC_SEQ_CST) & mask) != 0;
}

static inline bool cpuslab_test_and_clear_bit(unsigned bit, uint8_t *byte)
{
	uint8_t mask = (uint8_t)(1u << bit);

	return (__atomic_fetch_and(byte, (uint8_t)~mask, __ATOMIC_SEQ_CST) & mask) != 0;
}

/* Unordered. */
static inline void cpuslab_set_bit(unsigned bit, uint8_t *byte)
{
	__atomic_fetch_or(byte, (uint8_t)(1u << bit), __ATOMIC_RELAXED);
}

static inline void cpuslab_clear_bit(unsigned bit, uint8_t *byte)
{
	__atomic_fetch_and(byte, (uint8_t) ~(1u << bit), __ATOMIC_RELAXED);
}

static inline void cpuslab_clear_bit_unlock(unsigned bit, uint8_t *byte)
{
	__atomic_fetch_and(byte, (uint8_t) ~(1u << bit), __ATOMIC_RELEASE);
}

static inline bool cpuslab_test_bit(unsigned bit, const uint8_t *byte)
{
	return (__atomic_load_n(byte, __ATOMIC_RELAXED) >> bit) & 1;
}

static inline bool cpuslab_test_bit_acquire(unsigned bit, const uint8_t *byte)
{
	return (__atomic_load_n(byte, __ATOMIC_ACQUIRE) >> bit) & 1;
}

/* ---- spinlock ----------------------------------------------------------------------------------------- */

/*
 * One 32-bit word.
 *
 *   locked     1 while held.  Taken by an exchange, released by a plain store.
 *   attention  what the holder must do after releasing the lock: wake a parked waiter, or give the cache line
 *              away as well.  Zero in the common case.
 *
 * A waiter spins for a bounded time and then sleeps: in user space the holder may have been preempted.  The
 * lock must outlive every unlock call on it (unlock reads `attention` after the lock is free); a lock that
 * lives inside what it protects, and may be freed by its next owner, must be a pagelock.
 */
struct CPUSLAB_CAPABILITY("spinlock") cpuslab_spinlock {
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

/* Takes the lock if it is free; returns whether it did. */
static inline bool cpuslab_spin_trylock(struct cpuslab_spinlock *lock)
	CPUSLAB_TRY_ACQUIRE(true, lock) CPUSLAB_IS_A_LOCK
{
	bool taken = __atomic_exchange_n(&lock->locked, 1, __ATOMIC_ACQUIRE) == 0;

	if (taken)
		CPUSLAB_CHECK_LOCK(lock_taken(lock, CPUSLAB_LOCK_SPIN));
	return taken;
}

/* Takes the lock; spins, then sleeps, while another thread holds it. */
static inline void cpuslab_spin_lock(struct cpuslab_spinlock *lock) CPUSLAB_ACQUIRE(lock) CPUSLAB_IS_A_LOCK
{
	CPUSLAB_CHECK_LOCK(lock_wanted(lock, CPUSLAB_LOCK_SPIN));
	if (__builtin_expect(__atomic_exchange_n(&lock->locked, 1, __ATOMIC_ACQUIRE) != 0, 0))
		cpuslab_spin_lock_slow(lock);
	CPUSLAB_CHECK_LOCK(lock_taken(lock, CPUSLAB_LOCK_SPIN));
}

/*
 * Releases the lock.  The processor may delay the store past the load of `attention`; the waiter that sets
 * `attention` closes that race (docs/locks.md).
 */
static inline void cpuslab_spin_unlock(struct cpuslab_spinlock *lock) CPUSLAB_RELEASE(lock) CPUSLAB_IS_A_LOCK
{
	CPUSLAB_CHECK_LOCK(lock_released(lock, CPUSLAB_LOCK_SPIN));
	__atomic_store_n(&lock->locked, 0, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&lock->attention, __ATOMIC_RELAXED) != 0, 0))
		cpuslab_spin_unlock_slow(lock);
}

/* True while any thread holds the lock; stale as soon as it is returned. */
static inline bool cpuslab_spin_is_locked(const struct cpuslab_spinlock *lock)
{
	return __atomic_load_n(&lock->locked, __ATOMIC_RELAXED) != 0;
}

/* Aborts if no thread holds the lock; with the checks, if the caller does not. */
static inline void cpuslab_spin_assert_held(const struct cpuslab_spinlock *lock)
	CPUSLAB_ASSERT_CAPABILITY(lock) CPUSLAB_IS_A_LOCK
{
	if (!cpuslab_spin_is_locked(lock))
		__builtin_trap();
	CPUSLAB_CHECK_LOCK(lock_held(lock));
}

/* `flags` is 0 or CPUSLAB_SPIN_DEMOTE. */
static inline void cpuslab_spin_init(struct cpuslab_spinlock *lock, unsigned flags)
{
	__atomic_store_n(&lock->attention, (uint8_t)(flags & CPUSLAB_SPIN_DEMOTE), __ATOMIC_RELAXED);
	__atomic_store_n(&lock->locked, 0, __ATOMIC_RELEASE);
}

/*
 * In a forked child: frees a lock whose holder and waiters do not exist there.  Keeps the flags.  Does not
 * write to a free lock, so that its page stays shared with the parent.
 */
static inline void cpuslab_spin_reset(struct cpuslab_spinlock *lock)
{
	uint8_t attention = __atomic_load_n(&lock->attention, __ATOMIC_RELAXED);

	CPUSLAB_CHECK_LOCK(lock_forget(lock));
	if (cpuslab_spin_is_locked(lock) || attention & CPUSLAB_SPIN_PARKED)
		cpuslab_spin_init(lock, attention);
}

/* ---- pagelock ------------------------------------------------------------------------------------------ */

/*
 * One byte.  Bit 0: locked.  Bit 7: there are waiters.  Bits 1 to 6 belong to the user: every lock operation
 * preserves them, and any thread may change them at any time by the functions below.
 *
 * No operation reads the byte after the instruction that releases it: the next owner may at once free the
 * memory that contains the lock, as long as no other thread waits for the lock or uses it.
 */
struct CPUSLAB_CAPABILITY("pagelock") cpuslab_pagelock {
	uint8_t byte;
};

enum {
	CPUSLAB_PAGELOCK_LOCKED = 0x01,
	CPUSLAB_PAGELOCK_FLAGS = 0x7e,
	CPUSLAB_PAGELOCK_WAITERS = 0x80,
	CPUSLAB_PAGELOCK_UNFAIRNESS = 5,
};

#define CPUSLAB_PAGELOCK_INITIALIZER                                                                         \
	{                                                                                                    \
		0                                                                                            \
	}

void cpuslab_pagelock_lock_slow(struct cpuslab_pagelock *lock);
bool cpuslab_pagelock_trylock_slow(struct cpuslab_pagelock *lock);
int cpuslab_pagelock_timedlock_slow(struct cpuslab_pagelock *lock, const struct timespec *deadline);
/* These take an address, not a lock: the memory may have another owner by now. */
void cpuslab_pagelock_wake_unlocked(const uint8_t *address);
void cpuslab_pagelock_wake_flags(const uint8_t *address);

/*
 * Takes the lock if it is free, no waiter is owed it, and no flags are set except perhaps `expected_flags`;
 * returns whether it did.  The guess saves a load before the compare-and-exchange, which would fetch the
 * cache line twice: once shared, once exclusive.
 */
static inline bool cpuslab_pagelock_lock_fast(struct cpuslab_pagelock *lock, uint8_t expected_flags)
{
	uint8_t seen = expected_flags;

	while (__builtin_expect(!__atomic_compare_exchange_n(&lock->byte, &seen,
							     (uint8_t)(seen | CPUSLAB_PAGELOCK_LOCKED), false,
							     __ATOMIC_ACQUIRE, __ATOMIC_RELAXED),
				0))
		if (seen & (CPUSLAB_PAGELOCK_LOCKED | CPUSLAB_PAGELOCK_WAITERS))
			return false;
	return true;
}

/*
 * Takes the lock.  `expected_flags` is the caller's guess at the user flags; a wrong guess costs one more
 * atomic operation and nothing else.
 */
static inline void cpuslab_pagelock_lock_expecting(struct cpuslab_pagelock *lock, uint8_t expected_flags)
	CPUSLAB_ACQUIRE(lock) CPUSLAB_IS_A_LOCK
{
	CPUSLAB_CHECK_LOCK(lock_wanted(lock, CPUSLAB_LOCK_PAGE));
	if (__builtin_expect(!cpuslab_pagelock_lock_fast(lock, expected_flags & CPUSLAB_PAGELOCK_FLAGS), 0))
		cpuslab_pagelock_lock_slow(lock);
	CPUSLAB_CHECK_LOCK(lock_taken(lock, CPUSLAB_LOCK_PAGE));
}

/* Takes the lock; waits while another thread holds it. */
static inline void cpuslab_pagelock_lock(struct cpuslab_pagelock *lock)
	CPUSLAB_ACQUIRE(lock) CPUSLAB_IS_A_LOCK
{
	cpuslab_pagelock_lock_expecting(lock, 0);
}

/*
 * Takes the lock if it is free and no waiter is owed it; takes a guess at the user flags.  Never waits: it
 * may return false for a free lock that has waiters, while one of them is being served.
 */
static inline bool cpuslab_pagelock_trylock_expecting(struct cpuslab_pagelock *lock, uint8_t expected_flags)
	CPUSLAB_TRY_ACQUIRE(true, lock) CPUSLAB_IS_A_LOCK
{
	bool taken = cpuslab_pagelock_lock_fast(lock, expected_flags & CPUSLAB_PAGELOCK_FLAGS) ||
		     cpuslab_pagelock_trylock_slow(lock);

	if (taken)
		CPUSLAB_CHECK_LOCK(lock_taken(lock, CPUSLAB_LOCK_PAGE));
	return taken;
}

static inline bool cpuslab_pagelock_trylock(struct cpuslab_pagelock *lock)
	CPUSLAB_TRY_ACQUIRE(true, lock) CPUSLAB_IS_A_LOCK
{
	return cpuslab_pagelock_trylock_expecting(lock, 0);
}

/*
 * Takes the lock; or returns ETIMEDOUT once CLOCK_MONOTONIC has reached `deadline`, or EINVAL if its
 * nanoseconds are out of range.  As in POSIX, a free lock is taken whatever the deadline says.
 */
static inline int cpuslab_pagelock_timedlock(struct cpuslab_pagelock *lock, const struct timespec *deadline)
	CPUSLAB_TRY_ACQUIRE(0, lock) CPUSLAB_IS_A_LOCK
{
	int status = 0;

	CPUSLAB_CHECK_LOCK(lock_wanted(lock, CPUSLAB_LOCK_PAGE));
	if (__builtin_expect(!cpuslab_pagelock_lock_fast(lock, 0), 0))
		status = cpuslab_pagelock_timedlock_slow(lock, deadline);
	if (status == 0)
		CPUSLAB_CHECK_LOCK(lock_taken(lock, CPUSLAB_LOCK_PAGE));
	return status;
}

static inline void cpuslab_pagelock_unlock(struct cpuslab_pagelock *lock)
	CPUSLAB_RELEASE(lock) CPUSLAB_IS_A_LOCK
{
	CPUSLAB_CHECK_LOCK(lock_released(lock, CPUSLAB_LOCK_PAGE));
	if (__builtin_expect(cpuslab_clear_bit_unlock_is_negative_byte(0, &lock->byte), 0))
		cpuslab_pagelock_wake_unlocked(&lock->byte);
}

/* Unlocks and flips the user flags of `flags` in one instruction: no thread sees one without the other. */
static inline void cpuslab_pagelock_unlock_flip(struct cpuslab_pagelock *lock, uint8_t flags)
	CPUSLAB_RELEASE(lock) CPUSLAB_IS_A_LOCK
{
	CPUSLAB_CHECK_LOCK(lock_released(lock, CPUSLAB_LOCK_PAGE));
	if (__builtin_expect(cpuslab_xor_unlock_is_negative_byte(
				     (uint8_t)((flags & CPUSLAB_PAGELOCK_FLAGS) | CPUSLAB_PAGELOCK_LOCKED),
				     &lock->byte),
			     0))
		cpuslab_pagelock_wake_unlocked(&lock->byte);
}

/* Change user flags with release order, whoever holds the lock.  The lock must not be freed meanwhile. */
static inline void cpuslab_pagelock_set_flags(struct cpuslab_pagelock *lock, uint8_t flags)
{
	if (__builtin_expect(__atomic_or_fetch((int8_t *)&lock->byte,
					       cpuslab_bit_mask(flags & CPUSLAB_PAGELOCK_FLAGS),
					       __ATOMIC_RELEASE) < 0,
			     0))
		cpuslab_pagelock_wake_flags(&lock->byte);
}

static inline void cpuslab_pagelock_clear_flags(struct cpuslab_pagelock *lock, uint8_t flags)
{
	if (__builtin_expect(__atomic_and_fetch((int8_t *)&lock->byte,
						cpuslab_bit_mask((uint8_t) ~(flags & CPUSLAB_PAGELOCK_FLAGS)),
						__ATOMIC_RELEASE) < 0,
			     0))
		cpuslab_pagelock_wake_flags(&lock->byte);
}

static inline void cpuslab_pagelock_flip_flags(struct cpuslab_pagelock *lock, uint8_t flags)
{
	if (__builtin_expect(__atomic_xor_fetch((int8_t *)&lock->byte,
						cpuslab_bit_mask(flags & CPUSLAB_PAGELOCK_FLAGS),
						__ATOMIC_RELEASE) < 0,
			     0))
		cpuslab_pagelock_wake_flags(&lock->byte);
}

/* Returns the user flags, with acquire order. */
static inline uint8_t cpuslab_pagelock_flags(const struct cpuslab_pagelock *lock)
{
	return __atomic_load_n(&lock->byte, __ATOMIC_ACQUIRE) & CPUSLAB_PAGELOCK_FLAGS;
}

/* True while any thread holds the lock; stale as soon as it is returned. */
static inline bool cpuslab_pagelock_is_locked(const struct cpuslab_pagelock *lock)
{
	return (__atomic_load_n(&lock->byte, __ATOMIC_RELAXED) & CPUSLAB_PAGELOCK_LOCKED) != 0;
}

/* Aborts if no thread holds the lock; with the checks, if the caller does not. */
static inline void cpuslab_pagelock_assert_held(const struct cpuslab_pagelock *lock)
	CPUSLAB_ASSERT_CAPABILITY(lock) CPUSLAB_IS_A_LOCK
{
	if (!cpuslab_pagelock_is_locked(lock))
		__builtin_trap();
	CPUSLAB_CHECK_LOCK(lock_held(lock));
}

/*
 * Waits, without taking the lock, until a bit of `mask` differs from that bit of `seen`, which the caller
 * read before.  `mask` may contain user flags and CPUSLAB_PAGELOCK_LOCKED; with the latter in `seen`, every
 * unlock ends the wait, even if the lock is taken again at once.  A user flag that changes and changes back
 * before the waiter looks may go unnoticed.  Acquire order.
 *
 * Returns 0; or ETIMEDOUT once CLOCK_MONOTONIC has reached `deadline` (NULL: never), or EINVAL for a deadline
 * out of range or an empty mask.
 */
int cpuslab_pagelock_wait(struct cpuslab_pagelock *lock, uint8_t mask, uint8_t seen,
			  const struct timespec *deadline);

/* Waits until the lock is unlocked, or was for an instant.  Returns as cpuslab_pagelock_wait does. */
static inline int cpuslab_pagelock_wait_unlocked(struct cpuslab_pagelock *lock,
						 const struct timespec *deadline)
{
	return cpuslab_pagelock_wait(lock, CPUSLAB_PAGELOCK_LOCKED, CPUSLAB_PAGELOCK_LOCKED, deadline);
}

/*
 * Sets how many times a waiter may be woken and find the lock taken again before the lock is handed to it; 0
 * makes every pagelock strictly fair, and slow under contention.  Applies to all pagelocks.  Returns the
 * previous value.
 */
unsigned cpuslab_pagelock_set_unfairness(unsigned races);

/* Initializes the lock as unlocked, with these user flags. */
static inline void cpuslab_pagelock_init(struct cpuslab_pagelock *lock, uint8_t flags)
{
	__atomic_store_n(&lock->byte, flags & CPUSLAB_PAGELOCK_FLAGS, __ATOMIC_RELEASE);
}

/* In a forked child: frees a lock whose holder and waiters do not exist there.  Keeps the flags. */
static inline void cpuslab_pagelock_reset(struct cpuslab_pagelock *lock)
{
	CPUSLAB_CHECK_LOCK(lock_forget(lock));
	cpuslab_pagelock_init(lock, __atomic_load_n(&lock->byte, __ATOMIC_RELAXED));
}

/* ---- mcs ---------------------------------------------------------------------------------------------- */

/*
 * A queue of nodes: each waiter watches its own node, so that a contended lock's cache line does not bounce,
 * and the lock goes to the waiter that came first.  The price is that it goes to that waiter even if it has
 * been preempted while others run.
 *
 * A node belongs to the lock from the call of lock until unlock returns; unlock takes the same node, and any
 * thread may call it.  Unlock does not touch the lock once another thread may hold it.
 */
struct cpuslab_mcs_node {
	struct cpuslab_mcs_node *next;
	uint32_t state;
};

struct CPUSLAB_CAPABILITY("mcs_lock") cpuslab_mcs {
	struct cpuslab_mcs_node *tail;
};

#define CPUSLAB_MCS_INITIALIZER                                                                              \
	{                                                                                                    \
		0                                                                                            \
	}

void cpuslab_mcs_lock_slow(struct cpuslab_mcs_node *ahead, struct cpuslab_mcs_node *node);
void cpuslab_mcs_unlock_slow(struct cpuslab_mcs_node *node);

static inline bool cpuslab_mcs_trylock(struct cpuslab_mcs *lock, struct cpuslab_mcs_node *node)
	CPUSLAB_TRY_ACQUIRE(true, lock) CPUSLAB_IS_A_LOCK
{
	struct cpuslab_mcs_node *nobody = 0;

	node->next = 0;
	node->state = 0;
	/* Release: the thread that queues behind this node writes to it, after the two stores above. */
	bool taken = __atomic_compare_exchange_n(&lock->tail, &nobody, node, false, __ATOMIC_ACQ_REL,
						 __ATOMIC_RELAXED);
	if (taken)
		CPUSLAB_CHECK_LOCK(lock_taken(lock, CPUSLAB_LOCK_MCS));
	return taken;
}

static inline void cpuslab_mcs_lock(struct cpuslab_mcs *lock, struct cpuslab_mcs_node *node)
	CPUSLAB_ACQUIRE(lock) CPUSLAB_IS_A_LOCK
{
	CPUSLAB_CHECK_LOCK(lock_wanted(lock, CPUSLAB_LOCK_MCS));
	node->next = 0;
	node->state = 0;
	struct cpuslab_mcs_node *ahead = __atomic_exchange_n(&lock->tail, node, __ATOMIC_ACQ_REL);
	if (__builtin_expect(ahead != 0, 0))
		cpuslab_mcs_lock_slow(ahead, node);
	CPUSLAB_CHECK_LOCK(lock_taken(lock, CPUSLAB_LOCK_MCS));
}

static inline void cpuslab_mcs_unlock(struct cpuslab_mcs *lock, struct cpuslab_mcs_node *node)
	CPUSLAB_RELEASE(lock) CPUSLAB_IS_A_LOCK
{
	struct cpuslab_mcs_node *last = node;

	CPUSLAB_CHECK_LOCK(lock_released(lock, CPUSLAB_LOCK_MCS));
	/* If the successor is known already, the lock's own cache line need not be touched. */
	if (__builtin_expect(__atomic_load_n(&node->next, __ATOMIC_RELAXED) != 0, 0) ||
	    __builtin_expect(!__atomic_compare_exchange_n(&lock->tail, &last, (struct cpuslab_mcs_node *)0,
							  false, __ATOMIC_RELEASE, __ATOMIC_RELAXED),
			     0))
		cpuslab_mcs_unlock_slow(node);
}

static inline bool cpuslab_mcs_is_locked(const struct cpuslab_mcs *lock)
{
	return __atomic_load_n(&lock->tail, __ATOMIC_RELAXED) != 0;
}

/* In a forked child: frees a lock whose holder and waiters do not exist there. */
static inline void cpuslab_mcs_reset(struct cpuslab_mcs *lock)
{
	CPUSLAB_CHECK_LOCK(lock_forget(lock));
	__atomic_store_n(&lock->tail, (struct cpuslab_mcs_node *)0, __ATOMIC_RELEASE);
}

/* ---- checks -------------------------------------------------------------------------------------------- */

/*
 * With CPUSLAB_DEBUG_LOCKS defined before this file is included, the process is stopped, with one line on
 * standard error that names the lock, the thread and the owner, when a thread
 *
 *   - takes a lock that it holds already, which would deadlock,
 *   - unlocks a lock that is not locked, or that another thread has locked,
 *   - takes a pagelock or an mcs lock, or calls cpuslab_may_sleep, while it holds a spinlock.
 *
 * All code that shares a lock must be compiled alike.  The library itself needs no special build.  What a
 * signal handler locks goes unchecked where it interrupts a check, or runs because a check has stopped the
 * process.
 */
static inline void cpuslab_may_sleep(const char *what)
{
	(void)what;
	CPUSLAB_CHECK_LOCK(may_sleep(what));
}

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
