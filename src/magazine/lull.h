/* SPDX-License-Identifier: MIT */
/*
 * magazine/lull: a program that has come to its end, or nearly.  For the magazine room's own files, beside
 * magazine_large_freed and magazine_left_alone.
 *
 * What a program frees last waits to go back by age, and does so at a slow path.  There may be none: it may
 * have come to its end, and its next calls be a few each second, of which magazines serve every one.  So when
 * a large object is freed and much waits then, malloc's words on this vCPU become void, which needs no fence,
 * and on all vCPUs when the last of several threads but one has ended (magazine_left_alone); and while few
 * calls miss for that they leave the words as they are.  A program that goes on as before soon has its
 * magazines again, and what that costs it has a bound in each step of the clock, of some milliseconds.
 *
 * Called from slow paths of any thread, without a lock: what two threads store at once one may lose, and then
 * a few calls more or fewer go by the spare.
 */
#ifndef CPUSLAB_MAGAZINE_LULL_H
#define CPUSLAB_MAGAZINE_LULL_H

#include "magazine/magazine.h"

struct lull_state {
	bool on;       /* since much waits */
	bool loaded;   /* a word was, since they became void */
	unsigned vcpu; /* of these */
	unsigned calls, times;
	uint64_t step; /* milliseconds */
};
extern ARCH_INTERNAL struct lull_state lull;

static inline bool lull_is_on(void)
{
	return __builtin_expect(__atomic_load_n(&lull.on, __ATOMIC_RELAXED), 0);
}

/* After a free; `fell`: what was freed last is not what others replace again and again. */
void lull_look(size_t standing_by, bool fell);

/*
 * At a tick in one.  The program may have gone on, and be at its end only now.  As long as its calls are few
 * it does not matter whether pages wait: depots have some that they give up at one of the next ticks.
 */
void lull_follow(void);

/* Of a call that met a void word: whether it stays so. */
bool lull_is_one_of_few(const struct cache *cache);
static inline bool lull_keeps_void(const struct cache *cache)
{
	return lull_is_on() && lull_is_one_of_few(cache);
}

#endif
