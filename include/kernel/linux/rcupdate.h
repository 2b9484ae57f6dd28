/* SPDX-License-Identifier: MIT */
/*
 * For kernel sources in user space: RCU by liburcu, which has rcu_read_lock, rcu_dereference,
 * rcu_assign_pointer, call_rcu, synchronize_rcu and rcu_barrier under the kernel's names.  Reader threads
 * must be registered with it (rcu_register_thread), except in its flavour urcu-bp.
 */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_RCUPDATE_H
#define CPUSLAB_LINUX_RCUPDATE_H

#ifndef CPUSLAB_KMEM_RCU
#error "linux/rcupdate.h needs liburcu: define CPUSLAB_KMEM_RCU for the whole program"
#endif

#include <cpuslab/kmem.h>
#include <linux/cleanup.h>
#include <linux/compiler.h>

#define RCU_INIT_POINTER(pointer, value)              WRITE_ONCE(pointer, value)
#define rcu_access_pointer(pointer)                   READ_ONCE(pointer)
#define rcu_dereference_raw(pointer)                  rcu_dereference(pointer)
#define rcu_dereference_check(pointer, condition)     rcu_dereference(pointer)
#define rcu_dereference_protected(pointer, condition) (pointer)

/* Returns the old value; no other thread may change it meanwhile. */
#define rcu_replace_pointer(pointer, value, condition)                                                       \
	({                                                                                                   \
		__typeof__(pointer) cpuslab_was = rcu_dereference_protected(pointer, condition);             \
		rcu_assign_pointer(pointer, value);                                                          \
		cpuslab_was;                                                                                 \
	})

DEFINE_LOCK_GUARD_0(rcu, rcu_read_lock(), rcu_read_unlock())

#endif
