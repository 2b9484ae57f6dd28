/* SPDX-License-Identifier: MIT */
/*
 * process: starts the library at the first call, whenever that is, and repairs it in a forked child.
 *
 * There is no constructor and no atfork handler to come too late, too early, or between other locks: every
 * slow path asks process_enter(), whose one word the kernel itself clears in a forked child
 * (MADV_WIPEONFORK; where that is refused, a handler in the child does, which takes no lock).  Until the
 * library has started the same word is zero, and the limits that admit calls to the fast paths are zero too.
 *
 * Where the system has no memory to start with, the library stays as if it had never been called, and the
 * next call tries again: there are no caches, nothing is allocated, and an allocation returns NULL.
 *
 * A child that was forked while another thread was at the start can neither finish it nor begin it anew: its
 * first call stops it.  Where malloc is ours that cannot be, as pthread_create calls it before there is a
 * second thread.  Where the library is opened for its caches alone, into a process with threads, it can,
 * once, for as long as the start takes.  A constructor would close that, since nobody can call us before
 * dlopen returns; but each program that opens a plugin, and has no use for it, would pay for the start, and
 * limits that it sets before its first call would come too late.  Such a program can make a first call itself
 * (docs/linking.md).
 */
#ifndef CPUSLAB_PROCESS_H
#define CPUSLAB_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "arch/arch.h"

extern ARCH_INTERNAL const uint32_t *process_alive;

bool process_settle(void);

/*
 * First thing in every slow path.  False when the library could not start; who would allocate must then say
 * so.
 */
static inline bool process_enter(void)
{
	return __builtin_expect(__atomic_load_n(process_alive, __ATOMIC_ACQUIRE) == 1, 1) || process_settle();
}

#endif
