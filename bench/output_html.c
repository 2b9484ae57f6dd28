/* SPDX-License-Identifier: MIT */
/*
 * The results as one page to look at: plots first, tables below, no network, no script.  Every plot is SVG
 * written here; a bar or point tells its figure as a tooltip.
 */
#include "results.h"

#include "statistics.h"

#include <math.h>
#include <string.h>

/* Okabe and Ito's colours, which people with any colour vision can tell apart; cpuslab has the strongest. */
static const char *const colours[] = {"#d55e00", "#999999", "#0072b2", "#009e73", "#cc79a7", "#e69f00",
				      "#56b4e9", "#f0e442", "#000000", "#7f3c8d", "#11a579", "#3969ac"};
enum { COLOURS = sizeof(colours) / sizeof(colours[0]) };

enum { WIDTH = 980, HEIGHT = 300, LEFT = 64, RIGHT = 16, TOP = 16, BOTTOM = 44 };

static void print_text(FILE *to, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", to);
			break;
		case '>':
			fputs("&gt;", to);
			break;
		case '&':
			fputs("&amp;", to);
			break;
		case '"':
			fputs("&quot;", to);
			break;
		default:
			fputc(*text, to);
		}
}

/* An allocator keeps its colour in every plot of the page: its place in the list of allocators found. */
static const char *colour_of(const struct results *results, const char *peer)
{
	unsigned i = 0;
	while (i < results->peer_count && strcmp(results->peers[i].name, peer) != 0)
		i++;
	return colours[i % COLOURS];
}

static double scale_of(const char *unit)
{
	return strcmp(unit, "B") == 0 ? 1.0 / (1 << 20) : 1;
}

static const char *unit_shown(const char *unit)
{
	return strcmp(unit, "B") == 0 ? "MiB" : unit;
}

static double value_at(const struct results *results, const struct table *table, unsigned row,
		       unsigned column)
{
	const struct series *s = table_at(results, table, row, column);
	return s && s->count ? scale_of(s->unit) * median_of(s->samples, s->count) : NAN;
}

/* ---- axes ---- */

struct axis {
	double low, high;
	bool logarithmic;
};

static double place(struct axis axis, double value, double from, double to)
{
	double share = axis.logarithmic ? log(value / axis.low) / log(axis.high / axis.low)
					: (value - axis.low) / (axis.high - axis.low);
	return from + (to - from) * fmin(fmax(share, 0), 1);
}

static double y_of(struct axis axis, double value)
{
	return place(axis, value, HEIGHT - BOTTOM, TOP);
}

