/* SPDX-License-Identifier: MIT */
#include "top/screen.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_LINES = 12 };

/* If cache names would not fit after all columns, one column that Enter shows as well is left out. */
static bool is_narrow(const struct screen *screen)
{
	return screen->columns < 100;
}

__attribute__((format(printf, 3, 4))) static void add(struct screen *screen, enum style style,
						      const char *format, ...)
{
	va_list arguments;

	if (screen->count == SCREEN_LINES)
		return;
	struct line *line = &screen->lines[screen->count++];

	va_start(arguments, format);
	vsnprintf(line->text, sizeof(line->text), format, arguments);
	va_end(arguments);
	line->style = style;
}

static double per_cent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

/* As slabtop prints sizes: kilobytes with two digits. */
static double kilobytes(uint64_t bytes)
{
	return (double)bytes / 1024;
}

/* ---- history and rates --------------------------------------------------------------------------------- */

void history_add(struct history *history, uint64_t value)
{
	if (history->count == HISTORY) {
		memmove(history->values, history->values + 1, (HISTORY - 1) * sizeof(*history->values));
		history->count--;
	}
	history->values[history->count++] = value;
}

static double seconds_between(const struct timespec *from, const struct timespec *to)
{
	return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) / 1e9;
}

static uint64_t since(uint64_t before, uint64_t now)
{
	return now > before ? now - before : 0;
}

/*
 * Hits of the fast path are not counted, so rates have bounds alone.  Each miss is a call, counted where it
 * happens: that many calls there were at least, during all of the time from one census to the other.
 */
static struct rate rate_between(const struct census_cache *before, const struct census_cache *now,
				double seconds)
{
	return (struct rate){
		.number = now->number,
		.allocs = (double)since(before->alloc_misses, now->alloc_misses) / seconds,
		.frees = (double)since(before->free_misses, now->free_misses) / seconds,
	};
}

/*
 * How many calls there can have been at most: a call takes 20 instructions or more, and a pair of hits 6.5
 * cycles where it was measured to be fastest (docs/benchmarks), so no CPU has time for more than two calls
 * in a nanosecond.
 */
static double most_calls(const struct census *before, const struct census *now)
{
	const double calls_per_second_of_cpu = 2e9;
	double seconds = seconds_between(&before->until, &now->when);

	if (!before->cpu_known || !now->cpu_known || seconds <= 0)
		return 0;
	return seconds_between(&before->cpu_when, &now->cpu_until) * calls_per_second_of_cpu / seconds;
}

void rates_compute(struct rates *rates, const struct census *before, const struct census *now)
{
	double seconds = seconds_between(&before->when, &now->until);
	struct rate *of = reallocarray(rates->of, now->cache_count + 1, sizeof(*of));

	if (!of)
		return;
	*rates = (struct rates){.of = of};
	if (seconds <= 0)
		return;
	/* Both are sorted by number. */
	for (size_t b = 0, n = 0; n < now->cache_count; n++) {
		while (b < before->cache_count && before->caches[b].number < now->caches[n].number)
			b++;
		if (b == before->cache_count || before->caches[b].number != now->caches[n].number ||
		    before->caches[b].created > now->caches[n].created)
			continue;
		struct rate rate = rate_between(&before->caches[b], &now->caches[n], seconds);

		rates->of[rates->count++] = rate;
		rates->allocs += rate.allocs;
		rates->frees += rate.frees;
	}
	rates->allocs += (double)since(before->large_allocs, now->large_allocs) / seconds;
	rates->frees += (double)since(before->large_frees, now->large_frees) / seconds;
	rates->most = most_calls(before, now);
}

