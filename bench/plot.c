/* SPDX-License-Identifier: MIT */
#include "plot.h"

#include "statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- text, units, colours ---- */

void plot_text(FILE *to, const char *text)
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

const char *plot_number(double value, char text[static 24])
{
	static const struct {
		double from;
		const char *format;
		double divide;
	} forms[] = {{1e9, "%.3gG", 1e9}, {1e6, "%.3gM", 1e6}, {1e4, "%.3gk", 1e3},
		     {100, "%.0f", 1},    {10, "%.1f", 1},     {0, "%.2f", 1}};
	unsigned i = 0;
	while (value < forms[i].from)
		i++;
	snprintf(text, 24, forms[i].format, value / forms[i].divide);
	return text;
}

static double highest_sample(const struct results *results, const struct table *table)
{
	double highest = 0;
	for (unsigned row = 0; row < table->parameter_count; row++)
		for (unsigned column = 0; column < table->column_count; column++) {
			const struct series *s = table_at(results, table, row, column);
			if (s)
				highest = fmax(highest, median_of(s->samples, s->count));
		}
	return highest;
}

struct plot_unit plot_unit_of(const struct results *results, const struct table *table)
{
	const char *unit = table->cell.unit;
	if (strcmp(unit, "B") == 0)
		return (struct plot_unit){"MiB", 1.0 / (1 << 20)};
	if (strcmp(unit, "s") == 0 && highest_sample(results, table) < 1)
		return (struct plot_unit){"ms", 1000};
	if (strcmp(unit, "us") == 0)
		return (struct plot_unit){"\xc2\xb5s", 1};
	return (struct plot_unit){unit, 1};
}

static bool is_ours(const char *column)
{
	return strcmp(column, "cpuslab") == 0 || strcmp(column, "pagelock") == 0 ||
	       strcmp(column, "spinlock") == 0;
}

static bool is_system(const char *column)
{
	return strcmp(column, "glibc") == 0 || strncmp(column, "pthread", 7) == 0;
}

/* Whether the column is this library with another setting. */
static bool is_variant(const char *column)
{
	return strncmp(column, "cpuslab ", 8) == 0;
}

static bool seen_before(const struct results *results, unsigned index)
{
	for (unsigned i = 0; i < index; i++)
		if (strcmp(results->series[i].peer, results->series[index].peer) == 0)
			return true;
	return false;
}

unsigned plot_colour(const struct results *results, const char *column)
{
	unsigned colour = 2;
	if (is_ours(column))
		return 0;
	if (is_system(column))
		return 1;
	if (is_variant(column))
		return PLOT_COLOURS - 1;
	for (unsigned i = 0; i < results->count; i++) {
		const struct series *s = &results->series[i];
		if (strcmp(s->peer, column) == 0)
			break;
		if (s->role == ROLE_PUBLISHED || s->role == ROLE_FLOOR || is_ours(s->peer) ||
		    is_system(s->peer) || is_variant(s->peer) || seen_before(results, i))
			continue;
		colour = colour + 2 < PLOT_COLOURS ? colour + 1 : 2;
	}
	return colour;
}

double plot_value(const struct results *results, const struct table *table, unsigned row, unsigned column)
{
	const struct series *s = column < table->column_count ? table_at(results, table, row, column) : NULL;
	return s ? plot_unit_of(results, table).factor * median_of(s->samples, s->count) : NAN;
}

static bool is_figure(const struct table *table, unsigned column)
{
	return table->roles[column] == ROLE_MEASURED || table->roles[column] == ROLE_EXACT;
}

static bool is_better(const struct table *table, double a, double b)
{
	return table->cell.better == BETTER_LOWER ? a < b : a > b;
}

/* Returns the best column of a row other than this library's; table.column_count if there is none. */
static unsigned best_other(const struct results *results, const struct table *table, unsigned row)
{
	unsigned best = table->column_count;
	for (unsigned column = 0; column < table->column_count; column++) {
		double value = plot_value(results, table, row, column);
		if (!is_figure(table, column) || isnan(value) || column == table_ours(table) ||
		    is_variant(table->columns[column]))
			continue;
		if (best == table->column_count ||
		    is_better(table, value, plot_value(results, table, row, best)))
			best = column;
	}
	return best;
}

/* ---- the canvas ---- */

struct canvas {
	FILE *to;
	double width, height, left, right, top, bottom; /* of the plot, in pixels from the upper left */
};

static struct canvas begin(FILE *to, const char *kind, const struct table *table, double width, double height)
{
	fprintf(to, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" class=\"%s\" data-plot=\"", width, height,
		kind);
	const char *const names[] = {table->cell.group, table->cell.test, table->cell.metric};
	for (unsigned i = 0; i < 3; i++) {
		fputs(i ? "|" : "", to);
		plot_text(to, names[i] ? names[i] : "");
	}
	fputs("\">\n", to);
	return (struct canvas){to, width, height, 0, width, 0, height};
}