static void begin_plot(FILE *to, const char *label)
{
	fprintf(to, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
	print_text(to, label);
	fputs("\">\n", to);
}

static void print_tick(FILE *to, struct axis axis, double value)
{
	double y = y_of(axis, value);
	fprintf(to, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT, WIDTH - RIGHT,
		y, y);
	fprintf(to, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n", LEFT - 6, y + 4, value);
}

static void print_axis(FILE *to, struct axis axis)
{
	if (axis.logarithmic) {
		for (double decade = pow(10, floor(log10(axis.low))); decade <= axis.high; decade *= 10)
			for (unsigned step = 1; step <= 5; step += step == 1 ? 1 : 3)
				if (step * decade >= axis.low && step * decade <= axis.high)
					print_tick(to, axis, step * decade);
		return;
	}
	double step = pow(10, floor(log10(axis.high / 3)));
	step *= axis.high / step > 12 ? 5 : axis.high / step > 6 ? 2 : 1;
	for (double value = 0; value <= axis.high; value += step)
		print_tick(to, axis, value);
}

/* From the lowest to the highest figure; logarithmic when one allocator would flatten all others. */
static struct axis axis_for(const struct results *results, const struct table *table, bool may_be_zero_based)
{
	double low = INFINITY, high = 0;
	for (unsigned row = 0; row < table->parameter_count; row++)
		for (unsigned column = 0; column < table->column_count; column++) {
			double value = value_at(results, table, row, column);
			if (table->roles[column] == ROLE_PUBLISHED || isnan(value) || value <= 0)
				continue;
			low = fmin(low, value);
			high = fmax(high, value);
		}
	if (!(high > 0))
		return (struct axis){0, 1, false};
	if (may_be_zero_based && high < 20 * low)
		return (struct axis){0, 1.05 * high, false};
	return (struct axis){low / 1.5, high * 1.1, true};
}

/* ---- plots ---- */

/* Bars grouped by parameter; the floor as a dashed line across its group. */
static void plot_bars(FILE *to, const struct results *results, const struct table *table)
{
	struct axis axis = axis_for(results, table, true);
	double group = (double)(WIDTH - LEFT - RIGHT) / table->parameter_count;
	unsigned bars = 0;
	for (unsigned column = 0; column < table->column_count; column++)
		bars += table->roles[column] == ROLE_MEASURED;
	double width = fmin(0.84 * group / (bars ? bars : 1), 60);
	begin_plot(to, table->cell.test);
	print_axis(to, axis);
	for (unsigned row = 0; row < table->parameter_count; row++) {
		double left = LEFT + row * group + (group - bars * width) / 2;
		unsigned bar = 0;
		for (unsigned column = 0; column < table->column_count; column++) {
			double value = value_at(results, table, row, column);
			if (table->roles[column] != ROLE_MEASURED)
				continue;
			double x = left + bar++ * width;
			if (isnan(value))
				continue;
			double y = y_of(axis, value);
			fprintf(to,
				"<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
				"fill=\"%s\"><title>",
				x, y, 0.92 * width, HEIGHT - BOTTOM - y,
				colour_of(results, table->columns[column]));
			print_text(to, table->columns[column]);
			fprintf(to, " %.4g %s</title></rect>\n", value, unit_shown(table->cell.unit));
		}
		/* Over the bars, not under them. */
		for (unsigned column = 0; column < table->column_count; column++) {
			double value = value_at(results, table, row, column);
			if (table->roles[column] == ROLE_FLOOR && !isnan(value))
				fprintf(to,
					"<line class=\"floor\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
					"y2=\"%.1f\"/>\n",
					left, left + bars * width, y_of(axis, value), y_of(axis, value));
		}
		fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", LEFT + (row + 0.5) * group,
			HEIGHT - BOTTOM + 18);
		print_text(to, table->parameters[row]);
		fputs("</text>\n", to);
	}
	fputs("</svg>\n", to);
}

/* Lines over the parameters, which are steps of one quantity (threads). */
static void plot_lines(FILE *to, const struct results *results, const struct table *table)
{
	struct axis axis = axis_for(results, table, true);
	double step =
		(double)(WIDTH - LEFT - RIGHT) / (table->parameter_count > 1 ? table->parameter_count : 1);
	begin_plot(to, table->cell.test);
	print_axis(to, axis);
	for (unsigned column = 0; column < table->column_count; column++) {
		const char *colour = colour_of(results, table->columns[column]);
		fprintf(to, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2.5\" points=\"", colour);
		for (unsigned row = 0; row < table->parameter_count; row++) {
			double value = value_at(results, table, row, column);
			if (!isnan(value))
				fprintf(to, "%.1f,%.1f ", LEFT + (row + 0.5) * step, y_of(axis, value));
		}
		fputs("\"/>\n", to);
		for (unsigned row = 0; row < table->parameter_count; row++) {
			double value = value_at(results, table, row, column);
			if (isnan(value))
				continue;
			fprintf(to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"><title>",
				LEFT + (row + 0.5) * step, y_of(axis, value), colour);
			print_text(to, table->columns[column]);
			fprintf(to, " %.4g %s</title></circle>\n", value, unit_shown(table->cell.unit));
		}
	}
	for (unsigned row = 0; row < table->parameter_count; row++) {
		fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", LEFT + (row + 0.5) * step,
			HEIGHT - BOTTOM + 18);
		print_text(to, table->parameters[row]);
		fputs("</text>\n", to);
	}
	fputs("</svg>\n", to);
}

/* The geometric mean of a table's column over the system's malloc. */
static double over_system(const struct results *results, const struct table *table, const char *peer)
{
	const struct series *a[64], *b[64];
	unsigned pairs = 0;
	for (unsigned row = 0; row < table->parameter_count; row++) {
		struct cell cell = table->cell;
		cell.parameter = table->parameters[row];
		a[pairs] = results_find(results, &cell, peer);
		b[pairs] = results_find(results, &cell, "glibc");
		pairs += a[pairs] && b[pairs];
	}
	return pairs ? geometric_ratio(a, b, pairs).value : NAN;
}

static bool find_table(const struct results *results, const char *test, const char *metric,
		       struct table *table)
{
	for (unsigned i = 0; results_table(results, i, table); i++)
		if (strcmp(table->cell.test, test) == 0 && strcmp(table->cell.metric, metric) == 0)
			return true;
	return false;
}

