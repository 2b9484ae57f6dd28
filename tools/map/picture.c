/* SPDX-License-Identifier: MIT */
#include "map/picture.h"

#include <string.h>

unsigned picture_fill(const struct cell *cell)
{
	uint64_t used = cell->used + cell->pages[PAGE_IS_LARGE] * (uint64_t)CENSUS_PAGE;
	uint64_t steps = used * FILLS / (CELL_PAGES * CENSUS_PAGE);

	return steps > FILLS ? FILLS : used && !steps ? 1 : (unsigned)steps;
}

double picture_used(const struct picture *picture, size_t block)
{
	const struct cell *cells = &picture->cells[block * CELLS];
	uint64_t used = 0;

	for (unsigned c = 0; c < CELLS; c++)
		used += cells[c].used + cells[c].pages[PAGE_IS_LARGE] * (uint64_t)CENSUS_PAGE;
	return 100.0 * (double)used / (BLOCK_PAGES * CENSUS_PAGE);
}

double picture_resident(const struct picture *picture, size_t block)
{
	const struct cell *cells = &picture->cells[block * CELLS];
	unsigned resident = 0;

	for (unsigned c = 0; c < CELLS; c++)
		resident += cells[c].resident;
	return 100.0 * resident / BLOCK_PAGES;
}

uint64_t picture_address(const struct picture *picture, size_t block)
{
	return picture->census->heap_start + block * BLOCK_PAGES * CENSUS_PAGE;
}

/* Returns the kind of most of its pages. */
static enum kind kind_of(const struct cell *cell)
{
	enum kind kind = PAGE_IS_FREE;

	for (enum kind k = PAGE_IS_FREE; k < KINDS; k++)
		if (cell->pages[k] > cell->pages[kind])
			kind = k;
	return kind;
}

/* ---- colours ------------------------------------------------------------------------------------------- */

static const struct colour absent = {255, 255, 255}, empty = {204, 204, 204};

/* Slabs are blue, large objects orange; darker means fuller. */
static struct colour shade(enum kind kind, unsigned steps)
{
	unsigned light = 230 - 15 * steps;
	unsigned reach = (light > 127 ? 255 - light : light) * 7 / 10; /* of the strongest and weakest */
	uint8_t low = (uint8_t)(light - reach), middle = (uint8_t)light, high = (uint8_t)(light + reach);

	return kind == PAGE_IS_LARGE ? (struct colour){high, middle, low}
				     : (struct colour){low, middle, high};
}

static struct colour colour_of(const struct cell *cell)
{
	unsigned steps = picture_fill(cell);

	return !cell->resident ? absent : !steps ? empty : shade(kind_of(cell), steps);
}

/* ---- the picture --------------------------------------------------------------------------------------- */

/*
 * From the top: the title, the legend, the offsets in a block, and a row for each block, with its address and
 * how much of it is in use on the left.
 */
enum {
	MARGIN = 8,
	LINE = FONT_HEIGHT + 2,
	LEGEND_SIDE = 12,
	LEGEND_TEXT = MARGIN + FILLS * LEGEND_SIDE + 8,
	TITLE_TOP = MARGIN,
	LEGEND_TOP = TITLE_TOP + 2 * LINE + 6,
	LEGEND_LINES = 4,
	OFFSETS_TOP = LEGEND_TOP + LEGEND_LINES * LINE + 10,
	TICK = 4,
	TOP = OFFSETS_TOP + 2 * LINE + TICK,
	LABEL = 22, /* characters: "00012345678000  in use" */
	LEFT = MARGIN + LABEL * FONT_WIDTH + MARGIN,
	TEXT = 200 /* bytes */
};

/* Cells shrink where there are many. */
static size_t step_of(const struct picture *picture)
{
	return picture->blocks > 1000 ? 4 : 12;
}

static void make_titles(const struct picture *picture, char title[static TEXT], char subtitle[static TEXT])
{
	double used = 0, resident = 0;

	for (size_t b = 0; b < picture->blocks; b++) {
		used += picture_used(picture, b);
		resident += picture_resident(picture, b);
	}
	snprintf(title, TEXT, "Heap of process %d (%s)", (int)picture->target->pid, picture->target->name);
	snprintf(subtitle, TEXT, "%zu blocks of 2 MiB, cells of 32 KiB; %.0f%% in use, %.0f%% resident%s",
		 picture->blocks, picture->blocks ? used / (double)picture->blocks : 0,
		 picture->blocks ? resident / (double)picture->blocks : 0,
		 picture->residents_known ? "" : " at most: the system does not say");
}

static const char *const legend[LEGEND_LINES] = {
	"slabs: the darker, the more of the cell is in use by objects",
	"large objects: likewise",
	"resident, and nothing in use",
	"not resident",
};

