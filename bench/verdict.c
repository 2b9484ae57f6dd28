/* SPDX-License-Identifier: MIT */
/* The end of every report, in words: where cpuslab wins, where it loses, by how much. */
#include "bench.h"

#include "statistics.h"

#include <string.h>

/* cpuslab against one allocator in one table. */
struct match {
	struct ratio ratio;
	unsigned rows;
};

static unsigned column_of(const struct table *table, const char *peer)
{
	unsigned column = 0;
	while (column < table->column_count && strcmp(table->columns[column], peer) != 0)
		column++;
	return column;
}

static struct match match_of(const struct results *results, const struct table *table, const char *peer)
{
	const struct series *a[64], *b[64];
	struct match match = {.rows = 0};
	unsigned ours = column_of(table, "cpuslab"), theirs = column_of(table, peer);
	if (ours == table->column_count || theirs == table->column_count)
		return match;
	for (unsigned row = 0; row < table->parameter_count; row++) {
		a[match.rows] = table_at(results, table, row, ours);
		b[match.rows] = table_at(results, table, row, theirs);
		match.rows += a[match.rows] && b[match.rows];
	}
	if (match.rows > 0)
		match.ratio = geometric_ratio(a, b, match.rows);
	return match;
}

static void print_match(FILE *to, const struct table *table, const struct match *match)
{
	static const char *const words[] = {
		[VERDICT_WIN] = "wins", [VERDICT_TIE] = "ties", [VERDICT_LOSS] = "LOSES"};
	fprintf(to, "    %-5s %5.2fx  %s: %s: %s", words[match->ratio.verdict], match->ratio.value,
		table->cell.group, table->cell.test, table->cell.metric);
	if (match->rows > 1)
		fprintf(to, ", mean of %u", match->rows);
	fprintf(to, "  (%.2f to %.2f)\n", match->ratio.low, match->ratio.high);
}

/* The rows that a mean would hide. */
static void print_losing_rows(FILE *to, const struct results *results, const struct table *table,
			      const char *peer)
{
	unsigned ours = column_of(table, "cpuslab"), theirs = column_of(table, peer);
	for (unsigned row = 0; table->parameter_count > 1 && row < table->parameter_count; row++) {
		const struct series *a = table_at(results, table, row, ours),
				    *b = table_at(results, table, row, theirs);
		if (!a || !b)
			continue;
		struct ratio ratio = ratio_of(a, b);
		if (ratio.verdict == VERDICT_LOSS)
			fprintf(to, "          %5.2fx  loses in %s\n", ratio.value, table->parameters[row]);
	}
}

static void print_against_system(const struct results *results, FILE *to)
{
	struct table table;
	fputs("  Against the system's malloc (below 1 is less than it needs):\n", to);
	for (unsigned i = 0; results_table(results, i, &table); i++) {
		struct match match = match_of(results, &table, "glibc");
		if (match.rows == 0)
			continue;
		print_match(to, &table, &match);
		print_losing_rows(to, results, &table, "glibc");
	}
}

static void print_against(const struct results *results, FILE *to, const char *peer)
{
	static const char *const words[] = {
		[VERDICT_WIN] = "wins", [VERDICT_TIE] = "ties", [VERDICT_LOSS] = "LOSES"};
	fprintf(to, "  Against %s:\n", peer);
	for (enum verdict verdict = VERDICT_WIN; verdict <= VERDICT_LOSS; verdict++) {
		struct table table;
		unsigned named = 0;
		for (unsigned i = 0; results_table(results, i, &table); i++) {
			struct match match = match_of(results, &table, peer);
			if (match.rows == 0 || match.ratio.verdict != verdict)
				continue;
			if (named++ == 0)
				fprintf(to, "    %-5s ", words[verdict]);
			fprintf(to, "%s%.2fx %s %s", named > 1 ? ", " : "", match.ratio.value,
				table.cell.test, table.cell.metric);
		}
		if (named > 0)
			fputc('\n', to);
	}
}

void verdict_print(const struct results *results, FILE *to)
{
	struct table table;
	bool any = false;
	for (unsigned i = 0; !any && results_table(results, i, &table); i++)
		any = column_of(&table, "cpuslab") < table.column_count;
	fputs("\nVerdict\n", to);
	if (!any) {
		fputs("  cpuslab was not among the allocators: nothing to say.\n", to);
		return;
	}
	print_against_system(results, to);
	for (unsigned i = 0; i < results->peer_count; i++)
		if (strcmp(results->peers[i].name, "cpuslab") != 0 &&
		    strcmp(results->peers[i].name, "glibc") != 0)
			print_against(results, to, results->peers[i].name);
	fputs("  A tie is an interval (99 %, over the rounds) that spans 1, or a difference below 2 %.\n",
	      to);
	for (unsigned i = 0; i < results->note_count; i++)
		if (strncmp(results->notes[i].name, "noisy", 5) == 0)
			fprintf(to, "  Beware: %s.\n", results->notes[i].text);
}