/* Time against peak memory, both over the system's malloc: the best place is the lower left. */
static void plot_scatter(FILE *to, const struct results *results, const char *test)
{
	struct table time, memory;
	if (!find_table(results, test, "wall", &time) || !find_table(results, test, "peak resident", &memory))
		return;
	struct axis x = {1, 1, true}, y = {1, 1, true};
	for (unsigned i = 0; i < results->peer_count; i++) {
		double t = over_system(results, &time, results->peers[i].name);
		double m = over_system(results, &memory, results->peers[i].name);
		if (isnan(t) || isnan(m))
			continue;
		x.low = fmin(x.low, t);
		x.high = fmax(x.high, t);
		y.low = fmin(y.low, m);
		y.high = fmax(y.high, m);
	}
	x.low /= 1.08, x.high *= 1.08, y.low /= 1.08, y.high *= 1.08;
	fputs("<figure><figcaption>Time against peak memory, ", to);
	print_text(to, test);
	fputs(": geometric means over the system&#39;s malloc (1, 1). Lower left is better.</figcaption>\n",
	      to);
	begin_plot(to, test);
	for (unsigned i = 0; i <= 4; i++) {
		double value = x.low * pow(x.high / x.low, i / 4.0);
		fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.2fx time</text>\n",
			place(x, value, LEFT + 60, WIDTH - RIGHT - 60), HEIGHT - BOTTOM + 18, value);
		value = y.low * pow(y.high / y.low, i / 4.0);
		fprintf(to, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
			WIDTH - RIGHT, y_of(y, value), y_of(y, value));
		fprintf(to, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.2fx</text>\n", LEFT - 6,
			y_of(y, value) + 4, value);
	}
	for (unsigned i = 0; i < results->peer_count; i++) {
		double t = over_system(results, &time, results->peers[i].name);
		double m = over_system(results, &memory, results->peers[i].name);
		if (isnan(t) || isnan(m))
			continue;
		double px = place(x, t, LEFT + 60, WIDTH - RIGHT - 60), py = y_of(y, m);
		fprintf(to,
			"<circle cx=\"%.1f\" cy=\"%.1f\" r=\"7\" fill=\"%s\"><title>%.3fx time, %.3fx "
			"memory</title>"
			"</circle><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">",
			px, py, colour_of(results, results->peers[i].name), t, m,
			/* Names to both sides in turn: neighbours are common. */
			i % 2 ? px + 11 : px - 11, py + 4, i % 2 ? "start" : "end");
		print_text(to, results->peers[i].name);
		fputs("</text>\n", to);
	}
	fputs("</svg></figure>\n", to);
}

/* One workload's latency, share of calls to the right, both axes logarithmic: the tail is what is to be seen.
 */
static void plot_latency(FILE *to, const struct results *results, const char *call, const char *workload)
{
	static const char *const shares[] = {"p50", "p90", "p99", "p99.9", "p99.99", "max"};
	enum { SHARES = sizeof(shares) / sizeof(shares[0]) };
	double low = INFINITY, high = 0, step = (double)(WIDTH - LEFT - RIGHT) / SHARES;
	char metric[RESULTS_NAME];
	struct cell cell = {"programs", "calls of workloads", workload, metric, "ns", BETTER_LOWER};
	for (int drawing = 0; drawing <= 1; drawing++) {
		struct axis axis = {low / 1.5, high * 1.3, true};
		if (drawing && high <= 0)
			return;
		if (drawing) {
			fprintf(to, "<figure><figcaption>Latency of single calls of %s, nanoseconds: ", call);
			print_text(to, workload);
			fputs("</figcaption>\n", to);
			begin_plot(to, workload);
			print_axis(to, axis);
			for (unsigned i = 0; i < SHARES; i++)
				fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
					LEFT + (i + 0.5) * step, HEIGHT - BOTTOM + 18, shares[i]);
		}
		for (unsigned p = 0; p < results->peer_count; p++) {
			if (drawing)
				fprintf(to,
					"<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2.5\" "
					"points=\"",
					colour_of(results, results->peers[p].name));
			for (unsigned i = 0; i < SHARES; i++) {
				snprintf(metric, sizeof(metric), "%s %s", call, shares[i]);
				const struct series *s = results_find(results, &cell, results->peers[p].name);
				double value = s ? fmax(median_of(s->samples, s->count), 1) : NAN;
				if (isnan(value))
					continue;
				low = drawing ? low : fmin(low, value);
				high = drawing ? high : fmax(high, value);
				if (drawing)
					fprintf(to, "%.1f,%.1f ", LEFT + (i + 0.5) * step, y_of(axis, value));
			}
			if (drawing)
				fputs("\"/>\n", to);
		}
	}
	fputs("</svg></figure>\n", to);
}

static void plot_latencies(FILE *to, const struct results *results)
{
	struct table table;
	if (!find_table(results, "calls of workloads", "malloc p50", &table))
		return;
	for (unsigned row = 0; row < table.parameter_count; row++) {
		plot_latency(to, results, "malloc", table.parameters[row]);
		plot_latency(to, results, "free", table.parameters[row]);
	}
}

/* ---- the page ---- */

