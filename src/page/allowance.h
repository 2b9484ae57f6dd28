/* SPDX-License-Identifier: MIT */
/*
 * allowance: decides how many free pages may stay resident, and when the others are due to be purged.
 * Private to the page room; page_tick, page_rests, page_large_fell, page_wants_hoards, page_count_hollow
 * and page_count_touched are declared in page.h.
 *
 * It only decides.  From what the program takes and frees it learns how much the program has needed of late,
 * what was given back and then missed, and whether memory ebbs; run.c and purge.c ask it what remains to be
 * done.  It takes no run, gives none back, and does not know where they lie.
 *
 * Called with the page lock, except where page.h says otherwise.  `ebbing` is also read without it, as a
 * hint.
 *
 * Fork.  A child continues with what its parent knew: none of it needs to be exact.
 */
#ifndef CPUSLAB_ALLOWANCE_H
#define CPUSLAB_ALLOWANCE_H

#include "options/options.h"
#include "page/pocket.h"
#include "page/run.h"
#include "page/standby.h"

struct allowance {
	bool ebbing;        /* an ebb has begun, and only few pages were taken since */
	size_t ebb_taken;   /* pages taken since it began */
	size_t given_back;  /* pages purged as too many, perhaps missed later; fades at each tick */
	size_t taken;       /* pages taken since page_wants_hoards() last returned true */
	size_t taken_fresh; /* those of them from the system */
};
extern ARCH_INTERNAL struct allowance allowance;

/* Notes that pages were taken, `fresh` of them from the system. */
void allowance_note_use(uint32_t pages, uint32_t fresh);
/* The part of it that concerns an ebb, which ends when many pages are taken; pockets call it alone. */
void allowance_note_in_ebb(uint32_t pages);
/* Note that large objects have become more or longer, and fewer or shorter.  Both count their pages, too. */
void allowance_note_large(uint32_t pages);
void allowance_note_large_freed(uint32_t pages);

/* Whether at least so many pages are resident for certain: touched by the program, or dirty. */
bool allowance_is_resident(size_t least);
/* Pages in use that take memory, without those in pockets.  Also read without the lock. */
size_t allowance_filled(void);
/* How many pages may be dirty, besides those in pockets. */
size_t allowance_dirty(void);
/* Whether to purge now what is overdue; in an ebb more may gather first. */
bool allowance_is_purge_due(uint64_t now);

/* Whether the oldest dirty run has been free for the decay time. */
static inline bool allowance_is_old(uint64_t now)
{
	return run_oldest != RUN_NONE && os_elapsed(run_at(run_oldest)->freed_at, now) >= options.decay;
}

static inline bool allowance_is_overdue(uint64_t now)
{
	return run_pages.free[RUN_DIRTY] > allowance_dirty() || allowance_is_old(now);
}

static inline void allowance_begin_ebb(void)
{
	allowance.ebbing = true;
	allowance.ebb_taken = 0;
}

/* Bytes in large objects, without runs on standby and pages in pockets. */
int64_t allowance_large_bytes(void);

#endif
