/* SPDX-License-Identifier: MIT */
/* The tables of the kernel's slabinfo tool (tools/mm/slabinfo.c), for a process on cpuslab. */
#include "inspect/view.h"
#include "inspect/bounds.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

const char *format_number(char text[static 24], uint64_t number)
{
	static const char units[] = "KMGTPE";
	uint64_t whole = number, tenth = 0;
	int unit = -1;

	while (whole >= 1000 && unit < 5) {
		tenth = whole % 1000 / 100;
		whole /= 1000;
		unit++;
	}
	if (unit < 0)
		snprintf(text, 24, "%lu", whole);
	else if (whole < 100)
		snprintf(text, 24, "%lu.%lu%c", whole, tenth, units[unit]);
	else
		snprintf(text, 24, "%lu%c", whole, units[unit]);
	return text;
}

/* The kernel's slabs have 2^order pages; ours have any number: the order that would hold one. */
static unsigned order_of(const struct census_cache *cache)
{
	unsigned order = 0;

	while (1ul << order < cache->pages_per_slab)
		order++;
	return order;
}

/*
 * As in the kernel's tool: '*' shares its memory, 'A' aligned to cache lines; and here 't' for memory that
 * keeps its type, 'c' for a constructor, 'm' for a class of malloc, 'l' for the linked engine.
 */
static const char *flags_of(const struct census_cache *cache, char text[static 8])
{
	char *end = text;

	if (cache->aliases)
		*end++ = '*';
	if (!cache->owner)
		*end++ = 'm';
	if (cache->owner && cache->size % 64 == 0 && cache->object_size < cache->size)
		*end++ = 'A';
	if (cache->linked)
		*end++ = 'l';
	if (cache->constructed)
		*end++ = 'c';
	if (cache->type_stable)
		*end++ = 't';
	*end = '\0';
	return text;
}

static uint64_t per_cent(uint64_t part, uint64_t whole)
{
	return whole ? part * 100 / whole : 100;
}

/* Counts vCPUs' loaded and spare magazines; the kernel's column counts the slabs that CPUs hold. */
static unsigned vcpu_magazines(const struct view *view, size_t index)
{
	unsigned magazines = 0;

	for (uint32_t v = 0; v < view->census->vcpus; v++) {
		const struct census_cell *cell = &view->census->cells[index * view->census->vcpus + v];

		magazines += (cell->loaded != 0) + (cell->spare != 0);
	}
	return magazines;
}

void view_print_table(FILE *to, const struct view *view, size_t lines, bool bytes)
{
	fputs("Name                   Objects Objsize           Space Slabs/Part/Cpu  O/S O %Fr %Ef Flg\n",
	      to);
	for (size_t i = 0; i < view->count && (!lines || i < lines); i++) {
		size_t index = view->order[i];
		const struct census_cache *cache = &view->census->caches[index];
		char space[24], slabs[64], flags[8];

		if (bytes)
			snprintf(space, sizeof(space), "%lu", census_space(cache));
		else
			format_number(space, census_space(cache));
		snprintf(slabs, sizeof(slabs), "%lu/%lu/%u", cache->slabs, census_partial(cache),
			 vcpu_magazines(view, index));
		fprintf(to, "%-21s %8lu %7u %15s %14s %4u %1u %3lu %3lu %s\n", cache->name, cache->live,
			cache->object_size, space, slabs, cache->per_slab, order_of(cache),
			per_cent(census_partial(cache), cache->slabs),
			per_cent(cache->live * cache->object_size, census_space(cache)),
			flags_of(cache, flags));
	}
}

void view_print_activity(FILE *to, const struct view *view, size_t lines)
{
	fputs("Name                   Objects   AllocMiss    FreeMiss     Refills      Drains  SlabsNew "
	      "SlabsFree       Locks\n",
	      to);
	for (size_t i = 0; i < view->count && (!lines || i < lines); i++) {
		const struct census_cache *cache = &view->census->caches[view->order[i]];

		fprintf(to, "%-21s %8lu %11lu %11lu %11lu %11lu %9lu %9lu %11lu\n", cache->name, cache->live,
			cache->alloc_misses, cache->free_misses, cache->refills, cache->drains,
			cache->created, cache->freed, cache->locks);
	}
}

void view_print_aliases(FILE *to, const struct view *view)
{
	const struct census *census = view->census;

	for (size_t i = 0; i < view->count; i++) {
		const struct census_cache *cache = &census->caches[view->order[i]];

		if (!cache->aliases)
			continue;
		fprintf(to, "%-21s <-", cache->name);
		for (size_t h = 0; h < cache->named; h++)
			fprintf(to, " %s", census->handles[cache->first_handle + h].name);
		fputc('\n', to);
	}
}

