/* SPDX-License-Identifier: MIT */
/*
 * omit: which free parts of the heap core dumps leave out.  Private to the page room; what was never used is
 * left out by layout.h.
 *
 * A dump has free pages that went back to the system as zeros.  Leaving out each one would cut the heap's
 * mapping into as many pieces, of which a process may have 65530.  So the heap has units of OMIT_BYTES, and
 * those wholly inside a clean run are left out, with their records: four system calls for a unit, or for
 * several in a row, that goes back and comes again, beside the 128 page faults of the latter.
 *
 * So are those of which every page is kept by an owner whose memory went back (page_omit, of page.h).
 *
 * Called with the page lock, under which no thread takes the pages meanwhile: an object that dumps omit could
 * not be looked at.
 */
#ifndef CPUSLAB_OMIT_H
#define CPUSLAB_OMIT_H

#include <stdint.h>

#include "arch/arch.h"
#include "page/page.h"

enum {
	OMIT_BYTES = 512 << 10,
	OMIT_PAGES = OMIT_BYTES >> PAGE_SHIFT,
	OMIT_MARK_BYTES = OMIT_BYTES / PAGE_MARK_UNIT * sizeof(uint16_t)
};

/*
 * To be called after the pages from `from` to `to` became clean, and part of the clean run from `first` to
 * `end`.
 */
void omit_clean(uint32_t from, uint32_t to, uint32_t first, uint32_t end);
/* To be called after pages were taken out of clean runs, before they are used. */
extern ARCH_INTERNAL uint32_t omit_count; /* units left out */
void omit_return(uint32_t first, uint32_t end);
static inline void omit_taken(uint32_t first, uint32_t end)
{
	if (omit_count)
		omit_return(first, end);
}
/* Makes dumps contain everything again: a repair forgets which runs are clean. */
void omit_nothing(void);

#endif