static void end(const struct canvas *c)
{
	fputs("</svg>\n", c->to);
}

/* Anchors as in SVG: start, middle, end. */
static void label(const struct canvas *c, double x, double y, const char *anchor, const char *class,
		  const char *text)
{
	fprintf(c->to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor, class);
	plot_text(c->to, text);
	fputs("</text>\n", c->to);
}

static void line(const struct canvas *c, const char *class, double x1, double y1, double x2, double y2)
{
	fprintf(c->to, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1,
		y1, x2, y2);
}

static void tooltip(const struct canvas *c, const char *column, const char *row, double value,
		    const char *unit)
{
	fputs("<title>", c->to);
	plot_text(c->to, column);
	fputs(", ", c->to);
	plot_text(c->to, row);
	fprintf(c->to, ": %.4g ", value);
	plot_text(c->to, unit);
	fputs("</title>", c->to);
}

static void bar(const struct canvas *c, unsigned colour, double x, double y, double width, double height)
{
	fprintf(c->to,
		"<rect class=\"mark s%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"1.5\">",
		colour, x, y, fmax(width, 0.5), fmax(height, 0.5));
}

static void dot(const struct canvas *c, unsigned colour, double x, double y, double radius)
{
	fprintf(c->to, "<circle class=\"mark s%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\">", colour, x, y,
		radius);
}

/* ---- axes ---- */

struct axis {
	double low, high, from, to; /* values, and the pixels they map to */
	bool logarithmic;
};

static double place(const struct axis *axis, double value)
{
	double share = axis->logarithmic ? log(value / axis->low) / log(axis->high / axis->low)
					 : (value - axis->low) / (axis->high - axis->low);
	return axis->from + (axis->to - axis->from) * fmin(fmax(share, 0), 1);
}

/* Calls `draw` for round values along the axis, at least `gap` pixels apart. */
static void for_ticks(const struct canvas *c, const struct axis *axis, double gap,
		      void (*draw)(const struct canvas *c, const struct axis *axis, double value))
{
	static const double steps[] = {1, 2, 5};
	double last = NAN;
	if (!axis->logarithmic) {
		double most = fmax(fabs(axis->to - axis->from) / gap, 1), step = axis->high / most;
		double decade = pow(10, floor(log10(step)));
		step = decade * (step <= decade ? 1 : step <= 2 * decade ? 2 : step <= 5 * decade ? 5 : 10);
		for (double value = 0; value <= axis->high * 1.0001; value += step)
			draw(c, axis, value);
		return;
	}
	for (double decade = pow(10, floor(log10(axis->low))); decade <= axis->high; decade *= 10)
		for (unsigned i = 0; i < 3; i++) {
			double value = decade * steps[i];
			if (value < axis->low * 0.999 || value > axis->high * 1.001)
				continue;
			/* Decades stay even where their neighbours are dropped. */
			struct axis next = *axis;
			bool crowds = i > 0 && fabs(place(&next, decade * 10) - place(&next, value)) < gap &&
				      decade * 10 <= axis->high;
			if (crowds || (!isnan(last) && fabs(place(axis, value) - place(axis, last)) < gap))
				continue;
			draw(c, axis, value);
			last = value;
		}
}

/* Round values need no decimals. */
static const char *round_number(double value, char text[static 24])
{
	if (value >= 1e4)
		return plot_number(value, text);
	snprintf(text, 24, "%.4g", value);
	return text;
}

static void tick_y(const struct canvas *c, const struct axis *axis, double value)
{
	char text[24];
	double y = place(axis, value);
	line(c, "grid", c->left, y, c->right, y);
	label(c, c->left - 8, y + 4, "end", "tick", round_number(value, text));
}

static void tick_times(const struct canvas *c, const struct axis *axis, double value)
{
	char text[24];
	double x = place(axis, value);
	snprintf(text, sizeof(text), "%.3g\xc3\x97", value);
	line(c, fabs(value - 1) < 1e-6 ? "one" : "grid", x, c->top, x, c->bottom);
	label(c, x, c->bottom + 16, "middle", "tick", text);
}

static void tick_times_y(const struct canvas *c, const struct axis *axis, double value)
{
	char text[24];
	double y = place(axis, value);
	snprintf(text, sizeof(text), "%.3g\xc3\x97", value);
	line(c, fabs(value - 1) < 1e-6 ? "one" : "grid", c->left, y, c->right, y);
	label(c, c->left - 8, y + 4, "end", "tick", text);
}

