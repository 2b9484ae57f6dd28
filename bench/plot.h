/* SPDX-License-Identifier: MIT */
/*
 * plot: the plots of the HTML page, as SVG written here.
 *
 * Every plot is a picture of one table (or two) of the results, named in data-plot.  An element that stands
 * for a figure has class "mark", so that a test can count them, and shows its figure as a tooltip.  Colours
 * are classes: s0 is this library, s1 the system's malloc or lock, the last one this library with another
 * setting; the others follow in the order of the results.  The page's style sheet defines the colours, for
 * light and dark mode.
 */
#ifndef CPUSLAB_BENCH_PLOT_H
#define CPUSLAB_BENCH_PLOT_H

#include "results.h"

enum { PLOT_COLOURS = 13 };

/* Escapes text for HTML and SVG. */
void plot_text(FILE *to, const char *text);

/* "12.3k": three digits and a magnitude. */
const char *plot_number(double value, char text[static 24]);

/* A unit for display, and the factor for samples: MiB for bytes, ms for fractions of a second. */
struct plot_unit {
	const char *name;
	double factor;
};
struct plot_unit plot_unit_of(const struct results *results, const struct table *table);

/* Returns the colour of an allocator or lock, the same in every plot of the page. */
unsigned plot_colour(const struct results *results, const char *column);

/* Returns the median of a cell in the unit of plot_unit_of; NAN if there is none. */
double plot_value(const struct results *results, const struct table *table, unsigned row, unsigned column);

/* Bars in groups, one for each row; the floor as a dashed line over its group.  For sizes. */
void plot_bars(FILE *to, const struct results *results, const struct table *table);

/* The only row of a table: a bar for each column, the best one first. */
void plot_ranking(FILE *to, const struct results *results, const struct table *table);

/*
 * A line of dots for each row: each column over the system's.  For programs, whose absolute times say little.
 */
void plot_dots(FILE *to, const struct results *results, const struct table *table);

/* A curve for each column over the rows, which are steps of one quantity. */
void plot_curves(FILE *to, const struct results *results, const struct table *table);

/* Time against peak memory of a test of programs, over the system's malloc: lower left is better. */
void plot_scatter(FILE *to, const struct results *results, const char *test);

/* How long single calls of one workload took, by the share of calls that took no longer. */
void plot_latency(FILE *to, const struct results *results, const char *call, const char *workload);

/* Every table in one picture: this library over the system's, with the interval. */
void plot_overview(FILE *to, const struct results *results);

#endif
