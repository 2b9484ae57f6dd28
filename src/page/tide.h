/* SPDX-License-Identifier: MIT */
/*
 * tide: detects, from how many bytes of something a program has out, that it has freed most of them.
 *
 * A fall begins when half of them have come back; an ebb is due then and at each further halving.  The fall
 * is over when the program takes as much again as it had left.  If the program returns to a quarter of where
 * the fall began, following it was in vain, and some of the next falls from about the same height are passed
 * over: the more, the more often that happens.  A fall that was passed over, but lasts, was for good after
 * all (tide_lasts).
 *
 * Called from any thread, without a lock.  When two threads store at once one store may be lost, in a forked
 * child too: then one fall too many is followed or passed over, no more.
 */
#ifndef CPUSLAB_TIDE_H
#define CPUSLAB_TIDE_H

#include <stdbool.h>
#include <stdint.h>

enum {
	TIDE_FROM = 6 << 20,   /* bytes out from which a fall counts: smaller programs have little to give */
	TIDE_LEAST = 64 << 10, /* bytes out down to which it continues */
};

struct tide {
	int64_t high;      /* most bytes out since the last halving */
	int64_t low;       /* bytes out at the last halving */
	int64_t from;      /* where the last fall began; 0 if it was passed over or in vain */
	int64_t vain_from; /* where the last fall in vain began */
	unsigned vain;     /* recent falls in vain */
	unsigned passing;  /* falls still to pass over */
	uint64_t fell_at;  /* time of the last halving in milliseconds, where `lasts`; see tide_lasts */
	bool falling;
	bool passed; /* this fall was passed over */
	bool halved; /* and bytes have halved in it; for the owner, who clears it */
	bool lasts;  /* a fall that lasted for the decay time was not in vain */
	/*
	 * The first fall in vain makes 2^passed_log - 1 falls be passed over, each further one about
	 * 2^more_log times as many, and never more than 2^most_log - 1.
	 */
	uint8_t passed_log, more_log, most_log;
};

/* Notes that `bytes` are out, more than before. */
void tide_rose(struct tide *tide, int64_t bytes);

/* Notes that `bytes` are out, fewer than before; returns whether an ebb is due. */
bool tide_fell(struct tide *tide, int64_t bytes);

/*
 * Call at each tick: whether a fall that was passed over has lasted for the decay time, counted from the
 * first tick that finds it, as a program that wakes up may be about to rise.  Says so once in a fall.
 */
bool tide_lasts(struct tide *tide);

/* Forgets one fall in vain, and half of the falls to pass over. */
void tide_forget(struct tide *tide);

#endif
