/* SPDX-License-Identifier: MIT */
/*
 * purge: returns free pages to the system, in portions.  Private to the page room; page_purge, page_ebb,
 * page_is_behind, page_hollow and page_count_purged are declared in page.h.
 *
 * allowance.h decides what is to go.  This file takes it out of the free runs, oldest first, marks it as in
 * transit, purges it without the page lock, several runs by one system call where the system allows, and puts
 * it back as clean runs.  A call that reaches its bound leaves the rest to the next one, and says so.
 *
 * Called without the page lock, which these functions take.
 *
 * Fork.  Pages in transit whose purger the child does not have become dirty runs again (run_repair).
 */
#ifndef CPUSLAB_PURGE_H
#define CPUSLAB_PURGE_H

#include <stdbool.h>
#include <stddef.h>

#include "arch/arch.h"

enum {
	PURGE_TIMES = 2,      /* pages purged for each that a call takes or frees, besides PAGE_PURGE_MOST */
	PURGE_TIMES_LAST = 4, /* the same where it frees the very last large object, in an ebb */
};

/*
 * Purges what is overdue, or everything free, up to `most` pages.  Each run counts as a minimum number of
 * pages, which bounds the work of one call.  The last run may exceed the bound by less than a block.
 */
void purge_runs(bool all, size_t most);

/* Purges what is overdue, up to `most` pages, or leaves that to the background thread. */
void purge_due(size_t most);

extern ARCH_INTERNAL bool purge_behind; /* the last purge reached its bound before its end */

/* Leaves what is due to the next call of page_purge(). */
static inline void purge_later(void)
{
	__atomic_store_n(&purge_behind, true, __ATOMIC_RELAXED);
}

#endif
