/* SPDX-License-Identifier: MIT */
/*
 * top/screen: what `cpuslab top` shows, as lines of text; top.c brings them to a terminal, and a file gets
 * the same lines.
 */
#ifndef CPUSLAB_TOOLS_SCREEN_H
#define CPUSLAB_TOOLS_SCREEN_H

#include "inspect/view.h"

enum { SCREEN_COLUMNS = 512, SCREEN_LINES = 512, HISTORY = 120 };

enum style { STYLE_PLAIN, STYLE_TITLE, STYLE_HEAD, STYLE_CHOSEN, STYLE_WARNING, STYLE_FAINT };

struct line {
	char text[SCREEN_COLUMNS * 4]; /* UTF-8 if `unicode` says so */
	enum style style;
};

struct screen {
	unsigned columns, rows; /* of the terminal */
	bool unicode;           /* block and line characters beyond ASCII */
	unsigned count;
	struct line lines[SCREEN_LINES];
};

/* Bounds computed from two censuses: calls per second, in the order of the caches' numbers. */
struct rates {
	size_t count;
	struct rate {
		uint32_t number;
		double allocs, frees; /* at least: those that missed */
	} *of;
	double allocs, frees; /* at least, all caches and large objects together */
	double most;          /* both, at most; 0 if unknown */
};

/* One value per refresh, the latest last. */
struct history {
	unsigned count;
	uint64_t values[HISTORY];
};
void history_add(struct history *history, uint64_t value);

/* Computes the rates from `before` to `now`. */
void rates_compute(struct rates *rates, const struct census *before, const struct census *now);
const struct rate *rates_of(const struct rates *rates, uint32_t number);

struct overview {
	const struct view *view;
	const struct rates *rates;
	const struct history *used;
	size_t first, chosen; /* rows of the table: the first one shown, and the selected one */
	const char *notice;   /* the last line, or NULL */
};
void screen_overview(struct screen *screen, const struct overview *overview);
/* Returns how many rows of the table fit. */
size_t screen_overview_rows(const struct screen *screen);

/* Shows one cache; `index` is its index in view->order. */
void screen_cache(struct screen *screen, const struct overview *overview, size_t index,
		  const struct history *live);

/* All processes on cpuslab that may be read. */
struct process {
	pid_t pid;
	char name[64];
	uint64_t live, mapped, caches;
};
void screen_picker(struct screen *screen, const struct process *processes, size_t count, size_t chosen);

#endif
