/* SPDX-License-Identifier: MIT */
/*
 * allowance: how many free pages may stay resident, and since when the others are due.  For the page room's
 * own files; page_tick, page_rests, page_large_fell, page_wants_hoards and page_count_hollow are in page.h.
 *
 * Here is decided, and nothing else done.  Told of what the program takes and frees, this keeps what it has
 * needed of late, what was given back and missed, and whether its memory ebbs; run.c and purge.c ask it what
 * that leaves to do.  It takes no run, gives none back, and knows nothing of where they lie.
 *
 * With the page lock.  Without it: what of page.h says so there, and `ebbing`, which a glance may miss.
 *
 * Fork.  A child goes on from what its parent knew: none of it needs to be exact.
 */
#ifndef CPUSLAB_ALLOWANCE_H
#define CPUSLAB_ALLOWANCE_H

#include "options/options.h"
#include "page/pocket.h"
#include "page/run.h"
#include "page/standby.h"

struct allowance {
	bool ebbing;        /* since page_ebb, or an ebb of large objects, only few pages were taken */
	size_t ebb_taken;   /* these */
	size_t given_back;  /* pages that were too many, and may turn out to be missed; fades with every tick
			     */
	size_t taken;       /* pages since page_wants_hoards said so */
	size_t taken_fresh; /* of them, those from the system */
};
extern ARCH_INTERNAL struct allowance allowance;

/* After pages were taken, of which `fresh` come from the system. */
void allowance_note_use(uint32_t pages, uint32_t fresh);
/* The part of it that pages taken otherwise have in common with those: with many of them an ebb is over. */
void allowance_note_in_ebb(uint32_t pages);
/* Large objects have become more, or longer; and fewer, or shorter.  This counts their pages, too. */
void allowance_note_large(uint32_t pages);
void allowance_note_large_freed(uint32_t pages);

/* How many dirty pages may lie around, beside those in pockets. */
size_t allowance_dirty(void);
/* Whether to purge what is overdue now, which in an ebb may wait for more. */
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

/* Bytes in large objects, without what stands by or lies in pockets. */
int64_t allowance_large_bytes(void);

#endif
