/* SPDX-License-Identifier: MIT */
#include "statistics.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * A win needs a 99 % interval that excludes 1, and a difference that matters.  The second bound is there
 * because two copies of one library differ by where the linker put them; measured, by a percent or two.
 */
enum { RESAMPLES = 2000 };
static const double tail = 0.005, indifference = 0.02;

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double quantile_sorted(const double *sorted, unsigned count, double q)
{
	double at = q * (count - 1);
	unsigned below = (unsigned)at;
	if (below + 1 >= count)
		return sorted[count - 1];
	return sorted[below] + (at - below) * (sorted[below + 1] - sorted[below]);
}

static double *sorted_copy(const double *samples, unsigned count)
{
	double *copy = malloc((count ? count : 1) * sizeof(*copy));
	if (!copy)
		abort();
	memcpy(copy, samples, count * sizeof(*copy));
	qsort(copy, count, sizeof(*copy), ascending);
	return copy;
}

double median_of(const double *samples, unsigned count)
{
	if (count == 0)
		return NAN;
	double *sorted = sorted_copy(samples, count), median = quantile_sorted(sorted, count, 0.5);
	free(sorted);
	return median;
}

double minimum_of(const double *samples, unsigned count)
{
	double minimum = NAN;
	for (unsigned i = 0; i < count; i++)
		if (i == 0 || samples[i] < minimum)
			minimum = samples[i];
	return minimum;
}

double spread_of(const double *samples, unsigned count)
{
	if (count < 2)
		return 0;
	double *sorted = sorted_copy(samples, count);
	double range = quantile_sorted(sorted, count, 0.75) - quantile_sorted(sorted, count, 0.25);
	double median = quantile_sorted(sorted, count, 0.5);
	free(sorted);
	return median > 0 ? range / 2 / median : 0;
}

/* A fixed seed: the same results must always read the same. */
static uint32_t random_below(uint64_t *state, uint32_t bound)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((*state >> 33) % bound);
}

static unsigned pairs_in(const struct series *a, const struct series *b)
{
	return a->count < b->count ? a->count : b->count;
}

/* Insertion sort: rounds are few, and this runs thousands of times for each ratio. */
static void sort_few(double *values, unsigned count)
{
	for (unsigned i = 1; i < count; i++) {
		double value = values[i];
		unsigned at = i;
		for (; at > 0 && values[at - 1] > value; at--)
			values[at] = values[at - 1];
		values[at] = value;
	}
}

static double resampled_median(const double *logs, unsigned count, double *scratch, uint64_t *state)
{
	for (unsigned i = 0; i < count; i++)
		scratch[i] = logs[random_below(state, count)];
	if (count <= 32)
		sort_few(scratch, count);
	else
		qsort(scratch, count, sizeof(*scratch), ascending);
	return quantile_sorted(scratch, count, 0.5);
}

static enum verdict verdict_of(const struct ratio *ratio, enum better better, bool enough)
{
	if (!enough || !isfinite(ratio->value) || (ratio->low <= 1 && ratio->high >= 1) ||
	    fabs(ratio->value - 1) < indifference)
		return VERDICT_TIE;
	return (ratio->value < 1) == (better == BETTER_LOWER) ? VERDICT_WIN : VERDICT_LOSS;
}

/* Counts may be zero: two zeros are equal, and one counts as a thousandth of the other side. */
static double log_ratio(double ours, double theirs)
{
	if (ours == theirs)
		return 0;
	return log(ours > 0 ? ours : theirs / 1000) - log(theirs > 0 ? theirs : ours / 1000);
}

struct ratio geometric_ratio(const struct series *const *ours, const struct series *const *theirs,
			     unsigned pairs)
{
	struct ratio ratio = {NAN, NAN, NAN, VERDICT_TIE};
	unsigned rounds = 0, fewest = pairs ? UINT32_MAX : 0;
	for (unsigned p = 0; p < pairs; p++) {
		unsigned n = pairs_in(ours[p], theirs[p]);
		rounds += n;
		fewest = n < fewest ? n : fewest;
	}
	if (fewest == 0)
		return ratio;
	double *logs = malloc(rounds * sizeof(*logs)), *scratch = malloc(rounds * sizeof(*scratch));
	double *means = malloc(RESAMPLES * sizeof(*means));
	if (!logs || !scratch || !means)
		abort();
	double sum = 0;
	for (unsigned p = 0, at = 0; p < pairs; p++) {
		unsigned n = pairs_in(ours[p], theirs[p]);
		for (unsigned i = 0; i < n; i++)
			logs[at + i] = log_ratio(ours[p]->samples[i], theirs[p]->samples[i]);
		sum += median_of(logs + at, n);
		at += n;
	}
	ratio.value = exp(sum / pairs);
	uint64_t state = 1;
	for (unsigned r = 0; r < RESAMPLES; r++) {
		double total = 0;
		for (unsigned p = 0, at = 0; p < pairs; p++) {
			unsigned n = pairs_in(ours[p], theirs[p]);
			total += resampled_median(logs + at, n, scratch, &state);
			at += n;
		}
		means[r] = exp(total / pairs);
	}
	qsort(means, RESAMPLES, sizeof(*means), ascending);
	ratio.low = quantile_sorted(means, RESAMPLES, tail);
	ratio.high = quantile_sorted(means, RESAMPLES, 1 - tail);
	/* Fewer samples give no interval: report nothing rather than something wrong. */
	bool exact = ours[0]->role == ROLE_EXACT && theirs[0]->role == ROLE_EXACT;
	ratio.verdict = verdict_of(&ratio, ours[0]->better, exact || rounds >= 4);
	free(logs);
	free(scratch);
	free(means);
	return ratio;
}

struct ratio ratio_of(const struct series *ours, const struct series *theirs)
{
	return geometric_ratio(&ours, &theirs, 1);
}

const char *ratio_text(struct ratio ratio, char text[static 32])
{
	snprintf(text, 32, ratio.verdict == VERDICT_TIE ? "%.2fx tie" : "%.2fx", ratio.value);
	return text;
}
