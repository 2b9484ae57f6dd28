/* SPDX-License-Identifier: MIT */
/*
 * cpuslab bench repeat A.json B.json...: whether repeating the same measurements names the same winners.
 *
 * Checks every ratio that the first run's tables print as a win or a loss.  It holds if the ratio is on the
 * same side of 1 in nine runs of ten, the first included.  A tie of the first run promises nothing.
 */
#include "bench.h"

#include "statistics.h"

#include <math.h>
#include <string.h>

enum { RUNS_MAX = 32 };

struct tally {
	unsigned printed, held; /* wins and losses of the first run; those whose winner stayed */
	unsigned proven;        /* those that were not ties in nine runs of ten, either */
	unsigned turned;        /* those for which some run proves the opposite */
};

/* As the tables print it, over the rows that both columns have. */
static struct ratio ratio_in(const struct results *results, const struct table *table, const char *ours,
			     const char *theirs)
{
	const struct series *a[64], *b[64];
	unsigned pairs = 0;
	for (unsigned row = 0; row < table->parameter_count; row++) {
		struct cell cell = table->cell;
		cell.parameter = table->parameters[row];
		a[pairs] = results_find(results, &cell, ours);
		b[pairs] = results_find(results, &cell, theirs);
		pairs += a[pairs] && b[pairs];
	}
	return geometric_ratio(a, b, pairs);
}

static void judge(const struct results *runs, unsigned count, const struct table *table, const char *theirs,
		  struct tally *tally)
{
	const char *ours = table->columns[table_ours(table)];
	struct ratio first = ratio_in(&runs[0], table, ours, theirs);
	unsigned same_side = 0, same_verdict = 0, asked = 0;
	bool turned = false;
	if (first.verdict == VERDICT_TIE)
		return;
	for (unsigned run = 0; run < count; run++) {
		struct ratio ratio = ratio_in(&runs[run], table, ours, theirs);
		if (isnan(ratio.value))
			continue;
		asked++;
		same_side += (ratio.value < 1) == (first.value < 1);
		same_verdict += ratio.verdict == first.verdict;
		turned |= ratio.verdict != first.verdict && ratio.verdict != VERDICT_TIE;
	}
	bool held = 10 * same_side >= 9 * asked;
	tally->printed++;
	tally->held += held;
	tally->proven += 10 * same_verdict >= 9 * asked;
	tally->turned += turned;
	if (!held)
		printf("  %s: %s: %s: %s to %s, %.2fx in the first run: the same winner in %u of %u\n",
		       table->cell.group, table->cell.test, table->cell.metric, ours, theirs, first.value,
		       same_side, asked);
}

int bench_repeat(int argc, char **argv)
{
	static struct results runs[RUNS_MAX];
	struct table table;
	struct tally tally = {0};
	unsigned count = 0;
	if (argc < 3 || argc > RUNS_MAX) {
		fputs("usage: cpuslab bench repeat A.json B.json...\n", stderr);
		return 2;
	}
	for (; (int)count < argc - 1; count++)
		if (!results_load(&runs[count], argv[count + 1]))
			return 1;
	for (unsigned i = 0; results_table(&runs[0], i, &table); i++) {
		unsigned ours = table_ours(&table);
		for (unsigned column = 0; ours < table.column_count && column < table.column_count; column++)
			if (column != ours && table.roles[column] == ROLE_MEASURED)
				judge(runs, count, &table, table.columns[column], &tally);
	}
	printf("%u runs, %u ratios printed as a win or a loss by the first: the same winner in nine runs of "
	       "ten "
	       "for %u of them, and proven in nine of ten for %u; %u were proven the other way round in some "
	       "run\n",
	       count, tally.printed, tally.held, tally.proven, tally.turned);
	for (unsigned run = 0; run < count; run++)
		results_free(&runs[run]);
	return tally.held == tally.printed ? 0 : 1;
}
