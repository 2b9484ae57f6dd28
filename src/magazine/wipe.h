/* SPDX-License-Identifier: MIT */
/*
 * magazine/wipe: how a freed object of a hardened cache comes to read as zero, and the check that it still
 * does when it is handed out again.
 *
 * A small object is zeroed in place (check/blank.h).  One of many pages may be mostly untouched: only its
 * resident pages are zeroed and checked.  And several of each size wait on each vCPU.  When all of them
 * together keep more memory than the program has in such objects, the next ones' pages go back to the system
 * instead, at the price of a page fault for each that the program touches again.
 *
 * Called by hardened.c, for objects that the caller has taken from the program or is about to hand out.
 */
#ifndef CPUSLAB_MAGAZINE_WIPE_H
#define CPUSLAB_MAGAZINE_WIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Makes an object read as zero, of which the program and its canary had `used` bytes.  Its mark is SLAB_BACK,
 * and may become one that tells of resident pages.
 */
void wipe(void *object, uint16_t *mark, uint32_t bytes, size_t used);
/* Whether a wiped object reads as zero. */
bool wipe_left_blank(void *object, uint32_t bytes);
/* Counts an object that the program gets, whose mark was `was`. */
void wipe_note_out(uint16_t was, uint32_t bytes);

#endif
