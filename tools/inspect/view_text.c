/* SPDX-License-Identifier: MIT */
/* For programs: the format of /proc/slabinfo, JSON, and the text exposition format of Prometheus. */
#include "inspect/view.h"
#include "json_string.h"

#include <string.h>

/* ---- slabinfo 2.1 -------------------------------------------------------------------------------------- */

static void print_joined(FILE *to, const char *name, int width)
{
	int printed = 0;

	for (; *name; name++, printed++)
		fputc(*name == ' ' ? '_' : *name, to);
	if (!printed)
		printed = fputc('_', to) == '_';
	fprintf(to, "%*s", printed < width ? width - printed : 0, "");
}

void view_print_slabinfo(FILE *to, const struct view *view)
{
	fputs("slabinfo - version: 2.1\n"
	      "# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables "
	      "<limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>\n",
	      to);
	for (size_t i = 0; i < view->count; i++) {
		const struct census_cache *cache = &view->census->caches[view->order[i]];

		print_joined(to, cache->name, 17);
		fprintf(to, " %6lu %6lu %6u %4u %4u : tunables %4u %4u %4u : slabdata %6lu %6lu %6lu\n",
			cache->live, cache->objects, cache->size, cache->per_slab, cache->pages_per_slab,
			cache->capacity, cache->batch, cache->sharedfactor, cache->slabs - cache->empty_slabs,
			cache->slabs, cache->in_depot);
	}
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static void print_member(FILE *to, const char *name, uint64_t value, bool last)
{
	fprintf(to, "\"%s\": %lu%s", name, value, last ? "" : ", ");
}

static void print_cache(FILE *to, const struct view *view, size_t index)
{
	const struct census *census = view->census;
	const struct census_cache *cache = &census->caches[index];

	fputs("    {\"name\": ", to);
	json_print_string(to, cache->name);
	fprintf(to, ", \"kind\": \"%s\", \"aliases\": [",
		!cache->owner   ? "malloc"
		: cache->linked ? "linked"
				: "cache");
	for (size_t h = 0; cache->aliases && h < cache->named; h++) {
		fputs(h ? ", " : "", to);
		json_print_string(to, census->handles[cache->first_handle + h].name);
	}
	fputs("],\n     ", to);
	print_member(to, "object_size", cache->object_size, false);
	print_member(to, "size", cache->size, false);
	print_member(to, "objects_per_slab", cache->per_slab, false);
	print_member(to, "pages_per_slab", cache->pages_per_slab, false);
	print_member(to, "magazine_capacity", cache->capacity, false);
	fputs("\n     ", to);
	print_member(to, "slabs", cache->slabs, false);
	print_member(to, "full_slabs", cache->full_slabs, false);
	print_member(to, "partial_slabs", census_partial(cache), false);
	print_member(to, "empty_slabs", cache->empty_slabs, false);
	print_member(to, "slabs_created", cache->created, false);
	print_member(to, "slabs_freed", cache->freed, false);
	fputs("\n     ", to);
	print_member(to, "objects", cache->objects, false);
	print_member(to, "live", cache->live, false);
	print_member(to, "in_vcpus", cache->in_vcpus, false);
	print_member(to, "in_depot", cache->in_depot, false);
	print_member(to, "free_in_slabs", cache->objects - cache->allocated, false);
	print_member(to, "slack_bytes", census_space(cache) - cache->objects * cache->size, false);
	print_member(to, "space_bytes", census_space(cache), false);
	fputs("\n     ", to);
	print_member(to, "alloc_misses", cache->alloc_misses, false);
	print_member(to, "free_misses", cache->free_misses, false);
	print_member(to, "refills", cache->refills, false);
	print_member(to, "drains", cache->drains, false);
	print_member(to, "lock_acquires", cache->locks, true);
	fputc('}', to);
}

void view_print_json(FILE *to, const struct view *view)
{
	const struct census *census = view->census;
	struct census_part parts[CENSUS_PARTS];

	fprintf(to, "{\n  \"pid\": %d,\n  \"process\": ", (int)view->target->pid);
	json_print_string(to, view->target->name);
	fputs(",\n  \"release\": ", to);
	json_print_string(to, view->target->root.release);
	fprintf(to,
		",\n  \"mode\": \"%s\",\n  \"vcpus\": %u,\n  \"unsettled\": %zu,\n  \"interrupted\": %s,\n  "
		"\"bytes\": {",
		census->mode, census->vcpus, census->unsettled, census->interrupted ? "true" : "false");
	census_parts(census, parts);
	for (const struct census_part *part = parts; part->name; part++)
		print_member(to, part->name, part->bytes, false);
	print_member(to, "mapped", census_mapped(census), true);
	fputs("},\n  \"resident\": {", to);
	if (census->residents_known) {
		print_member(to, "heap", census->resident, false);
		print_member(to, "metadata", census->resident_metadata, false);
		print_member(to, "huge", census->resident_huge, true);
	} else
		fputs("\"heap\": null, \"metadata\": null, \"huge\": null", to);
	fputs("},\n  \"counters\": {", to);
	print_member(to, "large_runs", census->large_runs, false);
	print_member(to, "huge_mappings", census->huge_mappings, false);
	print_member(to, "large_allocs", census->large_allocs, false);
	print_member(to, "large_frees", census->large_frees, false);
	print_member(to, "purged_bytes", census->purged, false);
	print_member(to, "fences", census->fences, false);
	print_member(to, "background_thread", census->background, false);
	print_member(to, "section_aborts", census->aborts, true);
	fputs("},\n  \"guarded\": {", to);
	print_member(to, "slots", census->guarded.slots, false);
	print_member(to, "picked", census->guarded.picked, false);
	print_member(to, "refused", census->guarded.refused, false);
	print_member(to, "passed", census->guarded.passed, false);
	print_member(to, "nanoseconds", census->guarded.nanoseconds, false);
	print_member(to, "live", census->guarded.live, false);
	print_member(to, "bytes", census->guarded.bytes, true);
	fputs("},\n  \"caches\": [", to);
	for (size_t i = 0; i < view->count; i++) {
		fputs(i ? ",\n" : "\n", to);
		print_cache(to, view, view->order[i]);
	}
	fputs("\n  ]\n}\n", to);
}

/* ---- Prometheus ---------------------------------------------------------------------------------------- */

static void print_label(FILE *to, const char *value)
{
	fputc('"', to);
	for (; *value; value++)
		if (*value == '"' || *value == '\\')
			fprintf(to, "\\%c", *value);
		else if (*value == '\n')
			fputs("\\n", to);
		else
			fputc(*value, to);
	fputc('"', to);
}

static void print_sample(FILE *to, const char *metric, const struct view *view, const char *label,
			 const char *value, uint64_t number)
{
	fprintf(to, "%s{pid=\"%d\",process=", metric, (int)view->target->pid);
	print_label(to, view->target->name);
	if (label) {
		fprintf(to, ",%s=", label);
		print_label(to, value);
	}
	fprintf(to, "} %lu\n", number);
}

static void print_head(FILE *to, const char *metric, const char *type, const char *help)
{
	fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", metric, help, metric, type);
}

struct cache_metric {
	const char *name, *type, *help;
	uint64_t (*value)(const struct census_cache *cache);
};

static uint64_t live(const struct census_cache *cache)
{
	return cache->live;
}

static uint64_t hoarded(const struct census_cache *cache)
{
	return cache->in_vcpus + cache->in_depot;
}

static uint64_t size(const struct census_cache *cache)
{
	return cache->size;
}

static uint64_t slabs(const struct census_cache *cache)
{
	return cache->slabs;
}

static uint64_t alloc_misses(const struct census_cache *cache)
{
	return cache->alloc_misses;
}

static uint64_t free_misses(const struct census_cache *cache)
{
	return cache->free_misses;
}

static uint64_t refills(const struct census_cache *cache)
{
	return cache->refills;
}

static uint64_t drains(const struct census_cache *cache)
{
	return cache->drains;
}

static const struct cache_metric cache_metrics[] = {
	{"cpuslab_cache_live_objects", "gauge", "Objects that the program has.", live},
	{"cpuslab_cache_hoarded_objects", "gauge", "Free objects in magazines of vCPUs and depots.", hoarded},
	{"cpuslab_cache_object_bytes", "gauge", "From the start of an object to the next.", size},
	{"cpuslab_cache_slabs", "gauge", "Slabs of the cache.", slabs},
	{"cpuslab_cache_space_bytes", "gauge", "Memory of its slabs.", census_space},
	{"cpuslab_cache_alloc_misses_total", "counter",
	 "Allocations that the fast path did not serve; those that it serves are not counted.", alloc_misses},
	{"cpuslab_cache_free_misses_total", "counter",
	 "Frees that the fast path did not serve; those that it serves are not counted.", free_misses},
	{"cpuslab_cache_refills_total", "counter", "Magazines filled from slabs.", refills},
	{"cpuslab_cache_drains_total", "counter", "Magazines emptied into slabs.", drains},
};

/* Metrics that a process has one of: a number in its census. */
static const struct process_metric {
	const char *name, *type, *help;
	size_t offset;
} process_metrics[] = {
	{"cpuslab_purged_bytes_total", "counter", "Bytes returned to the system so far.",
	 offsetof(struct census, purged)},
	{"cpuslab_fences_total", "counter", "Drains of another vCPU.", offsetof(struct census, fences)},
	{"cpuslab_guarded_total", "counter", "Allocations that were guarded.",
	 offsetof(struct census, guarded.picked)},
	{"cpuslab_guard_refused_total", "counter", "Picks without a place, or without memory.",
	 offsetof(struct census, guarded.refused)},
	{"cpuslab_guard_passed_total", "counter", "Picks passed by while guarding rests.",
	 offsetof(struct census, guarded.passed)},
	{"cpuslab_guarded_live_objects", "gauge", "Guarded objects in use.",
	 offsetof(struct census, guarded.live)},
};

static void print_parts(FILE *to, const struct view *views, size_t count)
{
	print_head(to, "cpuslab_bytes", "gauge", "What the allocator has mapped, by what it is used for.");
	for (size_t v = 0; v < count; v++) {
		struct census_part parts[CENSUS_PARTS];

		census_parts(views[v].census, parts);
		for (const struct census_part *part = parts; part->name; part++)
			print_sample(to, "cpuslab_bytes", &views[v], "part", part->name, part->bytes);
	}
	print_head(to, "cpuslab_resident_bytes", "gauge", "What of it is resident.");
	for (size_t v = 0; v < count; v++) {
		const struct census *census = views[v].census;

		if (!census->residents_known)
			continue;
		print_sample(to, "cpuslab_resident_bytes", &views[v], "part", "heap", census->resident);
		print_sample(to, "cpuslab_resident_bytes", &views[v], "part", "metadata",
			     census->resident_metadata);
		print_sample(to, "cpuslab_resident_bytes", &views[v], "part", "huge", census->resident_huge);
	}
	for (size_t m = 0; m < sizeof(process_metrics) / sizeof(process_metrics[0]); m++) {
		const struct process_metric *metric = &process_metrics[m];

		print_head(to, metric->name, metric->type, metric->help);
		for (size_t v = 0; v < count; v++)
			print_sample(to, metric->name, &views[v], NULL, NULL,
				     *(const uint64_t *)((const char *)views[v].census + metric->offset));
	}
}

void view_print_prometheus(FILE *to, const struct view *views, size_t count)
{
	print_parts(to, views, count);
	for (size_t m = 0; m < sizeof(cache_metrics) / sizeof(cache_metrics[0]); m++) {
		const struct cache_metric *metric = &cache_metrics[m];

		print_head(to, metric->name, metric->type, metric->help);
		for (size_t v = 0; v < count; v++)
			for (size_t i = 0; i < views[v].count; i++) {
				const struct census_cache *cache =
					&views[v].census->caches[views[v].order[i]];

				print_sample(to, metric->name, &views[v], "cache", cache->name,
					     metric->value(cache));
			}
	}
}