const struct rate *rates_of(const struct rates *rates, uint32_t number)
{
	static const struct rate none;
	size_t low = 0, high = rates->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (rates->of[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low < rates->count && rates->of[low].number == number ? &rates->of[low] : &none;
}

/* ---- pictures in text ---------------------------------------------------------------------------------- */

/* A bar of `width` cells: used, resident but unused, and the rest. */
static void draw_bar(const struct screen *screen, char *text, uint64_t used, uint64_t resident,
		     uint64_t whole, unsigned width)
{
	const char *marks[] = {screen->unicode ? "█" : "#", screen->unicode ? "▒" : "+",
			       screen->unicode ? "·" : "."};

	if (resident < used)
		resident = used;
	if (whole < resident)
		whole = resident;
	*text = '\0';
	for (unsigned cell = 0; cell < width; cell++) {
		uint64_t at = whole ? whole / width * cell + whole / width / 2 : 0;

		text = stpcpy(text, whole && at < used       ? marks[0]
				    : whole && at < resident ? marks[1]
							     : marks[2]);
	}
}

/* The latest values, scaled from their smallest to their largest. */
static void draw_sparkline(const struct screen *screen, char *text, const struct history *history,
			   unsigned width)
{
	static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	static const char *const letters[] = {"_", ".", ",", "-", "~", "=", "+", "#"};
	uint64_t low = UINT64_MAX, high = 0;
	unsigned from = history->count > width ? history->count - width : 0;

	*text = '\0';
	for (unsigned i = from; i < history->count; i++) {
		low = history->values[i] < low ? history->values[i] : low;
		high = history->values[i] > high ? history->values[i] : high;
	}
	for (unsigned i = from; i < history->count; i++) {
		uint64_t step = high > low ? (history->values[i] - low) * 7 / (high - low) : 0;

		text = stpcpy(text, screen->unicode ? blocks[step] : letters[step]);
	}
}

/* ---- the overview -------------------------------------------------------------------------------------- */

static void add_head(struct screen *screen, const struct overview *overview)
{
	const struct census *census = overview->view->census;
	const struct target *target = overview->view->target;
	uint64_t objects = 0, live = 0, slabs = 0, active_slabs = 0, caches = 0, active_caches = 0;
	uint64_t smallest = UINT64_MAX, largest = 0, sizes = 0;
	char bar[SCREEN_COLUMNS * 4], spark[SCREEN_COLUMNS * 4], blocks[40] = "", most[64] = "", number[24];

	for (size_t c = 0; c < census->cache_count; c++) {
		const struct census_cache *cache = &census->caches[c];

		objects += cache->objects;
		live += cache->live;
		slabs += cache->slabs;
		active_slabs += cache->slabs - cache->empty_slabs;
		caches++;
		active_caches += cache->live != 0;
		sizes += cache->objects * cache->size;
		if (cache->slabs) {
			smallest = cache->size < smallest ? cache->size : smallest;
			largest = cache->size > largest ? cache->size : largest;
		}
	}
	uint64_t used = census->live_bytes + census->large_pages * CENSUS_PAGE + census->huge_bytes;
	uint64_t resident = census->resident + census->resident_metadata + census->resident_huge;

	add(screen, STYLE_TITLE, "cpuslab top - %s, process %d, cpuslab %.31s, vCPUs: %u (%s)%s",
	    target->name, (int)target->pid, target->root.release, census->vcpus, census->mode,
	    census->background ? ", background thread" : "");
	add(screen, STYLE_PLAIN, " Active / Total Objects (%% used)    : %lu / %lu (%.1f%%)", live, objects,
	    per_cent(live, objects));
	add(screen, STYLE_PLAIN, " Active / Total Slabs (%% used)      : %lu / %lu (%.1f%%)", active_slabs,
	    slabs, per_cent(active_slabs, slabs));
	add(screen, STYLE_PLAIN, " Active / Total Caches (%% used)     : %lu / %lu (%.1f%%)", active_caches,
	    caches, per_cent(active_caches, caches));
	add(screen, STYLE_PLAIN, " Active / Total Size (%% used)       : %.2fK / %.2fK (%.1f%%)",
	    kilobytes(census->live_bytes), kilobytes(census->slab_bytes),
	    per_cent(census->live_bytes, census->slab_bytes));
	add(screen, STYLE_PLAIN, " Minimum / Average / Maximum Object : %.2fK / %.2fK / %.2fK",
	    smallest == UINT64_MAX ? 0 : kilobytes(smallest),
	    objects ? kilobytes(sizes) / (double)objects : 0, kilobytes(largest));
	draw_bar(screen, bar, used, resident, census_mapped(census), is_narrow(screen) ? 15 : 30);
	if (census->residents_known)
		add(screen, STYLE_PLAIN, " Used / Resident / Mapped : %.0fK / %.0fK / %.0fK [%s] %.0f%% lost",
		    kilobytes(used), kilobytes(resident), kilobytes(census_mapped(census)), bar,
		    resident > used ? per_cent(resident - used, resident) : 0.0);
	else
		add(screen, STYLE_PLAIN, " Used / Resident / Mapped : %.0fK / unknown / %.0fK",
		    kilobytes(used), kilobytes(census_mapped(census)));
	add(screen, STYLE_PLAIN, " Hoarded : vCPUs %.0fK, depots %.0fK, slabs %.0fK   Metadata : %.0fK",
	    kilobytes(census->vcpu_bytes), kilobytes(census->depot_bytes), kilobytes(census->free_bytes),
	    kilobytes(census->metadata_used));
	if (!is_narrow(screen))
		snprintf(blocks, sizeof(blocks), "%lu blocks of 2M, ", (census->heap_pages + 511) / 512);
	add(screen, STYLE_PLAIN,
	    " Pages   : %sdirty %.0fK, returned %.0fK, large %.0fK, mappings %.0fK (+%.0fK cached)", blocks,
	    kilobytes(census->dirty_pages * CENSUS_PAGE), kilobytes(census->purged),
	    kilobytes(census->large_pages * CENSUS_PAGE), kilobytes(census->huge_bytes),
	    kilobytes(census->huge_cached));
	unsigned width = screen->columns > 84 ? screen->columns - 74 : 10;

	draw_sparkline(screen, spark, overview->used, width > HISTORY / 2 ? HISTORY / 2 : width);
	/* The format rounds down, by a tenth at most. */
	if (overview->rates->most > 0)
		snprintf(most, sizeof(most), ", <= %s calls/s",
			 format_number(number, (uint64_t)(overview->rates->most * 1.1)));
	add(screen, STYLE_PLAIN, " Rates   : >= %.0f allocs/s, >= %.0f frees/s%s   Used : %s",
	    overview->rates->allocs, overview->rates->frees, most, spark);
	add(screen, STYLE_PLAIN, "%s", "");
	add(screen, STYLE_HEAD, "  OBJS ACTIVE  USE OBJ SIZE  SLABS%s CACHE SIZE MISSES/S  HOARD NAME",
	    is_narrow(screen) ? "" : " OBJ/SLAB");
}

static void add_row(struct screen *screen, const struct overview *overview, size_t row)
{
	const struct census_cache *cache = &overview->view->census->caches[overview->view->order[row]];
	const struct rate *rate = rates_of(overview->rates, cache->number);
	char per_slab[16] = "";

	if (!is_narrow(screen))
		snprintf(per_slab, sizeof(per_slab), " %8u", cache->per_slab);
	add(screen,
	    row == overview->chosen ? STYLE_CHOSEN
	    : cache->live           ? STYLE_PLAIN
				    : STYLE_FAINT,
	    "%6lu %6lu %3.0f%% %7.2fK %6lu%s %9.0fK %8.0f %6lu %s", cache->objects, cache->live,
	    per_cent(cache->live, cache->objects), kilobytes(cache->size), cache->slabs, per_slab,
	    kilobytes(census_space(cache)), rate->allocs + rate->frees, cache->in_vcpus + cache->in_depot,
	    cache->name);
}

size_t screen_overview_rows(const struct screen *screen)
{
	return screen->rows > HEAD_LINES + 1 ? screen->rows - HEAD_LINES - 1 : 1;
}

void screen_overview(struct screen *screen, const struct overview *overview)
{
	size_t rows = screen_overview_rows(screen);

	screen->count = 0;
	add_head(screen, overview);
	for (size_t i = 0; i < rows && overview->first + i < overview->view->count; i++)
		add_row(screen, overview, overview->first + i);
	if (overview->notice) {
		while (screen->count + 1 < screen->rows && screen->count < SCREEN_LINES)
			add(screen, STYLE_PLAIN, "%s", "");
		add(screen, STYLE_WARNING, "%s", overview->notice);
	}
}

/* ---- one cache, all processes -------------------------------------------------------------------------- */

static void add_text(struct screen *screen, char *text)
{
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		add(screen, STYLE_PLAIN, "%s", line);
}

void screen_cache(struct screen *screen, const struct overview *overview, size_t index,
		  const struct history *live)
{
	struct view one = *overview->view;
	const struct census_cache *cache = &one.census->caches[one.order[index]];
	const struct rate *rate = rates_of(overview->rates, cache->number);
	char spark[SCREEN_COLUMNS * 4], *text = NULL;
	size_t length = 0;
	FILE *memory = open_memstream(&text, &length);

	screen->count = 0;
	add(screen, STYLE_TITLE, "cpuslab top - %s, process %d, cache %s   (Esc: back)", one.target->name,
	    (int)one.target->pid, cache->name);
	if (memory) {
		one.order += index;
		one.count = 1;
		view_print_report(memory, &one);
		fclose(memory);
		add_text(screen, text);
		free(text);
	}
	draw_sparkline(screen, spark, live, 60);
	add(screen, STYLE_PLAIN, "%s", "");
	add(screen, STYLE_PLAIN, ">= %.0f allocs/s, >= %.0f frees/s   In use : %s", rate->allocs, rate->frees,
	    spark);
	if (overview->notice)
		add(screen, STYLE_WARNING, "%s", overview->notice);
}

void screen_picker(struct screen *screen, const struct process *processes, size_t count, size_t chosen)
{
	screen->count = 0;
	add(screen, STYLE_TITLE,
	    "cpuslab top - processes on cpuslab   (Enter: look at it, Esc: back, q: quit)");
	add(screen, STYLE_PLAIN, "%s", "");
	add(screen, STYLE_HEAD, "     PID       LIVE     MAPPED CACHES NAME");
	/* As many as fit; if they do not, the list ends with the chosen one. */
	size_t rows = screen->rows > screen->count ? screen->rows - screen->count : 1;

	for (size_t i = chosen < rows ? 0 : chosen - rows + 1; i < count; i++)
		add(screen, i == chosen ? STYLE_CHOSEN : STYLE_PLAIN, "%c%7d %9.0fK %9.0fK %6lu %s",
		    i == chosen ? '>' : ' ', (int)processes[i].pid, kilobytes(processes[i].live),
		    kilobytes(processes[i].mapped), processes[i].caches, processes[i].name);
	if (!count)
		add(screen, STYLE_WARNING, "none that may be read");
}
