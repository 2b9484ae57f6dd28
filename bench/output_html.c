/* SPDX-License-Identifier: MIT */
/*
 * The results as one page: the outcome at a glance, then plots group by group with their figures folded away
 * below, and the machine at the end.  No network, no script. page.css has the styles.
 */
#include "page_style.h"
#include "plot.h"
#include "results.h"
#include "statistics.h"

#include <math.h>
#include <string.h>

/* The colours as the plots use them: sN fills, lN strokes, tN is for text. */
static void print_style(FILE *to)
{
	fputs("<style>\n", to);
	fputs(page_style, to);
	for (unsigned i = 0; i < PLOT_COLOURS; i++)
		fprintf(to,
			".s%u{fill:var(--c%u);background:var(--c%u)}.l%u{stroke:var(--c%u)}svg "
			".t%u{fill:var(--c%u)}\n",
			i, i, i, i, i, i, i);
	fputs("</style>\n", to);
}

/* ---- what came out, in large ---- */

/* The most telling tables; of each line, the first that was measured. */
static const struct headline {
	const char *group, *test, *metric, *text;
} headlines[] = {
	{"kmalloc", "2 pair", "pair", "cycles of malloc and free, mean over sizes"},
	{"kmalloc", "1 alloc, then free", "alloc", "cycles of an allocation, mean over sizes"},
	{"programs", "real programs", "cpu", "CPU time of real programs"},
	{"programs", "real programs", "peak resident", "peak memory of real programs"},
	{"programs", "workloads", "wall", "time of allocation-heavy workloads"},
	{"programs", "workloads", "peak resident", "peak memory of these workloads"},
	{"programs", "calls of workloads", "malloc p99.9", "99.9th percentile of a malloc call"},
	{"start", "start and end", "start to end", "time of a process that only starts"},
	{"large", "mixed sizes, ring of four", "CPU time", "time of large blocks of mixed sizes"},
	{"messaging", "senders and receivers", "wall", "time of messages between threads"},
};

static bool ratio_to_system(const struct results *results, const struct table *table, struct ratio *ratio)
{
	const struct series *a[64], *b[64];
	unsigned pairs = 0;
	if (table_ours(table) == table->column_count || table_system(table) == table->column_count)
		return false;
	for (unsigned row = 0; row < table->parameter_count; row++) {
		a[pairs] = table_at(results, table, row, table_ours(table));
		b[pairs] = table_at(results, table, row, table_system(table));
		pairs += a[pairs] && b[pairs];
	}
	if (pairs > 0)
		*ratio = geometric_ratio(a, b, pairs);
	return pairs > 0 && isfinite(ratio->value);
}

static void print_headlines(FILE *to, const struct results *results)
{
	static const char *const classes[] = {
		[VERDICT_WIN] = "wins", [VERDICT_TIE] = "ties", [VERDICT_LOSS] = "loses"};
	fputs("<div class=\"cards\">\n", to);
	for (unsigned i = 0; i < sizeof(headlines) / sizeof(headlines[0]); i++) {
		const struct headline *h = &headlines[i];
		struct table table;
		struct ratio ratio;
		if (!results_table_named(results, h->group, h->test, h->metric, &table) ||
		    !ratio_to_system(results, &table, &ratio))
			continue;
		fprintf(to, "<div class=\"card\"><b class=\"%s\">%.2f\xc3\x97</b>", classes[ratio.verdict],
			ratio.value);
		plot_text(to, h->text);
		fprintf(to, "<br><small>%s; %.2f to %.2f</small></div>\n", classes[ratio.verdict], ratio.low,
			ratio.high);
	}
	fputs("</div>\n", to);
}

static void print_notes(FILE *to, const struct results *results)
{
	for (unsigned i = 0; i < results->note_count; i++) {
		if (strncmp(results->notes[i].name, "noisy", 5) != 0)
			continue;
		fputs("<p class=\"note\">", to);
		plot_text(to, results->notes[i].name);
		fputs(": ", to);
		plot_text(to, results->notes[i].text);
		fputs("</p>\n", to);
	}
}

static const char *fact(const struct results *results, const char *name)
{
	for (unsigned i = 0; i < results->machine_count; i++)
		if (strcmp(results->machine[i].name, name) == 0)
			return results->machine[i].text;
	return "";
}

static void print_head(FILE *to, const struct results *results)
{
	fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>cpuslab "
	      "bench</title>\n"
	      "<meta name=\"viewport\" content=\"width=device-width\">\n",
	      to);
	print_style(to);
	fputs("</head><body>\n<h1>cpuslab bench</h1>\n<p class=\"sub\">", to);
	const char *const facts[] = {"cpu", "cores", "kernel", "libc", "date"};
	for (unsigned i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		fputs(i ? " \xc2\xb7 " : "", to);
		plot_text(to, fact(results, facts[i]));
		fputs(strcmp(facts[i], "cores") == 0 ? " cores" : "", to);
	}
	fputs("</p>\n", to);
	print_notes(to, results);
	fputs("<p>Times what the system&#39;s malloc needs: below 1 cpuslab needs less. The range is the 99 "
	      "% "
	      "interval over the rounds; what spans 1 is a tie.</p>\n",
	      to);
	print_headlines(to, results);
}

