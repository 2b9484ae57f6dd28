/* SPDX-License-Identifier: MIT */
/*
 * cpuslab bench compare A.json B.json: what changed between two runs.
 *
 * Two runs share no rounds, and the machine may have been busier in one of them.  So each side is first
 * divided by its own run's system malloc (or lock), where that was measured, and only then compared.
 */
#include "bench.h"

#include "statistics.h"

#include <math.h>
#include <string.h>

/* Finds the system's malloc, or lock, in the same row. */
static const struct series *system_of(const struct results *results, const struct cell *cell)
{
	struct table table;
	if (!results_table_named(results, cell->group, cell->test, cell->metric, &table) ||
	    table_system(&table) == table.column_count)
		return NULL;
	return results_find(results, cell, table.columns[table_system(&table)]);
}

/* Returns the median of the ratios to the system's, round by round; without that series, the plain median. */
static double level(const struct series *s, const struct series *system)
{
	return system ? ratio_of(s, system).value : median_of(s->samples, s->count);
}

int bench_compare(int argc, char **argv)
{
	struct results a = {0}, b = {0};
	unsigned compared = 0;
	if (argc != 3) {
		fputs("usage: cpuslab bench compare A.json B.json\n", stderr);
		return 2;
	}
	if (!results_load(&a, argv[1]) || !results_load(&b, argv[2]))
		return 1;
	printf("%-60s %-11s %10s %10s %8s\n", "test", "allocator", "A", "B", "B/A");
	for (unsigned i = 0; i < a.count; i++) {
		const struct series *s = &a.series[i];
		struct cell cell = {s->group, s->test, s->parameter, s->metric, s->unit, s->better};
		const struct series *t = results_find(&b, &cell, s->peer);
		if (!t || s->role != ROLE_MEASURED || s == system_of(&a, &cell))
			continue;
		const struct series *system_a = system_of(&a, &cell), *system_b = system_of(&b, &cell);
		if (!system_a || !system_b)
			system_a = system_b = NULL;
		double before = level(s, system_a), after = level(t, system_b);
		char name[5 * RESULTS_NAME];
		snprintf(name, sizeof(name), "%s: %s: %s: %s", s->group, s->test, s->parameter, s->metric);
		printf("%-60s %-11s %9.3g%s %9.3g%s %7.2fx\n", name, s->peer, before, system_a ? "x" : " ",
		       after, system_b ? "x" : " ", before > 0 ? after / before : NAN);
		compared++;
	}
	printf("%u figures compared; with x: times the system's own in the same run\n", compared);
	results_free(&a);
	results_free(&b);
	return compared > 0 ? 0 : 1;
}
