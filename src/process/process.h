/* SPDX-License-Identifier: MIT */
/*
 * process: starts the library at the first call, whenever that is, and repairs it in a forked child.
 *
 * There is no atfork handler that could run between other locks, and no constructor that could run too late
 * or too early: the one there is (prepare) only makes some system calls before a program can forbid them.
 * Instead every slow path calls process_enter(), which tests a word that the kernel itself clears in a
 * forked child (MADV_WIPEONFORK; where that is refused, a handler in the child does, which takes no lock).
 * The word is zero until the library has started, and so are the limits that admit calls to the fast paths.
 *
 * If the system has no memory to start with, the library stays as if it had never been called, and the next
 * call tries again: there are no caches, nothing is allocated, and an allocation returns NULL.
 *
 * A child forked while another thread was starting the library can neither finish the start nor begin it
 * anew: its first call aborts.  Where malloc is ours that cannot happen, as pthread_create calls it before
 * there is a second thread.  Where a process with threads opens the library for its caches alone, it can,
 * once, during the start.  Starting in a constructor would close that window, since nobody can call us before
 * dlopen returns; but then every program that opens a plugin it has no use for would pay for the start, and
 * limits that it sets before its first call would come too late.  Such a program can make a first call itself
 * (docs/linking.md).
 *
 * Which rooms there are, and in which order they start and are repaired, is known above, in one place:
 * malloc/rooms.c.
 */
#ifndef CPUSLAB_PROCESS_H
#define CPUSLAB_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "arch/arch.h"

extern ARCH_INTERNAL const uint32_t *process_alive;

bool process_settle(void);

/*
 * Supplied by malloc/rooms.c.
 *
 * rooms_prepare  makes those system calls that libc's own malloc would not make; at most once
 * rooms_begin    obtains what the library cannot do without; false, with everything as before, without memory
 * rooms_open     whatever else each room needs before the first call is served
 * rooms_serve    admits calls to the fast paths; what the program sees of the library before and after `main`
 * rooms_are_torn in a forked child: whether another thread of the parent left any room half changed.  Writes
 *                nothing, and runs only code that lies beside what a slow path needs: each page that a child
 *                is the first to touch costs it a fault
 * rooms_repair   if they are; `all`: whatever the locks say
 * rooms_begin_child  in each forked child: what was true of its parent alone changes
 */
void rooms_prepare(void);
bool rooms_begin(void);
void rooms_open(void);
void rooms_serve(void);
bool rooms_are_torn(void);
void rooms_repair(bool all);
void rooms_begin_child(void);

/*
 * The first thing in every slow path.  False when the library could not start: an allocation must then
 * fail.
 */
static inline bool process_enter(void)
{
	return __builtin_expect(__atomic_load_n(process_alive, __ATOMIC_ACQUIRE) == 1, 1) || process_settle();
}

#endif
