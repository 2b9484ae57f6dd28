/* SPDX-License-Identifier: MIT */
/*
 * For kernel sources in user space: spinlock_t on cpuslab's spinlock, which sleeps when its holder has lost
 * its CPU.  There are no interrupts to turn off.
 */
#ifndef CPUSLAB_LINUX_SPINLOCK_H
#define CPUSLAB_LINUX_SPINLOCK_H

#include <cpuslab/lock.h>
#include <linux/compiler.h>

typedef struct cpuslab_spinlock spinlock_t;

#define __SPIN_LOCK_UNLOCKED(name) (spinlock_t) CPUSLAB_SPINLOCK_INITIALIZER
#define DEFINE_SPINLOCK(name)      spinlock_t name = CPUSLAB_SPINLOCK_INITIALIZER

#define spin_lock_init(lock) cpuslab_spin_init(lock, 0)
#define spin_lock(lock)      cpuslab_spin_lock(lock)
#define spin_trylock(lock)   cpuslab_spin_trylock(lock)
#define spin_unlock(lock)    cpuslab_spin_unlock(lock)
#define spin_is_locked(lock) cpuslab_spin_is_locked(lock)

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

#endif
