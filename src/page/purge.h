/* SPDX-License-Identifier: MIT */
/*
 * purge: gives free pages back to the system, in portions.  For the page room's own files; page_purge,
 * page_ebb, page_is_behind, page_hollow and page_count_purged are in page.h.
 *
 * What is to go, allowance.h tells.  This takes it out of the free runs, oldest first, marked as in transit,
 * gives it back without the page lock, several runs by one system call where the system lets, and makes clean
 * runs of it.  A call that meets its bound leaves the rest to the next one, and says so.
 *
 * Without the page lock, which these functions take.
 *
 * Fork.  Pages in transit whose purger a child does not have become dirty runs again (run_repair).
 */
#ifndef CPUSLAB_PURGE_H
#define CPUSLAB_PURGE_H

#include <stdbool.h>
#include <stddef.h>

#include "arch/arch.h"

enum {
	PURGE_TIMES = 2,      /* as many pages as a call takes or frees it gives back, and PAGE_PURGE_MOST */
	PURGE_TIMES_LAST = 4, /* where it frees the last large object of all, in an ebb */
};

/*
 * Gives back what is overdue, or all: `most` pages, in runs of which each counts for some at least, so that
 * what one call does has a bound.  The last run may be larger by less than a block.
 */
void purge_runs(bool all, size_t most);

extern ARCH_INTERNAL bool purge_behind; /* the last purge met its bound before its end */

/* What is due goes by the next call of page_purge. */
static inline void purge_later(void)
{
	__atomic_store_n(&purge_behind, true, __ATOMIC_RELAXED);
}

#endif
