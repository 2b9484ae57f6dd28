/* SPDX-License-Identifier: MIT */
#include "map/canvas.h"

#include <stdlib.h>
#include <string.h>
#ifdef CPUSLAB_HAS_PNG
#include <png.h>
#endif

static const struct colour border = {0xdd, 0xdd, 0xdd}, ink = {0x22, 0x22, 0x22}, axis = {0x88, 0x88, 0x88};

bool canvas_begin_svg(struct canvas *canvas, struct canvas_size size, FILE *to)
{
	*canvas = (struct canvas){.size = size, .svg = to};
	/* Its own letters are as wide as those of the PNG. */
	fprintf(to,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" height=\"%zu\" "
		"font-family=\"monospace\" font-size=\"10\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		size.width, size.height);
	return true;
}

bool canvas_begin_png(struct canvas *canvas, struct canvas_size size)
{
	*canvas = (struct canvas){.size = size};
	canvas->pixels = reallocarray(NULL, size.width * size.height, sizeof(*canvas->pixels));
	if (canvas->pixels)
		memset(canvas->pixels, 0xff, size.width * size.height * sizeof(*canvas->pixels));
	return canvas->pixels;
}

#ifdef CPUSLAB_HAS_PNG
static bool write_png(struct canvas *canvas, FILE *to, char message[static 64])
{
	png_image image = {
		.version = PNG_IMAGE_VERSION,
		.width = (png_uint_32)canvas->size.width,
		.height = (png_uint_32)canvas->size.height,
		.format = PNG_FORMAT_RGB,
	};

	_Static_assert(sizeof(struct colour) == 3, "a pixel");
	/* Not png_image_write_to_file: if it cannot write, it removes the file, whatever that was. */
	bool done = png_image_write_to_stdio(&image, to, 0, canvas->pixels, 0, NULL);

	if (!done)
		snprintf(message, 64, "%s", image.message);
	return done;
}

const char *canvas_lacks(void)
{
	return NULL;
}
#else
static bool write_png(struct canvas *canvas, FILE *to, char message[static 64])
{
	(void)canvas;
	(void)to;
	snprintf(message, 64, "built without libpng");
	return false;
}

const char *canvas_lacks(void)
{
	return "libpng";
}
#endif

bool canvas_end(struct canvas *canvas, FILE *to, char message[static 64])
{
	if (canvas->svg) {
		fputs("</svg>\n", canvas->svg);
		return true;
	}
	bool done = write_png(canvas, to, message);

	free(canvas->pixels);
	return done;
}

/* ---- what is drawn ------------------------------------------------------------------------------------- */

static void fill(struct canvas *canvas, size_t x, size_t y, size_t width, size_t height, struct colour colour)
{
	for (size_t row = y; row < y + height && row < canvas->size.height; row++)
		for (size_t column = x; column < x + width && column < canvas->size.width; column++)
			canvas->pixels[row * canvas->size.width + column] = colour;
}

static void print_escaped(FILE *to, const char *text)
{
	for (; *text; text++)
		if (*text == '&')
			fputs("&amp;", to);
		else if (*text == '<')
			fputs("&lt;", to);
		else
			fputc(*text, to);
}

void canvas_box(struct canvas *canvas, size_t x, size_t y, size_t side, struct colour colour,
		const char *tooltip)
{
	if (!canvas->svg) {
		fill(canvas, x, y, side, side, border);
		fill(canvas, x + 1, y + 1, side - 1, side - 1, colour);
		return;
	}
	fprintf(canvas->svg,
		"<rect x=\"%zu\" y=\"%zu\" width=\"%zu\" height=\"%zu\" stroke=\"#ddd\" "
		"fill=\"#%02x%02x%02x\">",
		x, y, side, side, colour.red, colour.green, colour.blue);
	if (tooltip) {
		fputs("<title>", canvas->svg);
		print_escaped(canvas->svg, tooltip);
		fputs("</title>", canvas->svg);
	}
	fputs("</rect>\n", canvas->svg);
}

void canvas_line(struct canvas *canvas, size_t x, size_t y, size_t length, bool down)
{
	if (canvas->svg)
		fprintf(canvas->svg,
			"<rect x=\"%zu\" y=\"%zu\" width=\"%zu\" height=\"%zu\" fill=\"#888\"/>\n", x, y,
			down ? 1 : length, down ? length : 1);
	else
		fill(canvas, x, y, down ? 1 : length, down ? length : 1, axis);
}

static void draw_letter(struct canvas *canvas, size_t x, size_t y, unsigned char letter)
{
	const uint8_t *rows = font[letter - FONT_FIRST];

	for (unsigned row = 0; row < FONT_HEIGHT; row++)
		for (unsigned column = 0; column < FONT_WIDTH; column++)
			if (rows[row] & 0x80 >> column)
				fill(canvas, x + column, y + row, 1, 1, ink);
}

void canvas_text(struct canvas *canvas, size_t x, size_t y, const char *text, bool bold)
{
	enum { BASELINE = 10 };

	if (canvas->svg) {
		fprintf(canvas->svg, "<text x=\"%zu\" y=\"%zu\"%s>", x, y + BASELINE,
			bold ? " font-weight=\"bold\"" : "");
		print_escaped(canvas->svg, text);
		fputs("</text>\n", canvas->svg);
		return;
	}
	for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
		/* One mark for a whole character of UTF-8. */
		if ((*at & 0xc0) == 0x80)
			continue;
		unsigned char letter = *at < FONT_FIRST || *at > FONT_LAST ? '?' : *at;

		draw_letter(canvas, x, y, letter);
		if (bold)
			draw_letter(canvas, x + 1, y, letter);
		x += FONT_WIDTH;
	}
}
