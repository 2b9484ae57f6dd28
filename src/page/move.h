/* SPDX-License-Identifier: MIT */
/*
 * move: contents that change their place.  Pages of their own move without being read or written, so that
 * those which were never touched take no memory at the new place either, and a large object moves in no time.
 * What must be copied is copied as sparse.h has it.  Private to the page room.  No locks.
 */
#ifndef CPUSLAB_MOVE_H
#define CPUSLAB_MOVE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Moves `old` bytes of pages to `to`, where `bytes` bytes are mapped, and not fewer than `old`.  Nothing is
 * left where they were: `give_back` gets what had to be copied.  Without it the old addresses stay mapped,
 * and read as zero if true is returned: then nothing had to be copied.
 */
bool move_pages(char *from, size_t old, char *to, size_t bytes, void (*give_back)(void *start, size_t bytes));

#endif