/* Calls `draw` for round ratios, the most telling ones first, as far as there is room. */
static void for_times(const struct canvas *c, const struct axis *axis, double gap,
		      void (*draw)(const struct canvas *c, const struct axis *axis, double value))
{
	static const double ratios[] = {1,   0.5, 2,   0.1, 10,   0.2,  5,    0.05, 20,  0.02,
					0.7, 1.5, 0.8, 1.2, 0.3,  3,    0.9,  1.1,  0.6, 1.3,
					0.4, 4,   7,   2.5, 0.95, 1.05, 0.85, 1.15};
	double drawn[sizeof(ratios) / sizeof(ratios[0])];
	unsigned count = 0;
	for (unsigned i = 0; i < sizeof(ratios) / sizeof(ratios[0]); i++) {
		double at = place(axis, ratios[i]);
		bool is_free = ratios[i] >= axis->low * 0.999 && ratios[i] <= axis->high * 1.001;
		for (unsigned n = 0; is_free && n < count; n++)
			is_free = fabs(at - drawn[n]) >= gap;
		if (!is_free)
			continue;
		drawn[count++] = at;
		draw(c, axis, ratios[i]);
	}
}

static void tick_nanoseconds(const struct canvas *c, const struct axis *axis, double value)
{
	static const char *const units[] = {"ns", "\xc2\xb5s", "ms", "s"};
	char text[24];
	unsigned unit = value >= 1e9 ? 3 : value >= 1e6 ? 2 : value >= 1e3 ? 1 : 0;
	double y = place(axis, value);
	snprintf(text, sizeof(text), "%.3g %s", value / pow(1000, unit), units[unit]);
	line(c, "grid", c->left, y, c->right, y);
	label(c, c->left - 8, y + 4, "end", "tick", text);
}

/* From zero; logarithmic if one value would flatten all others. */
static struct axis axis_of(const struct results *results, const struct table *table, double from, double to)
{
	double low = INFINITY, high = 0;
	for (unsigned row = 0; row < table->parameter_count; row++)
		for (unsigned column = 0; column < table->column_count; column++) {
			double value = plot_value(results, table, row, column);
			if (table->roles[column] == ROLE_PUBLISHED || isnan(value) || value <= 0)
				continue;
			low = fmin(low, value);
			high = fmax(high, value);
		}
	if (high <= 0)
		return (struct axis){0, 1, from, to, false};
	if (high < 12 * low)
		return (struct axis){0, 1.06 * high, from, to, false};
	return (struct axis){low / 1.6, high * 1.15, from, to, true};
}

static void axis_title(const struct canvas *c, const struct plot_unit *unit, const struct axis *axis)
{
	char text[64];
	snprintf(text, sizeof(text), "%s%s", unit->name, axis->logarithmic ? ", logarithmic" : "");
	label(c, c->left - 8, c->top - 10, "start", "tick", text);
}

/* ---- labels that must not touch ---- */

struct tag {
	const char *text;
	unsigned colour;
	double wanted, y;
};

static int by_wanted(const void *a, const void *b)
{
	double x = ((const struct tag *)a)->wanted, y = ((const struct tag *)b)->wanted;
	return (x > y) - (x < y);
}

/*
 * Moves names at the right end of curves apart, no further than needed: names that would touch form a block,
 * centred on the mean of the places they would like.
 */
static void move_apart(struct tag *tags, unsigned count, double highest, double lowest)
{
	enum { APART = 14 };
	unsigned first[32], blocks = 0;
	qsort(tags, count, sizeof(*tags), by_wanted);
	for (unsigned i = 0; i < count; i++) {
		first[blocks++] = i;
		for (bool touching = true; touching && blocks > 0;) {
			unsigned from = first[blocks - 1], size = i + 1 - from;
			double middle = 0;
			for (unsigned n = from; n <= i; n++)
				middle += tags[n].wanted / size;
			double start = fmin(middle - APART * (size - 1) / 2.0, lowest - APART * (size - 1.0));
			start = fmax(start, highest);
			for (unsigned n = from; n <= i; n++)
				tags[n].y = start + APART * (n - from);
			touching = from > 0 && tags[from].y < tags[from - 1].y + APART;
			blocks -= touching;
		}
	}
}

static void print_tags(const struct canvas *c, struct tag *tags, unsigned count)
{
	move_apart(tags, count, c->top, c->bottom + 8);
	for (unsigned i = 0; i < count; i++) {
		char class[24];
		line(c, "leader", c->right + 2, tags[i].wanted, c->right + 14, tags[i].y);
		snprintf(class, sizeof(class), "name t%u", tags[i].colour);
		label(c, c->right + 18, tags[i].y + 4, "start", class, tags[i].text);
	}
}

