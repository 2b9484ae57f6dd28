/* SPDX-License-Identifier: MIT */
/* The results as text: one table for each test and metric, medians, and cpuslab's ratio to each column. */
#include "results.h"

#include "statistics.h"

#include <math.h>
#include <string.h>

static void print_facts(FILE *to, const struct fact *facts, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		fprintf(to, "  %-20s %s\n", facts[i].name, facts[i].text);
}

/* Bytes in MiB, times in the unit they came in, counts as integers. */
static void print_value(FILE *to, const char *unit, double value)
{
	if (isnan(value))
		fprintf(to, " %13s", "-");
	else if (strcmp(unit, "B") == 0)
		fprintf(to, " %13.2f", value / (1 << 20));
	else if (strcmp(unit, "s") == 0)
		fprintf(to, " %13.3f", value);
	else
		fprintf(to, value < 10 ? " %13.2f" : value < 1000 ? " %13.1f" : " %13.0f", value);
}

static unsigned fewest_rounds(const struct results *results, const struct table *table)
{
	unsigned fewest = ~0u; /* of what was measured; 0 if nothing was */
	for (unsigned row = 0; row < table->parameter_count; row++)
		for (unsigned column = 0; column < table->column_count; column++) {
			const struct series *s = table_at(results, table, row, column);
			if (s && (s->role == ROLE_MEASURED || s->role == ROLE_FLOOR) && s->count < fewest)
				fewest = s->count;
		}
	return fewest == ~0u ? 0 : fewest;
}

static void print_ratios(FILE *to, const struct results *results, const struct table *table)
{
	unsigned ours = table_ours(table);
	char label[RESULTS_NAME + 8];
	if (ours == table->column_count || table->column_count == 1)
		return;
	snprintf(label, sizeof(label), "%s / this", table->columns[ours]);
	fprintf(to, "  %-22s", label);
	for (unsigned column = 0; column < table->column_count; column++) {
		const struct series *a[64], *b[64];
		unsigned pairs = 0;
		for (unsigned row = 0; row < table->parameter_count; row++) {
			a[pairs] = table_at(results, table, row, ours);
			b[pairs] = table_at(results, table, row, column);
			pairs += a[pairs] && b[pairs];
		}
		char text[32];
		if (column == ours || table->roles[column] == ROLE_PUBLISHED || pairs == 0)
			fprintf(to, " %13s", "");
		else
			fprintf(to, " %13s", ratio_text(geometric_ratio(a, b, pairs), text));
	}
	fputc('\n', to);
}

static void print_table(FILE *to, const struct results *results, const struct table *table)
{
	fprintf(to, "\n%s: %s: %s (%s, ", table->cell.group, table->cell.test, table->cell.metric,
		strcmp(table->cell.unit, "B") == 0 ? "MiB" : table->cell.unit);
	if (fewest_rounds(results, table) > 0)
		fprintf(to, "median of %u; ", fewest_rounds(results, table));
	fprintf(to, "%s is better)\n", table->cell.better == BETTER_LOWER ? "less" : "more");
	fprintf(to, "  %-22s", "");
	for (unsigned column = 0; column < table->column_count; column++)
		fprintf(to, " %13.13s", table->columns[column]);
	fputc('\n', to);
	for (unsigned row = 0; row < table->parameter_count; row++) {
		fprintf(to, "  %-22.22s", table->parameters[row]);
		for (unsigned column = 0; column < table->column_count; column++) {
			const struct series *s = table_at(results, table, row, column);
			print_value(to, table->cell.unit, s ? median_of(s->samples, s->count) : NAN);
		}
		fputc('\n', to);
	}
	print_ratios(to, results, table);
}

void output_table(const struct results *results, FILE *to)
{
	fputs("Machine\n", to);
	print_facts(to, results->machine, results->machine_count);
	fputs("Allocators\n", to);
	print_facts(to, results->peers, results->peer_count);
	if (results->note_count > 0)
		fputs("Notes\n", to);
	print_facts(to, results->notes, results->note_count);
	struct table table;
	for (unsigned i = 0; results_table(results, i, &table); i++)
		print_table(to, results, &table);
}
