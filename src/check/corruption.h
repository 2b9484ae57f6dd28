/* SPDX-License-Identifier: MIT */
/*
 * check/corruption: how the library stops a program that has broken its heap.
 *
 * One line on standard error, by write(2) alone, that names the cache, the pointer and what is wrong; then
 * abort().  Called from any room; allocates nothing.  With no lock held, since what the program does when it
 * is aborted may allocate, trim and ask for statistics, and destroy caches as it exits; but for the locks of
 * walks over all caches, of which the rooms that find the damage know nothing: those are given up here.
 */
#ifndef CPUSLAB_CORRUPTION_H
#define CPUSLAB_CORRUPTION_H

#include <stdbool.h>

struct cpuslab_spinlock;

/*
 * Around a walk that frees, and may find damage: takes its lock.  The calling thread is on one other walk at
 * most, around this one.
 */
void corruption_begin_walk(struct cpuslab_spinlock *lock);
/* False, and no walk, while another thread has the lock. */
bool corruption_try_walk(struct cpuslab_spinlock *lock);
void corruption_end_walk(struct cpuslab_spinlock *lock);

/* `cache` is NULL where the memory belongs to none. */
_Noreturn void corruption_abort(const char *cache, const void *pointer, const char *what);

#endif