/* ---- bars ---- */

static unsigned figures_in(const struct table *table)
{
	unsigned figures = 0;
	for (unsigned column = 0; column < table->column_count; column++)
		figures += is_figure(table, column);
	return figures;
}

/* Under a group: this library's figure and the best of the others, the better one in bold. */
static void print_winner(const struct canvas *c, const struct results *results, const struct table *table,
			 unsigned row, double middle)
{
	unsigned ours = table_ours(table), best = best_other(results, table, row);
	char text[24];
	if (ours == table->column_count)
		return;
	double own = plot_value(results, table, row, ours), other = plot_value(results, table, row, best);
	bool ahead = !isnan(own) && (isnan(other) || is_better(table, own, other));
	if (!isnan(own))
		label(c, middle, c->bottom + 36, "middle", ahead ? "won t0" : "value t0",
		      plot_number(own, text));
	if (isnan(other))
		return;
	label(c, middle, c->bottom + 53, "middle", ahead ? "value" : "won", plot_number(other, text));
	label(c, middle, c->bottom + 66, "middle", "small", table->columns[best]);
}

static void print_group(const struct canvas *c, const struct results *results, const struct table *table,
			const struct axis *axis, unsigned row, double left, double width)
{
	struct plot_unit unit = plot_unit_of(results, table);
	unsigned bars = 0;
	for (unsigned column = 0; column < table->column_count; column++) {
		double value = plot_value(results, table, row, column);
		if (!is_figure(table, column))
			continue;
		double x = left + bars++ * width;
		if (isnan(value))
			continue;
		double y = place(axis, value);
		bar(c, plot_colour(results, table->columns[column]), x, y, width - 1, c->bottom - y);
		tooltip(c, table->columns[column], table->parameters[row], value, unit.name);
		fputs("</rect>\n", c->to);
		/* If there is room, and nothing below says it. */
		if (width > 26 && table_ours(table) == table->column_count) {
			char text[24];
			label(c, x + width / 2, y - 5, "middle", "small", round_number(value, text));
		}
	}
	for (unsigned column = 0; column < table->column_count; column++) {
		double value = plot_value(results, table, row, column);
		if (table->roles[column] == ROLE_FLOOR && !isnan(value))
			line(c, "floor", left - 3, place(axis, value), left + bars * width + 2,
			     place(axis, value));
	}
}

void plot_bars(FILE *to, const struct results *results, const struct table *table)
{
	bool ours = table_ours(table) < table->column_count;
	struct canvas c = begin(to, "bars", table, 1080, ours ? 340 : 284);
	c.left = 78, c.right = 1072, c.top = 26, c.bottom = 256;
	struct axis axis = axis_of(results, table, c.bottom, c.top);
	struct plot_unit unit = plot_unit_of(results, table);
	double group = (c.right - c.left) / table->parameter_count;
	unsigned bars = figures_in(table);
	double width = fmin(0.86 * group / (bars ? bars : 1), 34);
	axis_title(&c, &unit, &axis);
	for_ticks(&c, &axis, 26, tick_y);
	if (ours) {
		label(&c, c.left - 8, c.bottom + 36, "end", "tick", table->columns[table_ours(table)]);
		label(&c, c.left - 8, c.bottom + 53, "end", "tick", "best other");
	}
	for (unsigned row = 0; row < table->parameter_count; row++) {
		double middle = c.left + (row + 0.5) * group;
		print_group(&c, results, table, &axis, row, middle - bars * width / 2, width);
		label(&c, middle, c.bottom + 17, "middle", "row", table->parameters[row]);
		print_winner(&c, results, table, row, middle);
	}
	end(&c);
}

/* ---- rankings ---- */

struct entry {
	unsigned column;
	double value;
	bool lower;
};

static int best_first(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	return ((x->value > y->value) - (x->value < y->value)) * (x->lower ? 1 : -1);
}