/* Makes room for a line of text. */
static void fit(struct canvas_size *size, size_t x, const char *text)
{
	size_t right = x + strlen(text) * FONT_WIDTH + MARGIN;

	if (right > size->width)
		size->width = right;
}

struct canvas_size picture_size(const struct picture *picture)
{
	char title[TEXT], subtitle[TEXT];
	size_t step = step_of(picture);
	/* Half of the last offset stands beyond the cells. */
	struct canvas_size size = {LEFT + CELLS * step + 4 * FONT_WIDTH + MARGIN,
				   TOP + picture->blocks * step + 1 + MARGIN};

	make_titles(picture, title, subtitle);
	fit(&size, MARGIN + 1, title);
	fit(&size, MARGIN, subtitle);
	for (unsigned line = 0; line < LEGEND_LINES; line++)
		fit(&size, LEGEND_TEXT, legend[line]);
	return size;
}

static void draw_legend(struct canvas *canvas)
{
	static const enum kind kinds[] = {PAGE_IS_SLAB, PAGE_IS_LARGE};

	for (unsigned line = 0; line < LEGEND_LINES; line++) {
		size_t y = LEGEND_TOP + line * LINE;

		for (unsigned s = 1; line < 2 && s <= FILLS; s++)
			canvas_box(canvas, MARGIN + (s - 1) * LEGEND_SIDE, y, LEGEND_SIDE,
				   shade(kinds[line], s), NULL);
		if (line >= 2)
			canvas_box(canvas, MARGIN + (FILLS - 1) * LEGEND_SIDE, y, LEGEND_SIDE,
				   line == 2 ? empty : absent, NULL);
		canvas_text(canvas, LEGEND_TEXT, y, legend[line], false);
	}
}

/* Offsets in a block, each quarter of it; fewer where the cells are small. */
static void draw_offsets(struct canvas *canvas, size_t step)
{
	static const char *const texts[] = {"0", "512 KiB", "1 MiB", "1.5 MiB", "2 MiB"};

	canvas_text(canvas, LEFT, OFFSETS_TOP, "offset in the block", false);
	for (unsigned quarter = 0; quarter <= 4; quarter++) {
		size_t x = LEFT + quarter * CELLS / 4 * step, half = strlen(texts[quarter]) * FONT_WIDTH / 2;

		canvas_line(canvas, x, TOP - TICK, TICK, true);
		canvas_text(canvas, quarter ? x - half : x, OFFSETS_TOP + LINE, texts[quarter], false);
	}
	canvas_line(canvas, LEFT, TOP - 1, CELLS * step + 1, false);
	canvas_text(canvas, MARGIN, OFFSETS_TOP + LINE, "block", false);
	canvas_text(canvas, LEFT - MARGIN - strlen("in use") * FONT_WIDTH, OFFSETS_TOP + LINE, "in use",
		    false);
}

static void draw_block(const struct picture *picture, struct canvas *canvas, size_t block, size_t step)
{
	static const char *const kind_names[KINDS] = {"free", "large", "slab"};
	/* Of blocks lower than a line of text, one in so many has a label. */
	size_t labelled = step < FONT_HEIGHT - 2 ? (FONT_HEIGHT + step - 1) / step : 1;
	size_t y = TOP + block * step;
	char text[TEXT];

	if (block % labelled == 0) {
		snprintf(text, sizeof(text), "%014lx", picture_address(picture, block));
		canvas_text(canvas, MARGIN, y, text, false);
		int digits = snprintf(text, sizeof(text), "%.0f%%", picture_used(picture, block));

		canvas_text(canvas, LEFT - MARGIN - (size_t)digits * FONT_WIDTH, y, text, false);
	}
	for (unsigned c = 0; c < CELLS; c++) {
		const struct cell *cell = &picture->cells[block * CELLS + c];

		snprintf(text, sizeof(text), "%s, %u%% in use%s", kind_names[kind_of(cell)],
			 picture_fill(cell) * 100 / FILLS, cell->resident ? "" : ", not resident");
		canvas_box(canvas, LEFT + c * step, y, step, colour_of(cell), text);
	}
}

void picture_draw(const struct picture *picture, struct canvas *canvas)
{
	size_t step = step_of(picture);
	char title[TEXT], subtitle[TEXT];

	make_titles(picture, title, subtitle);
	canvas_text(canvas, MARGIN, TITLE_TOP, title, true);
	canvas_text(canvas, MARGIN, TITLE_TOP + LINE, subtitle, false);
	draw_legend(canvas);
	draw_offsets(canvas, step);
	for (size_t b = 0; b < picture->blocks; b++)
		draw_block(picture, canvas, b, step);
	canvas_line(canvas, LEFT, TOP + picture->blocks * step, CELLS * step + 1, false);
	canvas_line(canvas, LEFT + CELLS * step, TOP, picture->blocks * step + 1, true);
}