static void print_navigation(FILE *to, const struct results *results)
{
	struct table table;
	const char *group = "";
	fputs("<nav>", to);
	for (unsigned i = 0; results_table(results, i, &table); i++)
		if (strcmp(table.cell.group, group) != 0) {
			group = table.cell.group;
			fputs("<a href=\"#", to);
			plot_text(to, group);
			fputs("\">", to);
			plot_text(to, group);
			fputs("</a>", to);
		}
	fputs("</nav>\n", to);
}

static void print_overview(FILE *to, const struct results *results)
{
	struct table table;
	struct ratio ratio;
	bool any = false;
	for (unsigned i = 0; !any && results_table(results, i, &table); i++)
		any = ratio_to_system(results, &table, &ratio);
	if (!any)
		return;
	fputs("<figure><figcaption>Every table at a glance <span>(over the system&#39;s malloc or lock; left "
	      "of 1 "
	      "cpuslab needs less, whichever way a metric goes)</span></figcaption>\n",
	      to);
	plot_overview(to, results);
	fputs("</figure>\n", to);
}

static void print_legend(FILE *to, const struct results *results)
{
	fputs("<p class=\"legend\">", to);
	for (unsigned i = 0; i < results->peer_count; i++) {
		fprintf(to, "<span><i class=\"s%u\"></i>", plot_colour(results, results->peers[i].name));
		plot_text(to, results->peers[i].name);
		fputs("</span> ", to);
	}
	fputs("<span><i class=\"dash\"></i>floor: an empty function</span></p>\n", to);
}

/* ---- figures ---- */

static void print_table(FILE *to, const struct results *results, const struct table *table)
{
	fputs("<details><summary>figures</summary><div class=\"wide\"><table><tr><th></th>", to);
	for (unsigned column = 0; column < table->column_count; column++) {
		fputs("<th>", to);
		plot_text(to, table->columns[column]);
		fputs("</th>", to);
	}
	fputs("</tr>\n", to);
	for (unsigned row = 0; row < table->parameter_count; row++) {
		fputs("<tr><th>", to);
		plot_text(to, table->parameters[row]);
		fputs("</th>", to);
		for (unsigned column = 0; column < table->column_count; column++) {
			double value = plot_value(results, table, row, column);
			if (isnan(value))
				fputs("<td></td>", to);
			else
				fprintf(to, "<td>%.4g</td>", value);
		}
		fputs("</tr>\n", to);
	}
	fputs("</table></div></details>\n", to);
}

static bool in_legend(const struct results *results, const char *column)
{
	for (unsigned i = 0; i < results->peer_count; i++)
		if (strcmp(results->peers[i].name, column) == 0)
			return true;
	return false;
}

/* Prints the names of columns that are not allocators. */
static void print_own_legend(FILE *to, const struct results *results, const struct table *table)
{
	bool any = false;
	for (unsigned column = 0; column < table->column_count; column++) {
		if (in_legend(results, table->columns[column]) ||
		    (table->roles[column] != ROLE_MEASURED && table->roles[column] != ROLE_EXACT))
			continue;
		fprintf(to, "%s<span><i class=\"s%u\"></i>", any ? " " : "<p class=\"names\">",
			plot_colour(results, table->columns[column]));
		plot_text(to, table->columns[column]);
		fputs("</span>", to);
		any = true;
	}
	fputs(any ? "</p>\n" : "", to);
}

enum kind { KIND_BARS, KIND_RANKING, KIND_DOTS, KIND_CURVES };

/* Threads and run lengths are steps of one quantity; programs share nothing but the system's time. */
static enum kind kind_of(const struct table *table)
{
	static const char *const steps[] = {"scale", "migratory", "fairness, 8 threads"};
	static const char *const own_times[] = {"programs", "large", "geometry", "pft", "locks"};
	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (strcmp(table->cell.group, steps[i]) == 0 || strcmp(table->cell.test, steps[i]) == 0)
			return table->parameter_count > 1 ? KIND_CURVES : KIND_RANKING;
	if (table->parameter_count == 1)
		return KIND_RANKING;
	for (unsigned i = 0; i < sizeof(own_times) / sizeof(own_times[0]); i++)
		if (strcmp(table->cell.group, own_times[i]) == 0 &&
		    table_system(table) < table->column_count && table_ours(table) < table->column_count)
			return KIND_DOTS;
	return KIND_BARS;
}