void plot_ranking(FILE *to, const struct results *results, const struct table *table)
{
	struct entry entries[32];
	struct plot_unit unit = plot_unit_of(results, table);
	unsigned count = 0;
	double floor_value = NAN;
	for (unsigned column = 0; column < table->column_count; column++) {
		double value = plot_value(results, table, 0, column);
		if (table->roles[column] == ROLE_FLOOR)
			floor_value = value;
		if (is_figure(table, column) && !isnan(value))
			entries[count++] = (struct entry){column, value, table->cell.better == BETTER_LOWER};
	}
	qsort(entries, count, sizeof(entries[0]), best_first);
	struct canvas c = begin(to, "ranking", table, 520, 24.0 * count + 20);
	c.left = 124, c.right = 440, c.top = 8, c.bottom = c.height - 12;
	struct axis axis = {0, 1, c.left, c.right, false};
	for (unsigned i = 0; i < count; i++)
		axis.high = i ? fmax(axis.high, entries[i].value) : entries[i].value;
	for (unsigned i = 0; i < count; i++) {
		unsigned colour = plot_colour(results, table->columns[entries[i].column]);
		double y = c.top + 24.0 * i, x = place(&axis, entries[i].value);
		char text[64], number[24];
		label(&c, c.left - 8, y + 15, "end", colour ? "row" : "won t0",
		      table->columns[entries[i].column]);
		bar(&c, colour, c.left, y + 3, x - c.left, 17);
		tooltip(&c, table->columns[entries[i].column], table->parameters[0], entries[i].value,
			unit.name);
		fputs("</rect>\n", to);
		snprintf(text, sizeof(text), "%s %s", plot_number(entries[i].value, number), unit.name);
		label(&c, x + 6, y + 15, "start", colour ? "value" : "won t0", text);
	}
	if (!isnan(floor_value))
		line(&c, "floor", place(&axis, floor_value), c.top, place(&axis, floor_value), c.bottom);
	end(&c);
}

/* ---- dots ---- */

static double over_system(const struct results *results, const struct table *table, unsigned row,
			  unsigned column)
{
	return plot_value(results, table, row, column) / plot_value(results, table, row, table_system(table));
}

/* Wide enough for all but far outliers, which are drawn at the edge. */
static struct axis times_axis(const struct results *results, const struct table *table, double from,
			      double to)
{
	struct axis axis = {0.8, 1.25, from, to, true};
	for (unsigned row = 0; row < table->parameter_count; row++)
		for (unsigned column = 0; column < table->column_count; column++) {
			double ratio = over_system(results, table, row, column);
			if (!is_figure(table, column) || isnan(ratio) || ratio <= 0)
				continue;
			axis.low = fmax(fmin(axis.low, ratio / 1.08), 0.05);
			axis.high = fmin(fmax(axis.high, ratio * 1.08), 20);
		}
	return axis;
}

/* To the right of a row: this library's ratio, and the best of the others. */
static void print_outcome(const struct canvas *c, const struct results *results, const struct table *table,
			  unsigned row, double y)
{
	unsigned ours = table_ours(table), best = best_other(results, table, row);
	double own = over_system(results, table, row, ours), other = over_system(results, table, row, best);
	bool ahead = !isnan(own) && (isnan(other) || is_better(table, own, other));
	char text[80];
	if (!isnan(own)) {
		snprintf(text, sizeof(text), "%.2f\xc3\x97", own);
		label(c, c->right + 62, y + 4, "end", ahead ? "won t0" : "value t0", text);
	}
	if (!isnan(other)) {
		snprintf(text, sizeof(text), "%.2f\xc3\x97 %s", other, table->columns[best]);
		label(c, c->right + 78, y + 4, "start", ahead ? "value" : "won", text);
	}
}

void plot_dots(FILE *to, const struct results *results, const struct table *table)
{
	enum { ROW = 30 };
	struct plot_unit unit = plot_unit_of(results, table);
	struct canvas c = begin(to, "dots", table, 1080, ROW * table->parameter_count + 60.0);
	c.left = 150, c.right = 852, c.top = 22, c.bottom = c.height - 30;
	struct axis axis = times_axis(results, table, c.left, c.right);
	char system[RESULTS_NAME + 32];
	snprintf(system, sizeof(system), "over %s, logarithmic", table->columns[table_system(table)]);
	label(&c, c.left, c.top - 9, "start", "tick", system);
	if (table_ours(table) < table->column_count)
		label(&c, c.right + 62, c.top - 9, "end", "tick", table->columns[table_ours(table)]);
	label(&c, c.right + 78, c.top - 9, "start", "tick", "best other");
	for_times(&c, &axis, 44, tick_times);
	for (unsigned row = 0; row < table->parameter_count; row++) {
		double y = c.top + ROW * (row + 0.5);
		line(&c, "grid", c.left, y, c.right, y);
		label(&c, c.left - 10, y + 4, "end", "row", table->parameters[row]);
		/* This library last, on top of all others. */
		for (unsigned turn = 0; turn <= table->column_count; turn++) {
			unsigned column = turn < table->column_count ? turn : table_ours(table);
			double ratio =
				column < table->column_count ? over_system(results, table, row, column) : NAN;
			if (isnan(ratio) || !is_figure(table, column) || ratio <= 0 ||
			    (turn < table->column_count && column == table_ours(table)))
				continue;
			dot(&c, plot_colour(results, table->columns[column]), place(&axis, ratio), y,
			    turn < table->column_count ? 5 : 7.5);
			tooltip(&c, table->columns[column], table->parameters[row],
				plot_value(results, table, row, column), unit.name);
			fputs("</circle>\n", to);
		}
		print_outcome(&c, results, table, row, y);
	}
	end(&c);
}

