/* SPDX-License-Identifier: MIT */
/*
 * magazine/lull: lets memory go back when a program may have come to its end.  For the magazine room's own
 * files, beside magazine_large_freed and magazine_left_alone.
 *
 * What a program frees last goes back by age, which takes a slow path.  There may be none: the program may
 * have come to its end, and make a few calls each second, all of which magazines serve.  So when a large
 * object is freed while much waits, a lull begins: malloc's words on this vCPU become void, their magazines
 * spares, which needs no fence; when the last of several threads but one has ended, those on all vCPUs do
 * (magazine_left_alone), and at each halving in a fall of objects that is passed over (depot/ebb.h), those on
 * this vCPU.  As long as few calls miss for that reason, they leave the words void.  A program that goes on
 * as before soon has its magazines again, and what that costs it in a millisecond is bounded.
 *
 * Called from slow paths of any thread, without a lock: of two threads' stores at once one may be lost, and a
 * few calls more or fewer then go by the spare.
 */
#ifndef CPUSLAB_MAGAZINE_LULL_H
#define CPUSLAB_MAGAZINE_LULL_H

#include "magazine/magazine.h"

enum { LULL_LEAST = (128 << 10) >> PAGE_SHIFT }; /* pages that wait, for a lull to begin */

struct lull_state {
	bool on;       /* a lull is on */
	bool loaded;   /* a word was loaded since the words became void */
	unsigned vcpu; /* whose words became void */
	unsigned calls, times;
	uint64_t step; /* when this step of the clock began, in milliseconds */
};
extern ARCH_INTERNAL struct lull_state lull;

static inline bool lull_is_on(void)
{
	return __builtin_expect(__atomic_load_n(&lull.on, __ATOMIC_RELAXED), 0);
}

/* After a free: begins a lull if enough waits.  `fell`: the program frees without replacing what it freed. */
void lull_look(size_t standing_by, bool fell);

/* In a fall that was passed over (depot/ebb.h): the program may be at its end all the same. */
void lull_await(void);

/*
 * At each tick of a lull.  If the program has gone on, begins the lull anew or ends it, as the program may be
 * at its end only now.  As long as its calls are few, the lull lasts whether or not pages wait: the depots
 * may give up some at one of the next ticks.
 */
void lull_follow(void);

/* Whether a call that met a void word leaves it void. */
bool lull_is_one_of_few(const struct cache *cache);
static inline bool lull_keeps_void(const struct cache *cache)
{
	return lull_is_on() && lull_is_one_of_few(cache);
}

#endif
