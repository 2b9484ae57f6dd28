/* SPDX-License-Identifier: MIT */
/*
 * inspect/view: a census as text: for people, for slabtop, for programs and for a metrics server.
 */
#ifndef CPUSLAB_TOOLS_VIEW_H
#define CPUSLAB_TOOLS_VIEW_H

#include <stdio.h>

#include "inspect/census.h"

/* Which caches, and in which order. */
struct view {
	const struct census *census;
	const struct target *target;
	size_t *order; /* indexes of census->caches */
	size_t count;
};

enum sorting {
	SORT_NONE, /* by cache number */
	SORT_NAME,
	SORT_SIZE,     /* memory taken */
	SORT_LOSS,     /* memory taken that no live object uses */
	SORT_ACTIVITY, /* misses of the fast path, refills and drains */
	SORT_PARTIAL,
	SORT_OBJECTS,
	SORT_OBJECT_SIZE,
	SORT_PER_SLAB,
	SORT_SLABS,
	SORT_ACTIVE,
	SORT_HOARDED,
	SORT_USE,
};

/*
 * Selects caches whose name fits one of the patterns (fnmatch(3); none: all); those without slabs if `empty`.
 */
void view_select(struct view *view, const struct census *census, const struct target *target,
		 char *const *patterns, size_t pattern_count, bool empty);
void view_sort(struct view *view, enum sorting sorting, bool inverted);

/* The table of the kernel's slabinfo tool. */
void view_print_table(FILE *to, const struct view *view, size_t lines, bool bytes);
/* Its table of activity. */
void view_print_activity(FILE *to, const struct view *view, size_t lines);
void view_print_aliases(FILE *to, const struct view *view);
/* Sums over all caches, and what the allocator has mapped. */
void view_print_totals(FILE *to, const struct view *view);
/* Everything about each cache. */
void view_print_report(FILE *to, const struct view *view);
/* Pages of each cache on each node. */
bool view_print_numa(FILE *to, const struct view *view, size_t lines);
/* The format of /proc/slabinfo, version 2.1. */
void view_print_slabinfo(FILE *to, const struct view *view);
void view_print_json(FILE *to, const struct view *view);

/*
 * The text exposition format of Prometheus.  Takes all processes at once, since a metric's samples must stand
 * together.
 */
void view_print_prometheus(FILE *to, const struct view *views, size_t count);

/* Formats 1234567 as "1.2M", in powers of 1000 like the kernel's tool. */
const char *format_number(char text[static 24], uint64_t number);

#endif