/* ---- curves ---- */

static double step_place(const struct canvas *c, unsigned step, unsigned steps)
{
	return steps > 1 ? c->left + 16 + (c->right - c->left - 32) * step / (steps - 1.0)
			 : (c->left + c->right) / 2;
}

void plot_curves(FILE *to, const struct results *results, const struct table *table)
{
	struct tag tags[32];
	struct plot_unit unit = plot_unit_of(results, table);
	struct canvas c = begin(to, "curves", table, 1080, 330);
	unsigned count = 0, steps = table->parameter_count;
	c.left = 64, c.right = 930, c.top = 26, c.bottom = 280;
	struct axis axis = axis_of(results, table, c.bottom, c.top);
	axis_title(&c, &unit, &axis);
	for_ticks(&c, &axis, 26, tick_y);
	for (unsigned row = 0; row < steps; row++)
		label(&c, step_place(&c, row, steps), c.bottom + 18, "middle", "row", table->parameters[row]);
	label(&c, (c.left + c.right) / 2, c.bottom + 38, "middle", "tick", table->cell.test);
	for (unsigned column = 0; column < table->column_count; column++) {
		unsigned colour = plot_colour(results, table->columns[column]);
		bool paper = table->roles[column] == ROLE_PUBLISHED;
		fprintf(to, "<polyline class=\"%s l%u\" points=\"", paper ? "paper" : "curve", colour);
		for (unsigned row = 0; row < steps; row++) {
			double value = plot_value(results, table, row, column);
			if (isnan(value))
				continue;
			fprintf(to, "%.1f,%.1f ", step_place(&c, row, steps), place(&axis, value));
			tags[count] = (struct tag){table->columns[column], paper ? 1 : colour,
						   place(&axis, value), 0};
		}
		fputs("\"/>\n", to);
		count++;
		for (unsigned row = 0; row < steps && !paper; row++) {
			double value = plot_value(results, table, row, column);
			if (isnan(value))
				continue;
			dot(&c, colour, step_place(&c, row, steps), place(&axis, value), colour ? 3.5 : 5);
			tooltip(&c, table->columns[column], table->parameters[row], value, unit.name);
			fputs("</circle>\n", to);
		}
	}
	print_tags(&c, tags, count);
	end(&c);
}

/* ---- time against memory ---- */

struct box {
	double left, top, right, bottom;
};

static bool touches(const struct box *a, const struct box *b)
{
	return a->left < b->right && b->left < a->right && a->top < b->bottom && b->top < a->bottom;
}

struct point {
	const char *name;
	double x, y, time, memory;
};

/* Where a name of `width` pixels can stand beside its point: at a side, above, below, or further away. */
static struct box name_box(const struct point *point, unsigned attempt, double width)
{
	static const struct {
		double x, y;
	} places[] = {{12, -7},   {-12, -7}, {0, -24},  {0, 11},  {14, -20},  {14, 7},
		      {-14, -20}, {-14, 7},  {26, -34}, {26, 20}, {-26, -34}, {-26, 20}};
	unsigned which = attempt % (sizeof(places) / sizeof(places[0]));
	double left = places[which].x > 0   ? point->x + places[which].x
		      : places[which].x < 0 ? point->x + places[which].x - width
					    : point->x - width / 2;
	return (struct box){left, point->y + places[which].y, left + width, point->y + places[which].y + 14};
}

static void name_points(const struct canvas *c, const struct results *results, const struct point *points,
			unsigned count)
{
	enum { ATTEMPTS = 12 };
	struct box taken[64];
	unsigned boxes = 0;
	for (unsigned i = 0; i < count; i++)
		taken[boxes++] =
			(struct box){points[i].x - 8, points[i].y - 8, points[i].x + 8, points[i].y + 8};
	for (unsigned i = 0; i < count; i++) {
		double width = 7.4 * (double)strlen(points[i].name) + 4;
		struct box found = name_box(&points[i], 0, width);
		for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
			struct box box = name_box(&points[i], attempt, width);
			bool is_free = box.left > c->left && box.right < c->right && box.top > c->top &&
				       box.bottom < c->bottom;
			for (unsigned b = 0; is_free && b < boxes; b++)
				is_free = !touches(&box, &taken[b]);
			if (is_free) {
				found = box;
				break;
			}
		}
		char class[24];
		taken[boxes++] = found;
		snprintf(class, sizeof(class), "name t%u", plot_colour(results, points[i].name));
		label(c, (found.left + found.right) / 2, found.top + 11, "middle", class, points[i].name);
	}
}

