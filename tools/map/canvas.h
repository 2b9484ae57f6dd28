/* SPDX-License-Identifier: MIT */
/* map/canvas: boxes and text on an SVG or a PNG; lengths are pixels, from the upper left corner. */
#ifndef CPUSLAB_TOOLS_CANVAS_H
#define CPUSLAB_TOOLS_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "map/font.h"

struct colour {
	uint8_t red, green, blue;
};

struct canvas_size {
	size_t width, height;
};

struct canvas {
	struct canvas_size size;
	FILE *svg;             /* NULL for a PNG, whose pixels are here: */
	struct colour *pixels; /* row by row */
};

/* A white canvas.  Returns false with errno set where memory is short. */
bool canvas_begin_svg(struct canvas *canvas, struct canvas_size size, FILE *to);
bool canvas_begin_png(struct canvas *canvas, struct canvas_size size);
/* Completes an SVG, or writes a PNG; returns false with a message if that failed. */
bool canvas_end(struct canvas *canvas, FILE *to, char message[static 64]);
/* What this command lacks for PNGs, or NULL. */
const char *canvas_lacks(void);

/* A box with a thin border inside; in an SVG with a tooltip, if there is a text. */
void canvas_box(struct canvas *canvas, size_t x, size_t y, size_t side, struct colour colour,
		const char *tooltip);
/* A thin line to the right (or down, if `down`). */
void canvas_line(struct canvas *canvas, size_t x, size_t y, size_t length, bool down);
/* A line of text, FONT_HEIGHT high, each character FONT_WIDTH wide. */
void canvas_text(struct canvas *canvas, size_t x, size_t y, const char *text, bool bold);

#endif
