/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: the kernel's lock checker.  Assertions on spinlocks are checked. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_LOCKDEP_H
#define CPUSLAB_LINUX_LOCKDEP_H

#include <cpuslab/lock.h>

#define lockdep_assert_held(lock)      cpuslab_spin_assert_held(lock)
#define lockdep_assert_held_once(lock) cpuslab_spin_assert_held(lock)

#endif
