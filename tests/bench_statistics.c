/* SPDX-License-Identifier: MIT */
/* What `cpuslab bench` calls a win, a tie and a loss, on samples whose truth is known. */
#include "../bench/statistics.c"

#include "../bench/results.c"
#include "check.h"

static uint64_t state = 42;

/* Uniform in 0…1. */
static double uniform(void)
{
	return random_below(&state, 1u << 30) / (double)(1u << 30);
}

/* Timings as shared machines give them: a floor, and a long tail upwards that two neighbours share. */
static void fill(struct results *results, const char *parameter, double ours, double theirs, unsigned rounds)
{
	struct cell cell = {"group", "test", parameter, "metric", "s", BETTER_LOWER};
	for (unsigned i = 0; i < rounds; i++) {
		double moment = 1 + (uniform() < 0.2 ? 3 * uniform() : 0);
		results_add(results, &cell, "ours", ROLE_MEASURED, ours * moment * (1 + 0.01 * uniform()));
		results_add(results, &cell, "theirs", ROLE_MEASURED,
			    theirs * moment * (1 + 0.01 * uniform()));
	}
}

static struct ratio ratio_for(double ours, double theirs, unsigned rounds)
{
	struct results results = {0};
	struct cell cell = {"group", "test", "p", "metric", "s", BETTER_LOWER};
	fill(&results, "p", ours, theirs, rounds);
	struct ratio ratio =
		ratio_of(results_find(&results, &cell, "ours"), results_find(&results, &cell, "theirs"));
	results_free(&results);
	return ratio;
}

static void test_orders(void)
{
	const double samples[] = {5, 1, 4, 2, 3};
	CHECK(median_of(samples, 5) == 3);
	CHECK(median_of(samples, 4) == 3);
	CHECK(minimum_of(samples, 5) == 1);
	CHECK(spread_of(samples, 5) == 1 / 3.0);
	CHECK(isnan(median_of(samples, 0)));
}

/* In a hundred runs of two equal allocators, at most a few may be called a win or a loss. */
static void test_equals_tie(void)
{
	unsigned wrong = 0;
	for (unsigned run = 0; run < 100; run++)
		wrong += ratio_for(1, 1, 9).verdict != VERDICT_TIE;
	CHECK(wrong <= 2);
}

/* In a hundred runs against one that needs 5 % less, the same winner at least ninety times. */
static void test_wins_repeat(void)
{
	unsigned wins = 0, losses = 0;
	for (unsigned run = 0; run < 100; run++) {
		wins += ratio_for(0.95, 1, 9).verdict == VERDICT_WIN;
		losses += ratio_for(1, 0.95, 9).verdict == VERDICT_LOSS;
	}
	CHECK(wins >= 90);
	CHECK(losses >= 90);
}

/* Counts may be zero: the ratio of two zeros is 1. */
static void test_zeros_tie(void)
{
	struct ratio ratio = ratio_for(0, 0, 9);
	CHECK(ratio.value == 1 && ratio.low == 1 && ratio.high == 1 && ratio.verdict == VERDICT_TIE);
	CHECK(ratio_for(0, 5, 9).verdict == VERDICT_WIN);
}

static void test_few_rounds_prove_nothing(void)
{
	CHECK(ratio_for(1, 2, 3).verdict == VERDICT_TIE);
	CHECK(ratio_for(1, 2, 9).verdict == VERDICT_WIN);
}

static void test_interval_holds_the_ratio(void)
{
	struct ratio ratio = ratio_for(3, 2, 15);
	CHECK(ratio.low <= ratio.value && ratio.value <= ratio.high);
	CHECK(ratio.value > 1.45 && ratio.value < 1.55);
}

static void test_geometric_mean(void)
{
	struct results results = {0};
	fill(&results, "halved", 1, 2, 9);
	fill(&results, "doubled", 2, 1, 9);
	struct table table;
	CHECK(results_table(&results, 0, &table));
	CHECK(!results_table(&results, 1, &table) && results_table(&results, 0, &table));
	const struct series *a[2], *b[2];
	for (unsigned row = 0; row < 2; row++) {
		a[row] = table_at(&results, &table, row, 0);
		b[row] = table_at(&results, &table, row, 1);
	}
	struct ratio ratio = geometric_ratio(a, b, 2);
	CHECK(fabs(ratio.value - 1) < 0.02 && ratio.verdict == VERDICT_TIE);
	results_free(&results);
}

static void test_more_can_be_better(void)
{
	struct results results = {0};
	struct cell cell = {"group", "test", "p", "metric", "a second", BETTER_HIGHER};
	for (unsigned i = 0; i < 9; i++) {
		results_add(&results, &cell, "ours", ROLE_MEASURED, 20 + i % 2);
		results_add(&results, &cell, "theirs", ROLE_MEASURED, 10 + i % 2);
	}
	CHECK(ratio_of(results_find(&results, &cell, "ours"), results_find(&results, &cell, "theirs"))
		      .verdict == VERDICT_WIN);
	results_free(&results);
}

/* A time too short for its clock reads as zero, and zero divided by zero is no loss. */
static void test_zeros_prove_nothing(void)
{
	struct results results = {0};
	struct cell cell = {"group", "test", "p", "metric", "s", BETTER_LOWER};
	for (unsigned i = 0; i < 9; i++) {
		results_add(&results, &cell, "ours", ROLE_MEASURED, i % 2);
		results_add(&results, &cell, "theirs", ROLE_MEASURED, 0);
	}
	CHECK(ratio_of(results_find(&results, &cell, "ours"), results_find(&results, &cell, "theirs"))
		      .verdict == VERDICT_TIE);
	results_free(&results);
}

int main(void)
{
	test_orders();
	test_equals_tie();
	test_wins_repeat();
	test_few_rounds_prove_nothing();
	test_zeros_tie();
	test_interval_holds_the_ratio();
	test_geometric_mean();
	test_more_can_be_better();
	test_zeros_prove_nothing();
	return 0;
}
