/* SPDX-License-Identifier: MIT */
/*
 * cpuslab map: the heap of a running process as a picture: its blocks of 2 MiB, and what of each is in use.
 */
#include "commands.h"
#include "inspect/bounds.h"
#include "inspect/census.h"
#include "output.h"

#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef CPUSLAB_HAS_PNG
#include <png.h>
#endif

enum {
	BLOCK_PAGES = 512,
	CELLS = 64,
	CELL_PAGES = BLOCK_PAGES / CELLS,
	BLOCKS_MOST = 1 << 20, /* in a picture: 2 TiB */
	SVG_BLOCKS_MOST = 1 << 16,
	PAGES_AT_ONCE = CENSUS_PAGES_AT_ONCE
};

/* A page's kind, from the page map; see src/page/page.h. */
enum kind { PAGE_IS_FREE, PAGE_IS_LARGE, PAGE_IS_SLAB, KINDS };
static const char *const kind_names[KINDS] = {"free", "large", "slab"};

/* An eighth of a block in a row of eight: pages by kind, bytes of slabs in use by objects, resident pages. */
struct cell {
	uint8_t pages[KINDS];
	uint8_t resident;
	uint32_t used; /* bytes */
};

struct picture {
	size_t blocks;
	struct cell *cells; /* CELLS for each block */
};

static const struct option options[] = {
	{"svg", required_argument, NULL, 's'},
	{"png", required_argument, NULL, 'p'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int usage(FILE *to)
{
	fputs("usage: cpuslab map [--svg=FILE] [--png=FILE] [PID|NAME]\n"
	      "Draws the heap: a row for each block of 2 MiB, a cell for each 32 KiB of it.\n"
	      "  --svg=FILE  as a picture with addresses and what each cell is\n"
	      "  --png=FILE  as a picture of the cells alone\n"
	      "FILE may be -, standard output.\n",
	      to);
	return to == stdout ? 0 : 2;
}

/* ---- what is where ------------------------------------------------------------------------------------- */

/* Reads the page map; a large run has entries at both ends only, so its length tells what lies between. */
static bool read_kinds(struct picture *picture, const struct census *census, const struct target *target)
{
	uint64_t map, runs, first = census->heap_start / CENSUS_PAGE, large = 0;
	uint16_t ids[PAGES_AT_ONCE];
	char regions[1024];

	if (!target_read(target, target->at.page_front.value + target->at.front_map.value, &map,
			 sizeof(map)) ||
	    target->at.page_regions.size > sizeof(regions) ||
	    !target_read(target, target->at.page_regions.value, regions, target->at.page_regions.size))
		return false;
	runs = target_member(regions + 3 * target->at.region.size, &target->at.region_base);
	for (uint64_t page = 0; page < census->heap_pages; page += PAGES_AT_ONCE) {
		uint64_t count = census->heap_pages - page;

		count = count < PAGES_AT_ONCE ? count : PAGES_AT_ONCE;
		if (!target_read(target, map + (first + page) * sizeof(*ids), ids, count * sizeof(*ids)))
			return false;
		for (uint64_t i = 0; i < count; i++) {
			struct cell *cell = &picture->cells[(page + i) / CELL_PAGES];
			uint32_t pages;

			if (ids[i] == target->at.page_id_large.value &&
			    target_read(target,
					runs + (page + i) * target->at.run.size + target->at.run_pages.value,
					&pages, sizeof(pages)))
				large = page + i + pages;
			cell->pages[page + i < large                          ? PAGE_IS_LARGE
				    : ids[i] >= target->at.page_id_slab.value ? PAGE_IS_SLAB
									      : PAGE_IS_FREE]++;
		}
	}
	return true;
}

/* Adds what the objects of each slab use, spread evenly over its pages. */
static bool read_slabs(struct picture *picture, const struct census *census, const struct target *target)
{
	static struct census_slab slabs[PAGES_AT_ONCE];

	for (uint64_t page = 0; page < census->heap_pages; page += PAGES_AT_ONCE) {
		uint64_t count = census->heap_pages - page;

		count = count < PAGES_AT_ONCE ? count : PAGES_AT_ONCE;
		if (!census_read_slabs(census, target, page, count, slabs))
			return false;
		for (uint64_t i = 0; i < count; i++) {
			const struct census_cache *cache = slabs[i].cache;

			if (cache)
				picture->cells[(page + i) / CELL_PAGES].used +=
					slabs[i].in_use * cache->size / cache->pages_per_slab;
		}
	}
	return true;
}

/* Asks the kernel which pages are resident. */
static bool read_residents(struct picture *picture, const struct census *census, const struct target *target)
{
	static uint64_t entries[PAGES_AT_ONCE];
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)target->thread);
	FILE *pagemap = fopen(path, "re");

	if (!pagemap)
		return false;
	bool whole = fseek(pagemap, (long)(census->heap_start / CENSUS_PAGE * 8), SEEK_SET) == 0;

	for (uint64_t page = 0; whole && page < census->heap_pages; page += PAGES_AT_ONCE) {
		uint64_t count = census->heap_pages - page;

		count = count < PAGES_AT_ONCE ? count : PAGES_AT_ONCE;
		whole = fread(entries, 8, count, pagemap) == count;
		for (uint64_t i = 0; whole && i < count; i++)
			picture->cells[(page + i) / CELL_PAGES].resident += entries[i] >> 63 ? 1 : 0;
	}
	fclose(pagemap);
	return whole;
}

