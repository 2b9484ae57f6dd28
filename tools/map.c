/* SPDX-License-Identifier: MIT */
/*
 * cpuslab map: the heap of a running process as a picture: its blocks of 2 MiB, and what of each is in use.
 */
#include "commands.h"
#include "inspect/bounds.h"
#include "inspect/census.h"
#include "map/picture.h"
#include "output.h"

#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	BLOCKS_MOST = 1 << 20, /* in a picture: 2 TiB */
	SVG_BLOCKS_MOST = 1 << 16,
	PAGES_AT_ONCE = CENSUS_PAGES_AT_ONCE
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
	      "  --svg=FILE  as a picture, which says what each cell is where the pointer is\n"
	      "  --png=FILE  as a picture\n"
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

	if (!target_read(target, target->at.page_entries.value, &map, sizeof(map)) ||
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

static void draw_text(const struct picture *picture, bool unicode)
{
	static const char *const blocks[] = {"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	static const char *const letters[] = {".", "1", "2", "3", "4", "5", "6", "7", "#"};
	const char *const *marks = unicode ? blocks : letters;

	puts("Block             In use Resident  32 KiB each: how much objects have, or '-' for what is not "
	     "resident");
	for (size_t b = 0; b < picture->blocks; b++) {
		const struct cell *cells = &picture->cells[b * CELLS];

		printf("%014lx  %6.1f%%  %6.1f%%  ", picture_address(picture, b), picture_used(picture, b),
		       picture_resident(picture, b));
		for (unsigned c = 0; c < CELLS; c++)
			fputs(!cells[c].resident ? "-" : marks[picture_fill(&cells[c])], stdout);
		putchar('\n');
	}
}

static bool draw_svg(const struct picture *picture, const char *file)
{
	struct output output;
	struct canvas canvas;
	char message[64];

	if (picture->blocks > SVG_BLOCKS_MOST) {
		fprintf(stderr,
			"cpuslab map: %s: a heap of %zu blocks: --svg draws up to %d, text and --png more\n",
			file, picture->blocks, SVG_BLOCKS_MOST);
		return false;
	}
	if (!output_begin(&output, "cpuslab map", file))
		return false;
	bool done = canvas_begin_svg(&canvas, picture_size(picture), output.to);

	picture_draw(picture, &canvas);
	done = canvas_end(&canvas, output.to, message) && done;
	return output_end(&output, done);
}

static bool draw_png(const struct picture *picture, const char *file)
{
	struct output output;
	struct canvas canvas;
	char message[64];

	if (canvas_lacks()) {
		fprintf(stderr,
			"cpuslab map: %s: this command was built without %s; --svg does not need it\n", file,
			canvas_lacks());
		return false;
	}
	if (!canvas_begin_png(&canvas, picture_size(picture))) {
		fprintf(stderr, "cpuslab map: %s: %s\n", file, strerror(errno));
		return false;
	}
	picture_draw(picture, &canvas);
	if (!output_begin(&output, "cpuslab map", file)) {
		free(canvas.pixels);
		return false;
	}
	bool done = canvas_end(&canvas, output.to, message);

	if (!done)
		fprintf(stderr, "cpuslab map: %s: %s\n", file, message);
	return output_end(&output, done);
}

int command_map(int argc, char **argv)
{
	const char *svg = NULL, *png = NULL;
	struct target target;
	struct census census;
	struct picture picture = {.census = &census, .target = &target};

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

	picture.residents_known = done && read_residents(&picture, &census, &target);
	for (size_t c = 0; done && !picture.residents_known && c < picture.blocks * CELLS; c++)
		picture.cells[c].resident = CELL_PAGES;
	bounds_done();
	if (done && !picture.residents_known)
		fputs("cpuslab map: the system does not say which pages are resident: all are drawn as if\n",
		      stderr);
	if (done && svg)
		done = draw_svg(&picture, svg);
	if (done && png)
		done = draw_png(&picture, png);
	if (done && !svg && !png)
		draw_text(&picture, strcmp(nl_langinfo(CODESET), "UTF-8") == 0);
	free(picture.cells);
	census_free(&census);
	target_detach(&target);
	return done ? 0 : 1;
}