static void print_table(FILE *to, const struct results *results, const struct table *table)
{
	fputs("<details><summary>figures</summary><table><tr><th></th>", to);
	for (unsigned column = 0; column < table->column_count; column++) {
		fputs("<th>", to);
		print_text(to, table->columns[column]);
		fputs("</th>", to);
	}
	fputs("</tr>\n", to);
	for (unsigned row = 0; row < table->parameter_count; row++) {
		fputs("<tr><th>", to);
		print_text(to, table->parameters[row]);
		fputs("</th>", to);
		for (unsigned column = 0; column < table->column_count; column++) {
			double value = value_at(results, table, row, column);
			if (isnan(value))
				fputs("<td></td>", to);
			else
				fprintf(to, "<td>%.4g</td>", value);
		}
		fputs("</tr>\n", to);
	}
	fputs("</table></details>\n", to);
}

static void print_facts(FILE *to, const char *title, const struct fact *facts, unsigned count)
{
	if (count == 0)
		return;
	fprintf(to, "<section><h2>%s</h2><dl>\n", title);
	for (unsigned i = 0; i < count; i++) {
		fputs("<dt>", to);
		print_text(to, facts[i].name);
		fputs("</dt><dd>", to);
		print_text(to, facts[i].text);
		fputs("</dd>\n", to);
	}
	fputs("</dl></section>\n", to);
}

static void print_legend(FILE *to, const struct results *results)
{
	fputs("<p class=\"legend\">", to);
	for (unsigned i = 0; i < results->peer_count; i++) {
		fprintf(to, "<span><i style=\"background:%s\"></i>", colours[i % COLOURS]);
		print_text(to, results->peers[i].name);
		fputs("</span> ", to);
	}
	fputs("<span><i class=\"dash\"></i>floor: empty functions</span></p>\n", to);
}

static void print_figure(FILE *to, const struct results *results, const struct table *table)
{
	fputs("<figure><figcaption>", to);
	print_text(to, table->cell.test);
	fputs(": ", to);
	print_text(to, table->cell.metric);
	fprintf(to, " (%s, %s is better)</figcaption>\n", unit_shown(table->cell.unit),
		table->cell.better == BETTER_LOWER ? "less" : "more");
	if (strcmp(table->cell.group, "scale") == 0)
		plot_lines(to, results, table);
	else
		plot_bars(to, results, table);
	print_table(to, results, table);
	fputs("</figure>\n", to);
}

void output_html(const struct results *results, FILE *to)
{
	fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>cpuslab "
	      "bench</title>\n"
	      "<meta name=\"viewport\" content=\"width=device-width\">\n<style>\n"
	      "body{font:15px/1.5 system-ui,sans-serif;max-width:1060px;margin:2em auto;padding:0 "
	      "1em;color:#222;"
	      "background:#fff}\n"
	      "h1{font-size:1.6em}h2{font-size:1.25em;margin-top:2em;border-bottom:1px solid #ddd}\n"
	      "figure{margin:1.6em 0}figcaption{font-weight:600}svg{width:100%;height:auto}\n"
	      "svg text{font:12px system-ui,sans-serif;fill:#444}.grid{stroke:#e4e4e4}\n"
	      ".floor{stroke:#111;stroke-width:2;stroke-dasharray:6 4}\n"
	      "dl{display:grid;grid-template-columns:max-content 1fr;gap:.1em "
	      "1.2em}dt{color:#666}dd{margin:0}\n"
	      "table{border-collapse:collapse;font-size:13px}td,th{padding:.15em .6em;text-align:right;"
	      "border-bottom:1px solid #eee}\n"
	      ".legend{position:sticky;top:0;background:#fffe;padding:.5em 0}.legend "
	      "span{margin-right:1.1em}\n"
	      ".legend "
	      "i{display:inline-block;width:.9em;height:.9em;margin-right:.35em;vertical-align:-.1em}\n"
	      ".legend .dash{height:0;border-top:2px dashed "
	      "#111;vertical-align:.3em}summary{color:#666;cursor:pointer}\n"
	      "</style></head><body>\n<h1>cpuslab bench</h1>\n",
	      to);
	print_facts(to, "Machine", results->machine, results->machine_count);
	print_facts(to, "Allocators", results->peers, results->peer_count);
	print_facts(to, "Notes", results->notes, results->note_count);
	print_legend(to, results);
	struct table table;
	const char *group = "";
	for (unsigned i = 0; results_table(results, i, &table); i++) {
		if (strcmp(table.cell.group, group) != 0) {
			group = table.cell.group;
			fputs("<h2>", to);
			print_text(to, group);
			fputs("</h2>\n", to);
			if (strcmp(group, "programs") == 0) {
				plot_scatter(to, results, "real programs");
				plot_scatter(to, results, "workloads");
				plot_latencies(to, results);
			}
		}
		/* The percentiles of calls are drawn as curves above. */
		if (strcmp(table.cell.test, "calls of workloads") != 0 ||
		    strcmp(table.cell.metric, "final resident") == 0)
			print_figure(to, results, &table);
	}
	fputs("</body></html>\n", to);
}