/* ---- drawing ------------------------------------------------------------------------------------------- */

/* Returns 0 (nothing in use) to 8 (all in use). */
static unsigned fill_of(const struct cell *cell)
{
	uint64_t used = cell->used + cell->pages[PAGE_IS_LARGE] * (uint64_t)CENSUS_PAGE;
	uint64_t eighths = used * 8 / (CELL_PAGES * CENSUS_PAGE);

	return eighths > 8 ? 8 : used && !eighths ? 1 : (unsigned)eighths;
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

static double block_fill(const struct cell *cells)
{
	uint64_t used = 0;

	for (unsigned c = 0; c < CELLS; c++)
		used += cells[c].used + cells[c].pages[PAGE_IS_LARGE] * (uint64_t)CENSUS_PAGE;
	return 100.0 * (double)used / (BLOCK_PAGES * CENSUS_PAGE);
}

/* Slabs are blue, large objects orange; darker means fuller. */
struct colour {
	uint8_t red, green, blue;
};

static struct colour colour_of(const struct cell *cell)
{
	unsigned fill = fill_of(cell), light = 230 - 15 * fill;
	unsigned reach = (light > 127 ? 255 - light : light) * 7 / 10; /* of the strongest and weakest */
	uint8_t low = (uint8_t)(light - reach), middle = (uint8_t)light, high = (uint8_t)(light + reach);

	if (!cell->resident)
		return (struct colour){255, 255, 255};
	if (!fill)
		return (struct colour){204, 204, 204};
	return kind_of(cell) == PAGE_IS_LARGE ? (struct colour){high, middle, low}
					      : (struct colour){low, middle, high};
}

static void draw_text(const struct picture *picture, const struct census *census, bool unicode)
{
	static const char *const blocks[] = {"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	static const char *const letters[] = {".", "1", "2", "3", "4", "5", "6", "7", "#"};
	const char *const *marks = unicode ? blocks : letters;

	puts("Block             In use Resident  32 KiB each: how much objects have, or '-' for what is not "
	     "resident");
	for (size_t b = 0; b < picture->blocks; b++) {
		const struct cell *cells = &picture->cells[b * CELLS];
		unsigned resident = 0;

		for (unsigned c = 0; c < CELLS; c++)
			resident += cells[c].resident;
		printf("%014lx  %6.1f%%  %6.1f%%  ", census->heap_start + b * BLOCK_PAGES * CENSUS_PAGE,
		       block_fill(cells), 100.0 * resident / BLOCK_PAGES);
		for (unsigned c = 0; c < CELLS; c++)
			fputs(!cells[c].resident ? "-" : marks[fill_of(&cells[c])], stdout);
		putchar('\n');
	}
}

static bool draw_svg(const struct picture *picture, const struct census *census, const struct target *target,
		     const char *file)
{
	enum { SIDE = 10, LEFT = 130, TOP = 50 };
	if (picture->blocks > SVG_BLOCKS_MOST) {
		fprintf(stderr,
			"cpuslab map: %s: a heap of %zu blocks: --svg draws up to %d, text and --png more\n",
			file, picture->blocks, SVG_BLOCKS_MOST);
		return false;
	}
	struct output output;

	if (!output_begin(&output, "cpuslab map", file))
		return false;
	FILE *to = output.to;

	fprintf(to,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%zu\" "
		"font-family=\"monospace\" font-size=\"10\">\n"
		"<text x=\"4\" y=\"16\" font-size=\"13\">Heap of process %d: blocks of 2 MiB, cells of 32 "
		"KiB</text>\n"
		"<text x=\"4\" y=\"34\">blue: slabs, orange: large objects, darker: more in use; "
		"grey: resident and free; white: not resident</text>\n",
		LEFT + CELLS * SIDE + 10, TOP + picture->blocks * (SIDE + 2) + 10, (int)target->pid);
	for (size_t b = 0; b < picture->blocks; b++) {
		size_t y = TOP + b * (SIDE + 2);

		fprintf(to, "<text x=\"4\" y=\"%zu\">%012lx %3.0f%%</text>\n", y + 9,
			census->heap_start + b * BLOCK_PAGES * CENSUS_PAGE,
			block_fill(&picture->cells[b * CELLS]));
		for (unsigned c = 0; c < CELLS; c++) {
			const struct cell *cell = &picture->cells[b * CELLS + c];
			struct colour colour = colour_of(cell);

			fprintf(to,
				"<rect x=\"%u\" y=\"%zu\" width=\"%d\" height=\"%d\" stroke=\"#ddd\" "
				"fill=\"#%02x%02x%02x\"><title>%s, %u%% in use</title></rect>\n",
				LEFT + c * SIDE, y, SIDE, SIDE, colour.red, colour.green, colour.blue,
				kind_names[kind_of(cell)], fill_of(cell) * 100 / 8);
		}
	}
	fputs("</svg>\n", to);
	return output_end(&output, true);
}

#ifdef CPUSLAB_HAS_PNG
/* A cell is a square with a line of background below and beside it; squares shrink where there are many. */
static bool draw_png(const struct picture *picture, const char *file)
{
	const size_t side = picture->blocks > 1000 ? 3 : 10, step = side + 1;
	png_image image = {
		.version = PNG_IMAGE_VERSION,
		.width = (png_uint_32)(CELLS * step + 1),
		.height = (png_uint_32)(picture->blocks * step + 1),
		.format = PNG_FORMAT_RGB,
	};
	struct colour *pixels = malloc(PNG_IMAGE_SIZE(image));
	struct output output;

	_Static_assert(sizeof(struct colour) == 3, "a pixel");
	if (!pixels) {
		fprintf(stderr, "cpuslab map: %s: %s\n", file, strerror(errno));
		return false;
	}
	memset(pixels, 0xdd, PNG_IMAGE_SIZE(image));
	for (size_t y = 0; y < picture->blocks * step; y++)
		for (size_t x = 0; x < CELLS * step; x++)
			if (x % step && y % step)
				pixels[y * image.width + x] =
					colour_of(&picture->cells[y / step * CELLS + x / step]);
	bool done = output_begin(&output, "cpuslab map", file);

	if (done) {
		/* Not png_image_write_to_file: if it cannot write, it removes the file, whatever that was. */
		done = png_image_write_to_stdio(&image, output.to, 0, pixels, 0, NULL);
		if (!done)
			fprintf(stderr, "cpuslab map: %s: %s\n", file, image.message);
		done = output_end(&output, done);
	}
	free(pixels);
	return done;
}
#else
static bool draw_png(const struct picture *picture, const char *file)
{
	(void)picture;
	fprintf(stderr, "cpuslab map: %s: this command was built without libpng; --svg does not need it\n",
		file);
	return false;
}
#endif

int command_map(int argc, char **argv)
{
	const char *svg = NULL, *png = NULL;
	struct target target;
	struct census census;
	struct picture picture;

	setlocale(LC_CTYPE, "");
	for (int option; (option = getopt_long(argc, argv, "s:p:h", options, NULL)) != -1;)
		switch (option) {
		case 's':
			svg = optarg;
			break;
		case 'p':
			png = optarg;
			break;
		case 'h':
			return usage(stdout);
		default:
			return usage(stderr);
		}
	if (argc - optind > 1)
		return usage(stderr);
	if (!output_check(argv[0], svg) || !output_check(argv[0], png))
		return 1;
	bounds_begin(argv[0], NULL);
	if (!census_open(&census, &target, argv[0], argv[optind]))
		return 1;
	bounds_look(target.pid);
	picture.blocks = census.heap_pages / BLOCK_PAGES + (census.heap_pages % BLOCK_PAGES != 0);
	if (picture.blocks > BLOCKS_MOST)
		bounds_no_room();
	picture.cells = calloc(picture.blocks * CELLS + 1, sizeof(*picture.cells));
	if (!picture.cells)
		bounds_no_room();
	bool done = read_kinds(&picture, &census, &target) && read_slabs(&picture, &census, &target);

	if (!done)
		fprintf(stderr, "cpuslab map: process %d: %s\n", (int)target.pid,
			target_check(&target) == TARGET_READY ? "its memory cannot be made sense of"
							      : target.trouble);

	if (done && !read_residents(&picture, &census, &target))
		for (size_t c = 0; c < picture.blocks * CELLS; c++)
			picture.cells[c].resident = CELL_PAGES; /* unknown: assume that all are resident */
	bounds_done();
	if (done && svg)
		done = draw_svg(&picture, &census, &target, svg);
	if (done && png)
		done = draw_png(&picture, png);
	if (done && !svg && !png)
		draw_text(&picture, &census, strcmp(nl_langinfo(CODESET), "UTF-8") == 0);
	free(picture.cells);
	census_free(&census);
	target_detach(&target);
	return done ? 0 : 1;
}