/* ---- totals -------------------------------------------------------------------------------------------- */

static void print_bytes(FILE *to, const char *name, uint64_t bytes, const char *text)
{
	char number[24];

	fprintf(to, "%-12s %15lu %8s%s%s\n", name, bytes, format_number(number, bytes), *text ? "  " : "",
		text);
}

static void print_residents(FILE *to, const struct census *census)
{
	print_bytes(to, "resident", census->resident + census->resident_metadata + census->resident_huge,
		    "of it, as the kernel counts (heap, metadata and mappings below)");
	print_bytes(to, "  heap", census->resident, "");
	print_bytes(to, "  metadata", census->resident_metadata, "");
	print_bytes(to, "  mappings", census->resident_huge, "");
}

void view_print_totals(FILE *to, const struct view *view)
{
	const struct census *census = view->census;
	struct census_part parts[CENSUS_PARTS];
	uint64_t objects = 0, live = 0, slabs = 0, partial = 0, aliases = 0, with_slabs = 0;

	for (size_t c = 0; c < census->cache_count; c++) {
		const struct census_cache *cache = &census->caches[c];

		objects += cache->objects;
		live += cache->live;
		slabs += cache->slabs;
		partial += census_partial(cache);
		aliases += cache->aliases;
		with_slabs += cache->slabs != 0;
	}
	fprintf(to, "Process %d (%s), cpuslab %.31s, vCPU mode %s%s, %u vCPU%s used\n",
		(int)view->target->pid, view->target->name, view->target->root.release, census->mode,
		census->why_slots, census->vcpus, census->vcpus == 1 ? "" : "s");
	if (census->background)
		fprintf(to, "Background thread: %lu\n", census->background);
	fprintf(to,
		"Caches: %zu   Aliases: %lu   With slabs: %lu\n"
		"Slabs: %lu   Partial: %lu   Objects: %lu   In use: %lu\n"
		"Large runs: %lu   Mappings: %lu   Returned so far: %lu bytes   Fences: %lu   Aborts: "
		"%lu\n",
		census->cache_count, aliases, with_slabs, slabs, partial, objects, live, census->large_runs,
		census->huge_mappings, census->purged, census->fences, census->aborts);
	if (census->guarded.slots)
		fprintf(to,
			"Guarded: %lu, and %lu refused, %lu passed by in %lu us   Live: %lu in %lu slots, "
			"%lu "
			"bytes\n",
			census->guarded.picked, census->guarded.refused, census->guarded.passed,
			census->guarded.nanoseconds / 1000, census->guarded.live, census->guarded.slots,
			census->guarded.bytes);
	fputc('\n', to);
	census_parts(census, parts);
	for (const struct census_part *part = parts; part->name; part++)
		print_bytes(to, part->name, part->bytes, part->text);
	print_bytes(to, "= mapped", census_mapped(census), "all of the above");
	if (!census->residents_known)
		fputs("resident             unknown           of it: the system does not say\n", to);
	else
		print_residents(to, census);
	if (census->unsettled)
		fprintf(to, "\n%zu caches changed too fast to be read at one instant.\n", census->unsettled);
	if (census->interrupted)
		fprintf(to,
			"\nThe reading was interrupted each time: figures may be of different instants.\n");
}

/* ---- one cache ----------------------------------------------------------------------------------------- */

static void report_vcpus(FILE *to, const struct view *view, size_t index)
{
	const struct census *census = view->census;

	fputs("  vCPU   loaded    spare  alloc misses   free misses\n", to);
	for (uint32_t v = 0; v < census->vcpus; v++) {
		const struct census_cell *cell = &census->cells[index * census->vcpus + v];

		if (cell->loaded || cell->spare || cell->alloc_misses || cell->free_misses)
			fprintf(to, "  %4u %8u %8u %13u %13u\n", v, cell->loaded, cell->spare,
				cell->alloc_misses, cell->free_misses);
	}
}