static void print_figure(FILE *to, const struct results *results, const struct table *table)
{
	static void (*const plots[])(FILE *, const struct results *, const struct table *) = {
		[KIND_BARS] = plot_bars,
		[KIND_RANKING] = plot_ranking,
		[KIND_DOTS] = plot_dots,
		[KIND_CURVES] = plot_curves,
	};
	fputs("<figure><figcaption>", to);
	plot_text(to, table->cell.test);
	fputs(": ", to);
	plot_text(to, table->cell.metric);
	fprintf(to, " <span>(%s; %s is better)</span></figcaption>\n", plot_unit_of(results, table).name,
		table->cell.better == BETTER_LOWER ? "less" : "more");
	if (kind_of(table) == KIND_BARS || kind_of(table) == KIND_DOTS)
		print_own_legend(to, results, table);
	plots[kind_of(table)](to, results, table);
	print_table(to, results, table);
	fputs("</figure>\n", to);
}

static void print_scatters(FILE *to, const struct results *results)
{
	static const char *const tests[] = {"real programs", "workloads"};
	fputs("<div class=\"pair\">", to);
	for (unsigned i = 0; i < 2; i++) {
		struct table table;
		if (!results_table_named(results, "programs", tests[i], "wall", &table) ||
		    table_system(&table) == table.column_count)
			continue;
		fputs("<figure><figcaption>Time against peak memory: ", to);
		plot_text(to, tests[i]);
		fputs(" <span>(geometric means; lower left is better)</span></figcaption>\n", to);
		plot_scatter(to, results, tests[i]);
		fputs("</figure>\n", to);
	}
	fputs("</div>\n", to);
}

static void print_latencies(FILE *to, const struct results *results)
{
	static const char *const calls[] = {"malloc", "free"};
	struct table table;
	if (!results_table_named(results, "programs", "calls of workloads", "malloc p50", &table))
		return;
	for (unsigned row = 0; row < table.parameter_count; row++) {
		fputs("<div class=\"pair\">", to);
		for (unsigned i = 0; i < 2; i++) {
			fprintf(to, "<figure><figcaption>Single %s calls of ", calls[i]);
			plot_text(to, table.parameters[row]);
			fputs(" <span>(share of calls that took no longer)</span></figcaption>\n", to);
			plot_latency(to, results, calls[i], table.parameters[row]);
			fputs("</figure>\n", to);
		}
		fputs("</div>\n", to);
	}
}

/* Percentiles of calls are drawn as curves, all in one plot. */
static bool is_percentile(const struct table *table)
{
	return strcmp(table->cell.test, "calls of workloads") == 0 &&
	       strcmp(table->cell.metric, "final resident") != 0;
}

static void print_group(FILE *to, const struct results *results, const char *group)
{
	struct table table;
	fputs("<h2 id=\"", to);
	plot_text(to, group);
	fputs("\">", to);
	plot_text(to, group);
	fputs("</h2>\n", to);
	if (strcmp(group, "programs") == 0)
		print_scatters(to, results);
	/* Rankings are narrow: two side by side. */
	for (unsigned narrow = 0; narrow < 2; narrow++) {
		bool any = false;
		for (unsigned i = 0; results_table(results, i, &table); i++) {
			if (strcmp(table.cell.group, group) != 0 || is_percentile(&table) ||
			    (kind_of(&table) == KIND_RANKING) != (narrow == 0))
				continue;
			if (narrow == 0 && !any)
				fputs("<div class=\"pair\">", to);
			any = true;
			print_figure(to, results, &table);
		}
		if (narrow == 0 && any)
			fputs("</div>\n", to);
	}
	if (strcmp(group, "programs") == 0)
		print_latencies(to, results);
}

static void print_facts(FILE *to, const char *title, const struct fact *facts, unsigned count)
{
	if (count == 0)
		return;
	fprintf(to, "<section><h2>%s</h2><dl>\n", title);
	for (unsigned i = 0; i < count; i++) {
		fputs("<dt>", to);
		plot_text(to, facts[i].name);
		fputs("</dt><dd>", to);
		plot_text(to, facts[i].text);
		fputs("</dd>\n", to);
	}
	fputs("</dl></section>\n", to);
}

void output_html(const struct results *results, FILE *to)
{
	struct table table;
	char group[RESULTS_NAME] = "";
	print_head(to, results);
	print_navigation(to, results);
	print_overview(to, results);
	print_legend(to, results);
	for (unsigned i = 0; results_table(results, i, &table); i++)
		if (strcmp(table.cell.group, group) != 0) {
			snprintf(group, sizeof(group), "%s", table.cell.group);
			print_group(to, results, group);
		}
	print_facts(to, "Machine", results->machine, results->machine_count);
	print_facts(to, "Allocators", results->peers, results->peer_count);
	print_facts(to, "Notes", results->notes, results->note_count);
	fputs("</body></html>\n", to);
}
