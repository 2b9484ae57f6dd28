/* SPDX-License-Identifier: MIT */
/*
 * ebb: notices that a program has freed most of what it had.
 *
 * It may have done so for good, and never come to a slow path again; then nobody else would give back what is
 * hoarded for it. So depots count the bytes of objects that are out, with the program or on words, of all
 * caches together, as magazines come and go. Each time that half of them have come back it is due that
 * everything hoarded goes: from the words, where a few objects keep whole slabs, from the depots as far as
 * it is more than the program still has, and from the dirty pages likewise.
 *
 * The call that comes by then empties the words. What leaves the depots, and the pages of the slabs that this
 * empties, go in portions, one by each call that comes to a depot (reclaim.c): nobody waits for the whole.
 * Enough calls come, since half of what was out has still to come back: a class that the program has many
 * objects of brings whole magazines, and frees of others that meet a void word go to the slabs one by one
 * until objects go out again (depot.scarce). What is freed last would else stay on the words, and they would
 * hold so much of what is out that the next ebb never came. When little is left a call does more at once, as
 * it may be the last.
 *
 * Where no more than an eighth is left, which may lie in every slab there is, pages of these that no object
 * lies in follow, by portions as well.  What goes on to be freed pays for that; from an eighth on no program
 * was seen to take longer by it.
 *
 * See page/tide.h for what a fall is, and when one is in vain.  After the first one in vain 63 are passed
 * over, and 255 after each further one: a program that empties and fills a heap in turn pays for two of them.
 *
 * Objects of the linked engine are not counted, nor those of debugged caches; of hardened caches nothing
 * goes. Large objects have a tide of their own, in the page room.
 *
 * Called from any thread, without a lock. The bytes are exact. What else two threads store at one instant one
 * of them may lose, and so may a forked child: a fall is passed over or followed too often, no more.
 */
#ifndef CPUSLAB_DEPOT_EBB_H
#define CPUSLAB_DEPOT_EBB_H

#include <stdbool.h>
#include <stdint.h>

#include "page/tide.h"

enum {
	EBB_FROM = TIDE_FROM,
	EBB_LEAST = TIDE_LEAST,
	EBB_FORGET = 64,    /* ticks */
	EBB_PASSED_LOG = 6, /* these powers of two less one, see tide.h */
	EBB_MORE_LOG = 2,
	EBB_MOST_LOG = 8,
	EBB_FAR = 8,         /* this part of what was out before the fall */
	EBB_LOW = 512 << 10, /* so few bytes out are little */
};

/* Objects leave the depots and slabs; they come back. */
void ebb_count_out(uint64_t bytes);
void ebb_count_in(uint64_t bytes);

/*
 * Whether hoards are due to go; who sees to it says so before anything goes, and learns whether little is
 * left.
 */
bool ebb_is_due(void);
bool ebb_begin(void);

/*
 * The program frees what is large, has little else, and has taken nothing since the last ebb: this may be its
 * end, and what has come back since then be too little for another one.  Then one is due, once in a fall.
 */
bool ebb_repeat(void);

/* Whether nearly all has come back. */
bool ebb_is_far(void);

/* Whether a free that met a void word goes to the slabs, where its cache is scarce. */
bool ebb_goes_alone(void);

/* At each tick; every EBB_FORGET ticks one fall in vain is forgotten, and half of those to pass over. */
void ebb_forget(void);

#endif