void view_print_report(FILE *to, const struct view *view)
{
	for (size_t i = 0; i < view->count; i++) {
		size_t index = view->order[i];
		const struct census_cache *cache = &view->census->caches[index];
		uint64_t space = census_space(cache);

		fprintf(to, "\nSlabcache: %-20s  Aliases: %2u Order : %2u Objects: %lu\n", cache->name,
			cache->aliases, order_of(cache), cache->live);
		fprintf(to, "** %s%s%s%s\n",
			cache->owner ? "An object cache of the program" : "A size class of malloc",
			cache->constructed ? ", with a constructor" : "",
			cache->type_stable ? ", memory stays of its type" : "",
			cache->shareable ? ", may share its memory" : "");
		fprintf(to,
			"\nSizes (bytes)     Slabs               Memory\n"
			"------------------------------------------------------------\n"
			"Object : %7u  Total  : %7lu   Total:   %10lu\n"
			"SlabObj: %7u  Full   : %7lu   Used :   %10lu\n"
			"SlabSiz: %7u  Partial: %7lu   Loss :   %10lu\n"
			"Loss   : %7u  Empty  : %7lu   Hoard:   %10lu\n"
			"Align  : %7u  Objects: %7u   Slack:   %10lu\n\n",
			cache->object_size, cache->slabs, space, cache->size, cache->full_slabs,
			cache->live * cache->object_size, cache->pages_per_slab * CENSUS_PAGE,
			census_partial(cache), space - cache->live * cache->object_size,
			cache->size - cache->object_size, cache->empty_slabs,
			(cache->in_vcpus + cache->in_depot) * cache->size,
			cache->alignment ? cache->alignment * CENSUS_PAGE : 0, cache->per_slab,
			space - cache->objects * cache->size);
		fprintf(to,
			"Objects            in use %lu, in vCPUs %lu, in the depot %lu, free in slabs %lu\n"
			"Magazines          of %u objects; in the depot %lu filled, %lu empty\n"
			"Traffic            %lu alloc misses, %lu free misses, %lu refills, %lu drains\n"
			"Slabs              %lu made, %lu given back; %lu lock acquisitions\n\n",
			cache->live, cache->in_vcpus, cache->in_depot, cache->objects - cache->allocated,
			cache->capacity, cache->depot_filled, cache->depot_empty, cache->alloc_misses,
			cache->free_misses, cache->refills, cache->drains, cache->created, cache->freed,
			cache->locks);
		report_vcpus(to, view, index);
	}
}

/* ---- NUMA ---------------------------------------------------------------------------------------------- */

enum { NODES = 64 };

/* Asks the kernel which node each page is on, and counts pages by owner (the caches in `of`) and node. */
static bool count_nodes(const struct target *target, void **pages, const uint32_t *of, size_t count,
			uint64_t (*nodes)[NODES])
{
	static int status[CENSUS_PAGES_AT_ONCE];

	if (syscall(SYS_move_pages, target->thread, count, pages, NULL, status, 0) != 0)
		return false;
	for (size_t i = 0; i < count; i++)
		if (status[i] >= 0 && status[i] < NODES)
			nodes[of[i]][status[i]]++;
	return true;
}

bool view_print_numa(FILE *to, const struct view *view, size_t lines)
{
	static struct census_slab slabs[CENSUS_PAGES_AT_ONCE];
	static void *pages[CENSUS_PAGES_AT_ONCE];
	static uint32_t of[CENSUS_PAGES_AT_ONCE];
	const struct census *census = view->census;
	uint64_t(*nodes)[NODES] = calloc(census->cache_count + 1, sizeof(*nodes));
	unsigned highest = 0;
	bool counted = nodes;

	bounds_look(view->target->pid);
	for (uint64_t page = 0; counted && page < census->heap_pages; page += CENSUS_PAGES_AT_ONCE) {
		size_t asked = 0, count = census->heap_pages - page;

		count = count < CENSUS_PAGES_AT_ONCE ? count : CENSUS_PAGES_AT_ONCE;
		counted = census_read_slabs(census, view->target, page, count, slabs);
		for (size_t i = 0; counted && i < count; i++) {
			if (!slabs[i].cache)
				continue;
			of[asked] = (uint32_t)(slabs[i].cache - census->caches);
			pages[asked++] = (void *)(uintptr_t)(census->heap_start + (page + i) * CENSUS_PAGE);
		}
		counted = counted && (!asked || count_nodes(view->target, pages, of, asked, nodes));
	}
	bounds_done();
	for (size_t c = 0; counted && c < census->cache_count; c++)
		for (unsigned node = 0; node < NODES; node++)
			if (nodes[c][node] && node > highest)
				highest = node;
	if (counted) {
		fputs("Resident pages of slabs by node\nName                 ", to);
		for (unsigned node = 0; node <= highest; node++)
			fprintf(to, " %*s%u", node < 10 ? 8 : 7, "N", node);
		fputc('\n', to);
		for (size_t i = 0; i < view->count && (!lines || i < lines); i++) {
			fprintf(to, "%-21s", census->caches[view->order[i]].name);
			for (unsigned node = 0; node <= highest; node++)
				fprintf(to, " %9lu", nodes[view->order[i]][node]);
			fputc('\n', to);
		}
	}
	free(nodes);
	return counted;
}
