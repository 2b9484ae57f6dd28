/* SPDX-License-Identifier: MIT */
/* The end of every report: says where cpuslab wins, where it loses, and by how much. */
#include "bench.h"

#include "statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* cpuslab against one allocator in one table. */
struct match {
	struct ratio ratio;
	unsigned rows;
};

static struct match match_of(const struct results *results, const struct table *table, const char *peer)
{
	const struct series *a[64], *b[64];
	struct match match = {.rows = 0};
	unsigned ours = table_ours(table), theirs = table_column(table, peer);
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

static double median_at(const struct results *results, const struct table *table, unsigned column)
{
	const struct series *s = table_at(results, table, 0, column);
	double scale = strcmp(table->cell.unit, "B") == 0 ? 1.0 / (1 << 20) : 1;
	return s ? scale * median_of(s->samples, s->count) : 0;
}

static void print_match(FILE *to, const struct results *results, const struct table *table,
			const struct match *match)
{
	static const char *const words[] = {
		[VERDICT_WIN] = "wins", [VERDICT_TIE] = "ties", [VERDICT_LOSS] = "LOSES"};
	fprintf(to, "    %-5s %5.2fx  %s: %s: %s", words[match->ratio.verdict], match->ratio.value,
		table->cell.group, table->cell.test, table->cell.metric);
	if (match->rows > 1)
		fprintf(to, ", mean of %u", match->rows);
	else
		fprintf(to, ", %.2f beside %.2f %s", median_at(results, table, table_ours(table)),
			median_at(results, table, table_system(table)),
			strcmp(table->cell.unit, "B") == 0 ? "MiB" : table->cell.unit);
	fprintf(to, "  (%.2f to %.2f)\n", match->ratio.low, match->ratio.high);
}

/* Prints rows that a mean would hide. */
static void print_losing_rows(FILE *to, const struct results *results, const struct table *table)
{
	unsigned ours = table_ours(table), theirs = table_system(table);
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
	bool any = false;
	for (unsigned i = 0; results_table(results, i, &table); i++) {
		if (table_system(&table) == table.column_count)
			continue;
		struct match match = match_of(results, &table, table.columns[table_system(&table)]);
		if (match.rows == 0)
			continue;
		if (!any)
			fputs("  Against the system's (below 1 is less than it needs):\n", to);
		any = true;
		print_match(to, results, &table, &match);
		print_losing_rows(to, results, &table);
	}
}

static void print_against(const struct results *results, FILE *to, const char *peer)
{
	static const char *const words[] = {
		[VERDICT_WIN] = "wins", [VERDICT_TIE] = "ties", [VERDICT_LOSS] = "LOSES"};
	bool any = false;
	for (enum verdict verdict = VERDICT_WIN; verdict <= VERDICT_LOSS; verdict++) {
		struct table table;
		unsigned named = 0;
		for (unsigned i = 0; results_table(results, i, &table); i++) {
			struct match match = match_of(results, &table, peer);
			if (match.rows == 0 || match.ratio.verdict != verdict)
				continue;
			if (!any)
				fprintf(to, "  Against %s:\n", peer);
			any = true;
			if (named++ == 0)
				fprintf(to, "    %-5s ", words[verdict]);
			fprintf(to, "%s%.2fx %s %s", named > 1 ? ", " : "", match.ratio.value,
				table.cell.test, table.cell.metric);
		}
		if (named > 0)
			fputc('\n', to);
	}
}

/*
 * Prints how many tables cpuslab wins, ties and loses against one allocator, or (NULL) the best in each
 * table.
 */
static void print_score(const struct results *results, FILE *to, const char *peer)
{
	unsigned score[3] = {0};
	struct table table;
	for (unsigned i = 0; results_table(results, i, &table); i++) {
		struct match worst = {.rows = 0};
		/* Locks have aims instead. */
		if (table_column(&table, "cpuslab") == table.column_count)
			continue;
		for (unsigned column = 0; column < table.column_count; column++) {
			const char *other = table.columns[column];
			if (table.roles[column] != ROLE_MEASURED || strncmp(other, "cpuslab", 7) == 0 ||
			    (peer && strcmp(other, peer) != 0))
				continue;
			struct match match = match_of(results, &table, other);
			/* A proven loss is worse than any tie. */
			if (match.rows > 0 && (worst.rows == 0 || match.ratio.verdict > worst.ratio.verdict))
				worst = match;
		}
		if (worst.rows > 0)
			score[worst.ratio.verdict]++;
	}
	if (score[0] + score[1] + score[2] > 0)
		fprintf(to, "  In short, against %s: %u tables won, %u tied, %u lost.\n",
			peer ? "the system's malloc" : "the best of all others in each table",
			score[VERDICT_WIN], score[VERDICT_TIE], score[VERDICT_LOSS]);
}

/* ---- aims ---- */

static const struct aim {
	const char *group, *test, *metric, *ours, *theirs;
	double bound;
} aims[] = {
#define AIM(group, test, metric, ours, theirs, bound) {group, test, metric, ours, theirs, bound},
#include "aims.def"
};

static const struct unjudged {
	const char *group, *test, *note;
} unjudged[] = {
#define UNJUDGED(group, test, note) {group, test, note},
#include "aims.def"
};

static bool has_note(const struct results *results, const char *name)
{
	for (unsigned i = 0; i < results->note_count; i++)
		if (strcmp(results->notes[i].name, name) == 0)
			return true;
	return false;
}

/* Returns the note that says why this machine cannot judge an aim; NULL if it can. */
static const char *why_unjudged(const struct results *results, const struct aim *aim)
{
	for (unsigned i = 0; i < sizeof(unjudged) / sizeof(unjudged[0]); i++)
		if (strcmp(unjudged[i].group, aim->group) == 0 && strcmp(unjudged[i].test, aim->test) == 0 &&
		    has_note(results, unjudged[i].note))
			return unjudged[i].note;
	return NULL;
}

static bool is_better(const struct table *table, double a, double b)
{
	return table->cell.better == BETTER_LOWER ? a < b : a > b;
}

static double median_in(const struct results *results, const struct table *table, unsigned row,
			unsigned column)
{
	const struct series *s = column < table->column_count ? table_at(results, table, row, column) : NULL;
	return s ? median_of(s->samples, s->count) : NAN;
}

/* Pair by pair over the rounds; against "*", the worst ratio to any other column. */
static double ratio_in(const struct results *results, const struct table *table, unsigned row,
		       const struct aim *aim)
{
	const struct series *ours = table_at(results, table, row, table_column(table, aim->ours));
	double worst = NAN;
	for (unsigned column = 0; ours && column < table->column_count; column++) {
		const char *name = table->columns[column];
		const struct series *theirs = table_at(results, table, row, column);
		if (!theirs || theirs == ours || table->roles[column] != ROLE_MEASURED ||
		    (strcmp(aim->theirs, "*") != 0 && strcmp(aim->theirs, name) != 0))
			continue;
		double ratio = ratio_of(ours, theirs).value;
		if (isnan(worst) || is_better(table, worst, ratio))
			worst = ratio;
	}
	return worst;
}

/* Returns the ratio in its worst row; NAN if this was not measured. */
static double worst_ratio(const struct results *results, const struct aim *aim, struct table *table,
			  const char **parameter)
{
	double worst = NAN;
	if (!results_table_named(results, aim->group, aim->test, aim->metric, table) ||
	    table_column(table, aim->ours) == table->column_count)
		return NAN;
	for (unsigned row = 0; row < table->parameter_count; row++) {
		double ratio = ratio_in(results, table, row, aim);
		if (isnan(ratio) || (!isnan(worst) && !is_better(table, worst, ratio)))
			continue;
		worst = ratio;
		*parameter = table->parameters[row];
	}
	return worst;
}

static void print_aims(const struct results *results, FILE *to)
{
	bool any = false;
	for (unsigned i = 0; i < sizeof(aims) / sizeof(aims[0]); i++) {
		const struct aim *aim = &aims[i];
		const char *parameter = "";
		struct table table;
		double worst = worst_ratio(results, aim, &table, &parameter);
		if (isnan(worst))
			continue;
		if (!any)
			fputs("  Aims, in the row where the ratio is worst:\n", to);
		any = true;
		const char *why = why_unjudged(results, aim);
		fprintf(to, "    %-7s %5.2fx (aim: at %s %.2f)  %s: %s: %s to %s, %s, %s%s%s\n",
			why                                    ? "-"
			: is_better(&table, aim->bound, worst) ? "MISSED"
							       : "reached",
			worst, table.cell.better == BETTER_LOWER ? "most" : "least", aim->bound, aim->group,
			aim->test, aim->ours, strcmp(aim->theirs, "*") == 0 ? "the best other" : aim->theirs,
			aim->metric, parameter, why ? "; cannot be judged here, see the note on " : "",
			why ? why : "");
	}
}

/* ---- aims of a mean over a group ---- */

static const struct mean {
	const char *group, *metric, *ours, *theirs;
	double bound;
} means[] = {
#define MEAN(group, metric, ours, theirs, bound) {group, metric, ours, theirs, bound},
#include "aims.def"
};

/* Over every row that both columns have, in every table of the group with this metric. */
static struct match mean_to(const struct results *results, const struct mean *mean, const char *theirs)
{
	const struct series *a[64], *b[64];
	struct match match = {.rows = 0};
	struct table table;
	for (unsigned i = 0; results_table(results, i, &table); i++) {
		unsigned our = table_column(&table, mean->ours), their = table_column(&table, theirs);
		if (strcmp(table.cell.group, mean->group) != 0 ||
		    strcmp(table.cell.metric, mean->metric) != 0 || our == table.column_count ||
		    their == table.column_count)
			continue;
		for (unsigned row = 0; row < table.parameter_count; row++) {
			if (match.rows == sizeof(a) / sizeof(a[0]))
				break;
			a[match.rows] = table_at(results, &table, row, our);
			b[match.rows] = table_at(results, &table, row, their);
			match.rows += a[match.rows] && b[match.rows];
		}
	}
	if (match.rows > 0)
		match.ratio = geometric_ratio(a, b, match.rows);
	return match;
}

static void print_means(const struct results *results, FILE *to)
{
	for (unsigned i = 0; i < sizeof(means) / sizeof(means[0]); i++) {
		const struct mean *mean = &means[i];
		const char *worst_of = NULL;
		struct match worst = {.rows = 0};
		for (unsigned peer = 0; peer < results->peer_count; peer++) {
			const char *name = results->peers[peer].name;
			if (strcmp(mean->theirs, "*") == 0 ? strncmp(name, "cpuslab", 7) == 0
							   : strcmp(name, mean->theirs) != 0)
				continue;
			struct match match = mean_to(results, mean, name);
			if (match.rows == 0 || (worst_of && match.ratio.value <= worst.ratio.value))
				continue;
			worst = match;
			worst_of = name;
		}
		if (worst_of)
			fprintf(to, "    %-7s %5.2fx (aim: at most %.2f)  %s: mean of %u: %s to %s, %s\n",
				worst.ratio.value <= mean->bound ? "reached" : "MISSED", worst.ratio.value,
				mean->bound, mean->group, worst.rows, mean->ours, worst_of, mean->metric);
	}
}

/* ---- aims that hold a column against its own first row ---- */

static const struct growth {
	const char *group, *test, *metric, *column;
	double factor, each;
} growths[] = {
#define GROWTH(group, test, metric, column, factor, each) {group, test, metric, column, factor, each},
#include "aims.def"
};

/* Returns the row that most exceeds what the first row and its own number allow. */
static unsigned worst_growth(const struct results *results, const struct growth *growth,
			     const struct table *table, double *share)
{
	unsigned column = table_column(table, growth->column), worst = 0;
	double first = median_in(results, table, 0, column);
	*share = 0;
	for (unsigned row = 1; row < table->parameter_count; row++) {
		double more = strtod(table->parameters[row], NULL) - strtod(table->parameters[0], NULL);
		double now = median_in(results, table, row, column) /
			     (growth->factor * first + growth->each * more);
		if (now > *share) {
			*share = now;
			worst = row;
		}
	}
	return worst;
}

static void print_growths(const struct results *results, FILE *to)
{
	for (unsigned i = 0; i < sizeof(growths) / sizeof(growths[0]); i++) {
		const struct growth *growth = &growths[i];
		struct table table;
		double share;
		if (!results_table_named(results, growth->group, growth->test, growth->metric, &table))
			continue;
		unsigned worst = worst_growth(results, growth, &table, &share);
		if (worst == 0)
			continue;
		unsigned column = table_column(&table, growth->column);
		bool bytes = strcmp(table.cell.unit, "B") == 0;
		double scale = bytes ? 1.0 / (1 << 20) : 1;
		fprintf(to, "    %-7s %s: %s of %s: %.2f %s at %s, %.2f at %s (aim: at most %.2fx",
			share <= 1 ? "reached" : "MISSED", growth->group, growth->metric, growth->column,
			scale * median_in(results, &table, 0, column), bytes ? "MiB" : table.cell.unit,
			table.parameters[0], scale * median_in(results, &table, worst, column),
			table.parameters[worst], growth->factor);
		if (growth->each > 0)
			fprintf(to, ", and %.0f KiB for each more", growth->each / 1024);
		fputs(")\n", to);
	}
}

void verdict_print(const struct results *results, FILE *to)
{
	struct table table;
	bool any = false;
	for (unsigned i = 0; !any && results_table(results, i, &table); i++)
		any = table_ours(&table) < table.column_count;
	fputs("\nVerdict\n", to);
	if (!any)
		fputs("  cpuslab was not among what was measured.\n", to);
	print_against_system(results, to);
	for (unsigned i = 0; i < results->peer_count; i++)
		/* The library and its variants do not count as others. */
		if (strncmp(results->peers[i].name, "cpuslab", 7) != 0 &&
		    strcmp(results->peers[i].name, "glibc") != 0)
			print_against(results, to, results->peers[i].name);
	print_aims(results, to);
	print_means(results, to);
	print_growths(results, to);
	print_score(results, to, "glibc");
	print_score(results, to, NULL);
	fputs("  A tie is an interval (99 %, over the rounds) that spans 1, or a difference below 2 %.\n",
	      to);
	for (unsigned i = 0; i < results->note_count; i++)
		if (strncmp(results->notes[i].name, "noisy", 5) == 0)
			fprintf(to, "  Beware: %s.\n", results->notes[i].text);
}