static double mean_over_system(const struct results *results, const struct table *table, unsigned column)
{
	const struct series *a[64], *b[64];
	unsigned pairs = 0;
	for (unsigned row = 0; column < table->column_count && row < table->parameter_count; row++) {
		a[pairs] = table_at(results, table, row, column);
		b[pairs] = table_at(results, table, row, table_system(table));
		pairs += a[pairs] && b[pairs];
	}
	return pairs ? geometric_ratio(a, b, pairs).value : NAN;
}

void plot_scatter(FILE *to, const struct results *results, const char *test)
{
	struct table time, memory;
	struct point points[32];
	unsigned count = 0;
	struct axis x = {0.95, 1.05, 0, 0, true}, y = {0.95, 1.05, 0, 0, true};
	if (!results_table_named(results, "programs", test, "wall", &time) ||
	    !results_table_named(results, "programs", test, "peak resident", &memory) ||
	    table_system(&time) == time.column_count)
		return;
	for (unsigned i = 0; i < time.column_count; i++) {
		double t = mean_over_system(results, &time, i);
		double m = mean_over_system(results, &memory, table_column(&memory, time.columns[i]));
		if (isnan(t) || isnan(m))
			continue;
		points[count++] = (struct point){time.columns[i], 0, 0, t, m};
		x.low = fmin(x.low, t), x.high = fmax(x.high, t);
		y.low = fmin(y.low, m), y.high = fmax(y.high, m);
	}
	struct canvas c = begin(to, "scatter", &memory, 520, 400);
	c.left = 58, c.right = 508, c.top = 20, c.bottom = 352;
	x.low /= 1.06, x.high *= 1.06, y.low /= 1.06, y.high *= 1.06;
	x.from = c.left, x.to = c.right, y.from = c.bottom, y.to = c.top;
	for_times(&c, &x, 40, tick_times);
	for_times(&c, &y, 26, tick_times_y);
	label(&c, (c.left + c.right) / 2, c.bottom + 36, "middle", "tick",
	      "time over glibc's (less is better)");
	label(&c, c.left - 8, c.top - 8, "start", "tick", "peak memory over glibc's (less is better)");
	for (unsigned i = 0; i < count; i++) {
		struct point *p = &points[i];
		unsigned colour = plot_colour(results, p->name);
		p->x = place(&x, p->time), p->y = place(&y, p->memory);
		dot(&c, colour, p->x, p->y, colour ? 6 : 8.5);
		fputs("<title>", to);
		plot_text(to, p->name);
		fprintf(to, ": %.3f\xc3\x97 time, %.3f\xc3\x97 memory</title></circle>\n", p->time,
			p->memory);
	}
	name_points(&c, results, points, count);
	end(&c);
}

/* ---- latency ---- */

void plot_latency(FILE *to, const struct results *results, const char *call, const char *workload)
{
	static const char *const shares[] = {"p50", "p90", "p99", "p99.9", "p99.99", "max"};
	enum { SHARES = sizeof(shares) / sizeof(shares[0]) };
	double values[32][SHARES], low = INFINITY, high = 0;
	struct table table;
	struct tag tags[32];
	unsigned count = 0;
	char metric[RESULTS_NAME];
	snprintf(metric, sizeof(metric), "%s p50", call);
	if (!results_table_named(results, "programs", "calls of workloads", metric, &table))
		return;
	for (unsigned column = 0; column < table.column_count; column++)
		for (unsigned i = 0; i < SHARES; i++) {
			snprintf(metric, sizeof(metric), "%s %s", call, shares[i]);
			struct cell cell = {"programs", "calls of workloads", workload, metric,
					    "ns",       BETTER_LOWER};
			const struct series *s = results_find(results, &cell, table.columns[column]);
			values[column][i] = s ? fmax(median_of(s->samples, s->count), 1) : NAN;
			low = fmin(low, s ? values[column][i] : low);
			high = fmax(high, s ? values[column][i] : high);
		}
	table.cell.test = call;
	table.cell.metric = workload;
	struct canvas c = begin(to, "latency", &table, 520, 300);
	c.left = 60, c.right = 420, c.top = 14, c.bottom = 262;
	struct axis axis = {low / 1.4, high * 1.3, c.bottom, c.top, true};
	for_ticks(&c, &axis, 24, tick_nanoseconds);
	for (unsigned i = 0; i < SHARES; i++)
		label(&c, step_place(&c, i, SHARES), c.bottom + 18, "middle", "row", shares[i]);
	/* This library last, on top of all others. */
	for (unsigned turn = 0; turn <= table.column_count; turn++) {
		unsigned column = turn < table.column_count ? turn : table_ours(&table);
		if (column >= table.column_count || isnan(values[column][0]) ||
		    (turn < table.column_count && column == table_ours(&table)))
			continue;
		unsigned colour = plot_colour(results, table.columns[column]);
		fprintf(to, "<polyline class=\"mark curve l%u\" points=\"", colour);
		for (unsigned i = 0; i < SHARES; i++)
			fprintf(to, "%.1f,%.1f ", step_place(&c, i, SHARES), place(&axis, values[column][i]));
		fputs("\"><title>", to);
		plot_text(to, table.columns[column]);
		for (unsigned i = 0; i < SHARES; i++)
			fprintf(to, ", %s %.4g ns", shares[i], values[column][i]);
		fputs("</title></polyline>\n", to);
		tags[count++] = (struct tag){table.columns[column], colour,
					     place(&axis, values[column][SHARES - 1]), 0};
	}
	print_tags(&c, tags, count);
	end(&c);
}

