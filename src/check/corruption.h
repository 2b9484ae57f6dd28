/* SPDX-License-Identifier: MIT */
/*
 * check/corruption: stops a program that has corrupted its heap.
 *
 * Writes one line to standard error, by write(2) alone, that names the cache, the pointer and the fault; in
 * hardened mode then the stack of the call that found it; then calls abort().  Called from any room;
 * allocates nothing.  The caller must hold no lock, since an aborting program may allocate, trim, ask for
 * statistics, and destroy caches as it exits.  The locks of walks over all caches are the exception: the
 * rooms that find the damage do not know of them, so they are released here.
 */
#ifndef CPUSLAB_CORRUPTION_H
#define CPUSLAB_CORRUPTION_H

#include <stdbool.h>

struct cpuslab_spinlock;

/*
 * Brackets a walk that frees, and may find damage; takes the walk's lock.  The calling thread may be on at
 * most one other walk, around this one.
 */
void corruption_begin_walk(struct cpuslab_spinlock *lock);
/* The same, but begins no walk and returns false while another thread has the lock. */
bool corruption_try_walk(struct cpuslab_spinlock *lock);
void corruption_end_walk(struct cpuslab_spinlock *lock);

/* `cache` is NULL where the memory belongs to none. */
_Noreturn void corruption_abort(const char *cache, const void *pointer, const char *what);

#endif
