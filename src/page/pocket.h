/* SPDX-License-Identifier: MIT */
/*
 * pocket: free pages that a vCPU keeps for its next large objects.  For the page room's own files, and for
 * standby.c, through which large objects come here.
 *
 * Two threads that replace large blocks of many lengths find every cache line that the page lock guards in
 * the other CPU's cache, and the pages that they get there as well.  So once replacing threads have waited
 * for the page lock EARNED times between two ticks, each vCPU gets a pocket: a few extents of free pages.  A
 * freed run coalesces with its neighbours in the pocket; an allocation takes the beginning of the shortest
 * extent that is long enough.  If none is, the whole pocket goes back to the bins and the longest dirty run
 * comes instead. Otherwise a pocket would end up with pieces that fit nothing.
 *
 * Bounds.  A program that replaces its blocks frees one at a time: of two frees in a row on a vCPU the second
 * takes the usual path, where a program that holds less and less is noticed.  Pockets together hold at most
 * as many pages as may be dirty, and at most one and a half times the pages in large objects.  They close
 * when they hold twice as many pages as are in use, and at a tick since which none of them served anybody.
 *
 * Accounting.  Pages in pockets are marked as in transit and count as used and as large; callers that ask
 * for either subtract pocket_pages().  They become free runs before the page room takes memory from the
 * system, and in an ebb (run_recall_standby).
 *
 * Locks.  Each pocket has a lock that no thread waits for: a thread that finds it taken takes the usual path.
 * It may be tried with the page lock held; the page lock is never taken with it held.  pocket_take,
 * pocket_put and pocket_calls are called without the page lock, all others with it.
 *
 * Fork.  If another thread was in a pocket, which its lock tells, the child builds all of the room's lists
 * anew, with empty pockets; a run that the other thread had already taken out is lost to the child.  The
 * beginning of a run is the last page to be marked as used and the first to be marked as in transit, so every
 * page belongs to one run or is free.
 */
#ifndef CPUSLAB_POCKET_H
#define CPUSLAB_POCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"

/* Whether pockets are in use.  Read without a lock, as a hint. */
extern ARCH_INTERNAL bool pocket_open;
/* Waits for the page lock since the last tick, while pockets are closed.  With the page lock. */
extern ARCH_INTERNAL uint8_t pocket_earned;
/* Pockets from here on have never held anything.  0 in most programs. */
extern ARCH_INTERNAL unsigned pocket_count;

/* Allocates a large run from this vCPU's pocket; NULL for none. */
void *pocket_take(size_t pages, unsigned vcpu);
/* Frees a large run into the pocket.  False: it is still the caller's, who takes the usual path. */
bool pocket_put(uint32_t first, size_t pages, unsigned vcpu);
/* The numbers of runs that these two have taken and put so far. */
void pocket_calls(uint64_t *takes, uint64_t *puts);

/* A thread that replaces a large run has waited for the page lock. */
void pocket_waited(void);
/* Sets the bound, from the pages in large objects and those that may be dirty. */
void pocket_bound(size_t live, size_t dirty);
/* Pages in all pockets. */
size_t pocket_sum(void);

static inline size_t pocket_pages(void)
{
	return __builtin_expect(pocket_count != 0, 0) ? pocket_sum() : 0;
}

/* Whether closed pockets still hold pages. */
bool pocket_is_left(void);
/* Whether any run was taken here since the last call. */
bool pocket_served(void);
/* Takes an extent out of any pocket; returns its pages, 0 for none. */
uint32_t pocket_recall(uint32_t *first);
/* At a tick: closes pockets that served nobody since the last one; forgets what closed ones have earned. */
void pocket_forget(void);
/* Closes them all: what they have is for pocket_recall(). */
void pocket_close(void);
/* In a forked child: whether another thread was in a pocket; and empties them for the lists made anew. */
bool pocket_is_in_hand(void);
void pocket_repair(void);
/* Describes the pockets to readers of this process's memory (see report/root.h). */
void pocket_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
