/* SPDX-License-Identifier: MIT */
/* map/picture: what of a heap is in use, block by block, and how it is drawn as SVG or PNG. */
#ifndef CPUSLAB_TOOLS_PICTURE_H
#define CPUSLAB_TOOLS_PICTURE_H

#include "inspect/census.h"
#include "map/canvas.h"

enum {
	BLOCK_PAGES = 512,
	CELLS = 64,
	CELL_PAGES = BLOCK_PAGES / CELLS,
	FILLS = 8 /* steps from nothing in use to all */
};

/* A page's kind, from the page map; see src/page/page.h. */
enum kind { PAGE_IS_FREE, PAGE_IS_LARGE, PAGE_IS_SLAB, KINDS };

/* An eighth of a block in a row of eight: pages by kind, bytes of slabs in use by objects, resident pages. */
struct cell {
	uint8_t pages[KINDS];
	uint8_t resident;
	uint32_t used; /* bytes */
};

struct picture {
	const struct census *census;
	const struct target *target;
	size_t blocks;
	bool residents_known; /* else all pages count as resident */
	struct cell *cells;   /* CELLS for each block */
};

/* Returns 0 (nothing in use) to FILLS (all in use). */
unsigned picture_fill(const struct cell *cell);
/* Returns how much of a block is in use, or resident, in per cent. */
double picture_used(const struct picture *picture, size_t block);
double picture_resident(const struct picture *picture, size_t block);
/* Returns the address at which a block begins. */
uint64_t picture_address(const struct picture *picture, size_t block);

/* Draws title, axes, cells and legend. */
struct canvas_size picture_size(const struct picture *picture);
void picture_draw(const struct picture *picture, struct canvas *canvas);

#endif
