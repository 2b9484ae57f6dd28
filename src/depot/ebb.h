/* SPDX-License-Identifier: MIT */
/*
 * ebb: notices that a program has freed most of what it had.
 *
 * It may have done so for good and never come to a slow path again; nobody else would then give back its
 * hoards: free objects on words and in depots, empty slabs, dirty pages.  So the depots count the bytes that
 * are out, in objects that the program or words have, of all caches together, as magazines come and go.  Each
 * time that half of these bytes have come back, an ebb is due, in which they go: everything on the words,
 * where a few objects keep whole slabs, and of the depots and of the dirty pages whatever exceeds what the
 * program still has.
 *
 * The next slow path empties the words.  What leaves the depots, and the pages of the slabs that become
 * empty, go in portions, one with each call that comes to a depot (reclaim.c), so that no call pays for the
 * whole.  There will be enough calls, since half of what was out has yet to come back.  Classes with many
 * objects return whole magazines; frees to others that meet a void word, one without a magazine, go to the
 * slabs one by one until objects go out again (depot.scarce).  Otherwise the last objects freed would stay on
 * the words, and hold so much of what is out that the next ebb never came.  When little is left, one call
 * does more at once, as it may be the last.
 *
 * Once no more than an eighth is left, which may lie in every slab there is, the pages of these slabs that
 * hold no object follow, by portions as well.  The frees that are still to come pay for that; from an eighth
 * on no program was seen to take longer.
 *
 * page/tide.h says what a fall is, and when one is in vain.  After the first fall in vain 63 are passed over,
 * and 255 after each further one: a program that empties and fills a heap in turn pays for two of them.  If
 * one that was passed over lasts for the decay time, its ebb comes then.
 *
 * Objects of the linked engine are not counted, nor those of debugged caches; hardened caches give nothing.
 * Large objects have a tide of their own, in the page room.
 *
 * Called from any thread, without a lock.  The bytes are exact.  Other stores may be lost, to another
 * thread's at the same instant or in a forked child: then a fall is passed over or followed once too often,
 * no more.
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
	EBB_PASSED_LOG = 6, /* passed_log, more_log and most_log of the tide */
	EBB_MORE_LOG = 2,
	EBB_MOST_LOG = 8,
	EBB_FAR = 8,         /* far: at most this part is left of what was out before the fall */
	EBB_LOW = 512 << 10, /* bytes out that are little */
};

/* Count bytes of objects that leave the depots and slabs, and that come back. */
void ebb_count_out(uint64_t bytes);
void ebb_count_in(uint64_t bytes);
/* Counts bytes of objects that leave the slabs, or below 0 that come back to them. */
void ebb_count_taken(int64_t bytes);
/* Bytes of objects that wait in all depots. */
int64_t ebb_waiting(void);

/*
 * Whether an ebb is due.  Whoever follows it calls ebb_begin() before anything goes, which returns whether
 * little is left.
 */
bool ebb_is_due(void);
bool ebb_begin(void);

/*
 * After a large object was freed: if little is out, and nothing went out since the last ebb, the program may
 * be at its end, and too little have come back since to make another ebb due.  Makes one due in that case,
 * once in a fall; returns whether it did.
 */
bool ebb_repeat(void);

/* Whether an eighth at most is left of what was out before the fall. */
bool ebb_is_far(void);

/* Whether a free that meets a void word goes to the slabs if its cache is scarce. */
bool ebb_goes_alone(void);

/* Whether a fall that was passed over stands, so that an ebb is due if it lasts. */
bool ebb_may_last(void);
/* Whether bytes have halved in such a fall since the last call. */
bool ebb_has_halved(void);

/*
 * Call at each tick: makes an ebb due if a fall that was passed over has lasted.  Every EBB_FORGET ticks,
 * forgets one fall in vain, and half of those to pass over.
 */
void ebb_tick(void);

#endif
