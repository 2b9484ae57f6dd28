/* SPDX-License-Identifier: MIT */
/*
 * tide: notices from how many bytes a program has of something that it has freed most of them.
 *
 * Each time that half of them have come back an ebb is due.  A fall is over when the program takes as much
 * again as it had left.  If it comes back to a quarter of where the fall began, to follow it has been in
 * vain: of the falls from about the same height that come next some are passed over, the more the oftener
 * that happens.
 *
 * Called from any thread, without a lock.  What two threads store at one instant one of them may lose, and so
 * may a forked child: a fall is passed over or followed too often, no more.
 */
#ifndef CPUSLAB_TIDE_H
#define CPUSLAB_TIDE_H

#include <stdbool.h>
#include <stdint.h>

enum {
	TIDE_FROM = 6 << 20,   /* bytes out from which a fall is one: smaller programs have little to give */
	TIDE_LEAST = 64 << 10, /* and down to which it goes on */
};

struct tide {
	int64_t high;      /* the most that was out since the last halving */
	int64_t low;       /* what was out at that */
	int64_t from;      /* where the last fall began, if it was not passed over, nor in vain; else 0 */
	int64_t vain_from; /* where the last one in vain began */
	unsigned vain;     /* falls in vain of late */
	unsigned passing;  /* falls to pass over */
	uint64_t fell_at;  /* milliseconds: the last halving, of a tide where that counts */
	bool falling;
	bool lasts; /* a fall that has lasted for the decay time was not in vain */
	/*
	 * After the first fall in vain fewer than two to `passed_log` are passed over, after each other one
	 * two to `more_log` times as many, and never more than two to `most_log`.
	 */
	uint8_t passed_log, more_log, most_log;
};

/* So many bytes are out now, and they have become more. */
void tide_rose(struct tide *tide, int64_t bytes);

/* They have become fewer.  Whether an ebb is due. */
bool tide_fell(struct tide *tide, int64_t bytes);

/* One fall in vain is forgotten, and half of those to pass over. */
void tide_forget(struct tide *tide);

#endif
