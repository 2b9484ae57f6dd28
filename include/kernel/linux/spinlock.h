/* SPDX-License-Identifier: MIT */
/*
 * For kernel sources in user space: spinlock_t is cpuslab's spinlock, whose waiters sleep when the holder has
 * been preempted.  There are no interrupts to disable.
 */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_SPINLOCK_H
#define CPUSLAB_LINUX_SPINLOCK_H

#include <cpuslab/lock.h>
#include <linux/cleanup.h>
#include <linux/compiler.h>
#include <linux/lockdep.h>

typedef struct cpuslab_spinlock spinlock_t;

#define __SPIN_LOCK_UNLOCKED(name) (spinlock_t) CPUSLAB_SPINLOCK_INITIALIZER
#define DEFINE_SPINLOCK(name)      spinlock_t name = CPUSLAB_SPINLOCK_INITIALIZER

#define spin_lock_init(lock) cpuslab_spin_init(lock, 0)
#define spin_lock(lock)      cpuslab_spin_lock(lock)
#define spin_trylock(lock)   cpuslab_spin_trylock(lock)
#define spin_unlock(lock)    cpuslab_spin_unlock(lock)
#define spin_is_locked(lock) cpuslab_spin_is_locked(lock)

#define assert_spin_locked(lock) cpuslab_spin_assert_held(lock)
/* The subclass is for the kernel's lock checker. */
#define spin_lock_nested(lock, subclass) spin_lock(lock)

#define spin_lock_bh(lock)    spin_lock(lock)
#define spin_unlock_bh(lock)  spin_unlock(lock)
#define spin_lock_irq(lock)   spin_lock(lock)
#define spin_unlock_irq(lock) spin_unlock(lock)
#define spin_lock_irqsave(lock, flags)                                                                       \
	do {                                                                                                 \
		(flags) = 0;                                                                                 \
		spin_lock(lock);                                                                             \
	} while (0)
#define spin_unlock_irqrestore(lock, flags)                                                                  \
	do {                                                                                                 \
		(void)(flags);                                                                               \
		spin_unlock(lock);                                                                           \
	} while (0)
#define spin_trylock_irqsave(lock, flags) ((flags) = 0, spin_trylock(lock))

/* The kernel's raw spinlocks never sleep; here they are the same lock. */
typedef struct cpuslab_spinlock raw_spinlock_t;

#define __RAW_SPIN_LOCK_UNLOCKED(name)          __SPIN_LOCK_UNLOCKED(name)
#define DEFINE_RAW_SPINLOCK(name)               DEFINE_SPINLOCK(name)
#define raw_spin_lock_init(lock)                spin_lock_init(lock)
#define raw_spin_lock(lock)                     spin_lock(lock)
#define raw_spin_trylock(lock)                  spin_trylock(lock)
#define raw_spin_unlock(lock)                   spin_unlock(lock)
#define raw_spin_lock_irq(lock)                 spin_lock_irq(lock)
#define raw_spin_unlock_irq(lock)               spin_unlock_irq(lock)
#define raw_spin_lock_irqsave(lock, flags)      spin_lock_irqsave(lock, flags)
#define raw_spin_unlock_irqrestore(lock, flags) spin_unlock_irqrestore(lock, flags)

DEFINE_LOCK_GUARD_1(spinlock, spinlock_t, spin_lock(_T->lock), spin_unlock(_T->lock))
DEFINE_LOCK_GUARD_1(spinlock_bh, spinlock_t, spin_lock_bh(_T->lock), spin_unlock_bh(_T->lock))
DEFINE_LOCK_GUARD_1(spinlock_irq, spinlock_t, spin_lock_irq(_T->lock), spin_unlock_irq(_T->lock))
DEFINE_LOCK_GUARD_1(spinlock_irqsave, spinlock_t, spin_lock_irqsave(_T->lock, _T->flags),
		    spin_unlock_irqrestore(_T->lock, _T->flags), unsigned long flags)
DEFINE_LOCK_GUARD_1(raw_spinlock, raw_spinlock_t, raw_spin_lock(_T->lock), raw_spin_unlock(_T->lock))
DEFINE_LOCK_GUARD_1(raw_spinlock_irq, raw_spinlock_t, raw_spin_lock_irq(_T->lock),
		    raw_spin_unlock_irq(_T->lock))
DEFINE_LOCK_GUARD_1(raw_spinlock_irqsave, raw_spinlock_t, raw_spin_lock_irqsave(_T->lock, _T->flags),
		    raw_spin_unlock_irqrestore(_T->lock, _T->flags), unsigned long flags)

#endif
