/* SPDX-License-Identifier: MIT */
/*
 * statistics: medians, intervals, and what may be called a win.
 *
 * Times on a shared machine have a long tail on one side: so medians, never means; intervals come from
 * resampling the rounds (bootstrap), because no distribution may be assumed.
 */
#ifndef CPUSLAB_BENCH_STATISTICS_H
#define CPUSLAB_BENCH_STATISTICS_H

#include "results.h"

double median_of(const double *samples, unsigned count);
double minimum_of(const double *samples, unsigned count);

/* Returns half the distance between the quartiles, as a share of the median: how noisy a series was. */
double spread_of(const double *samples, unsigned count);

enum verdict { VERDICT_WIN, VERDICT_TIE, VERDICT_LOSS };

/* One side over the other: the median of the rounds' ratios, and its interval. */
struct ratio {
	double value, low, high; /* below 1: the first side needs less */
	enum verdict verdict;    /* for the first side, in the metric's better direction */
};

/* Pair by pair over the rounds that both have. */
struct ratio ratio_of(const struct series *ours, const struct series *theirs);

/* The geometric mean over several such pairs (programs, sizes), each resampled on its own. */
struct ratio geometric_ratio(const struct series *const *ours, const struct series *const *theirs,
			     unsigned pairs);

/* "0.85x", or "0.99x tie". */
const char *ratio_text(struct ratio ratio, char text[static 32]);

#endif