/* ---- everything at a glance ---- */

struct outcome {
	struct table table;
	struct ratio ratio; /* below 1: this library is better, in either direction of the metric */
};

static bool outcome_of(const struct results *results, unsigned index, struct outcome *outcome, bool *more)
{
	const struct series *a[64], *b[64];
	struct table *table = &outcome->table;
	unsigned pairs = 0;
	*more = results_table(results, index, table);
	if (!*more || table_ours(table) == table->column_count || table_system(table) == table->column_count)
		return false;
	for (unsigned row = 0; row < table->parameter_count; row++) {
		a[pairs] = table_at(results, table, row, table_ours(table));
		b[pairs] = table_at(results, table, row, table_system(table));
		pairs += a[pairs] && b[pairs];
	}
	if (pairs == 0)
		return false;
	struct ratio r = geometric_ratio(a, b, pairs);
	if (table->cell.better == BETTER_HIGHER)
		r = (struct ratio){1 / r.value, 1 / r.high, 1 / r.low, r.verdict};
	outcome->ratio = r;
	return isfinite(r.value);
}

static void print_outcome_row(const struct canvas *c, const struct axis *axis, const struct outcome *o,
			      double y)
{
	static const char *const words[] = {
		[VERDICT_WIN] = "wins", [VERDICT_TIE] = "ties", [VERDICT_LOSS] = "loses"};
	const char *class = words[o->ratio.verdict];
	char text[3 * RESULTS_NAME];
	snprintf(text, sizeof(text), "%s: %s", o->table.cell.test, o->table.cell.metric);
	label(c, c->left - 12, y + 4, "end", "row", text);
	fprintf(c->to, "<line class=\"interval %s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", class,
		place(axis, o->ratio.low), place(axis, o->ratio.high), y, y);
	fprintf(c->to, "<circle class=\"mark %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\"><title>", class,
		place(axis, o->ratio.value), y);
	plot_text(c->to, text);
	fprintf(c->to, ": %.3f\xc3\x97 (%.3f to %.3f)</title></circle>\n", o->ratio.value, o->ratio.low,
		o->ratio.high);
	snprintf(text, sizeof(text), "%.2f\xc3\x97 %s", o->ratio.value, class);
	label(c, c->right + 12, y + 4, "start", class, text);
}

void plot_overview(FILE *to, const struct results *results)
{
	enum { ROW = 20, HEAD = 30 };
	static struct outcome outcome;
	struct axis axis = {0.5, 2, 0, 0, true};
	const char *group = "";
	double height = 0;
	bool more = true;
	for (unsigned i = 0; more; i++)
		if (outcome_of(results, i, &outcome, &more)) {
			height += ROW + (strcmp(outcome.table.cell.group, group) ? HEAD : 0);
			group = outcome.table.cell.group;
			axis.low = fmax(fmin(axis.low, outcome.ratio.value / 1.2), 0.02);
			axis.high = fmin(fmax(axis.high, outcome.ratio.value * 1.2), 20);
		}
	if (height == 0)
		return;
	struct canvas c =
		begin(to, "overview", &(struct table){.cell = {"all", "", "", "", "", 0}}, 1080, height + 50);
	c.left = 340, c.right = 960, c.top = 10, c.bottom = c.height - 30;
	axis.from = c.left, axis.to = c.right;
	for_times(&c, &axis, 44, tick_times);
	double y = c.top;
	group = "";
	more = true;
	for (unsigned i = 0; more; i++) {
		if (!outcome_of(results, i, &outcome, &more))
			continue;
		if (strcmp(outcome.table.cell.group, group)) {
			group = outcome.table.cell.group;
			y += HEAD;
			label(&c, c.left - 12, y - 8, "end", "head", group);
		}
		print_outcome_row(&c, &axis, &outcome, y + ROW / 2.0);
		y += ROW;
	}
	end(&c);
}
