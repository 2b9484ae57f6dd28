/* SPDX-License-Identifier: MIT */
/*
 * limit: the options limit and limit_hard.  Private to the page room; page_presses and page_set_limits are
 * declared in page.h.
 *
 * What counts are the pages that hold something: of slabs and large runs but for purged ones, of mappings,
 * and of metadata; and beside these the free ones that are still resident.  All of it is counted where it
 * changes anyway, so a look costs some loads and no system call.  Pages that the program has not touched yet
 * count too.
 *
 * Below the soft limit the free pages that may stay are those that fit beside what is in use (allowance.h).
 * From a sixteenth below it, use presses: magazines, depots, empty and partial slabs give back what they
 * have, each time that another part of the limit was taken.  Above the hard limit page_alloc, huge_alloc and
 * those that grow an object refuse, as if the system had; the rooms above then trim, try again, and return
 * NULL.
 *
 * Without either option nothing is looked at but the options.  Read without a lock: all of it is a matter of
 * degree.
 */
#ifndef CPUSLAB_LIMIT_H
#define CPUSLAB_LIMIT_H

#include <stdbool.h>
#include <stddef.h>

#include "options/options.h"

static inline bool limit_is_set(void)
{
	return __builtin_expect((options.limit | options.limit_hard) != 0, 0);
}

/* How many free pages may stay resident; SIZE_MAX where there is no limit. */
size_t limit_room(void);
/* Whether `pages` more would exceed the hard limit. */
bool limit_exceeds(size_t pages);
static inline bool limit_refuses(size_t pages)
{
	return limit_is_set() && limit_exceeds(pages);
}
/* Notes that pages were taken, or touched again. */
void limit_note(size_t pages);

#endif
