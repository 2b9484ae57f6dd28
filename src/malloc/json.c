/* SPDX-License-Identifier: MIT */
/* cpuslab_stats_json: see include/cpuslab/cpuslab.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "malloc/malloc.h"
#include "process/process.h"
#include "os/os.h"
#include "report/letter.h"
#include "report/statistics.h"

enum { LINE = 6 * REPORT_NAME + 512 }; /* a name of which every byte is escaped */

/* Returns the new end.  Writes '?' for a byte that is part of no character. */
static char *append_quoted(char *end, const char *text)
{
	static const char digits[] = "0123456789abcdef";

	*end++ = '"';
	while (*text) {
		unsigned char c = (unsigned char)*text;
		size_t length = letter_length(text);

		if (c < ' ' || c == '"' || c == '\\') {
			*end++ = '\\';
			*end++ = 'u';
			*end++ = '0';
			*end++ = '0';
			*end++ = digits[c >> 4];
			*end++ = digits[c & 15];
		} else if (length) {
			memcpy(end, text, length);
			end += length;
		} else {
			*end++ = '?';
		}
		text += length ? length : 1;
	}
	*end++ = '"';
	return end;
}

static int write_cache(int file, const struct cache_report *cache, bool first)
{
	char line[LINE];
	char *end = append_quoted(line + sprintf(line, "%s\n    {\"name\": ", first ? "" : ","), cache->name);

	end += sprintf(
		end,
		", \"size\": %u, \"live\": %lu, \"hoarded\": %lu, \"objects\": %lu, \"slabs\": %lu, "
		"\"pages_per_slab\": %u, \"alloc_misses\": %lu, \"free_misses\": %lu, \"refills\": %lu, "
		"\"drains\": %lu}",
		cache->size, cache->live, cache->hoarded, cache->total, cache->slabs, cache->pages_per_slab,
		cache->alloc_misses, cache->free_misses, cache->refills, cache->drains);
	return os_write(file, line, (size_t)(end - line));
}

static int write_head(int file)
{
	struct report report;
	char line[LINE];

	report_all(&report);

	const struct page_statistics *pages = &report.pages;
	int length = sprintf(
		line,
		"{\n  \"release\": \"%s\",\n  \"mode\": \"%s\",\n"
		"  \"bytes\": {\"live\": %lu, \"hoarded\": %lu, \"slabs\": %lu, \"large\": %zu, \"huge\": "
		"%zu, "
		"\"huge_cached\": %zu, \"dirty\": %zu, \"heap\": %zu, \"metadata\": %zu, \"purged\": %zu},\n"
		"  \"large_runs\": %zu,\n  \"huge_mappings\": %zu,\n"
		"  \"guarded\": {\"picked\": %lu, \"refused\": %lu, \"passed\": %lu, \"nanoseconds\": %lu, "
		"\"live\": %lu, \"bytes\": %lu},\n"
		"  \"caches\": [",
		cpuslab_version(), cpuslab_vcpu_mode_name(), report.live_bytes, report.hoarded_bytes,
		report.slab_bytes, pages->large_pages << PAGE_SHIFT, pages->huge_bytes,
		pages->huge_cached_bytes, pages->dirty_pages << PAGE_SHIFT, pages->heap_pages << PAGE_SHIFT,
		pages->metadata_bytes, pages->purged_pages_total << PAGE_SHIFT, pages->large_runs,
		pages->huge_mappings, report.guarded.picked, report.guarded.refused, report.guarded.passed,
		report.guarded.spent, report.guarded.live, report.guarded.bytes);

	return os_write(file, line, (size_t)length);
}

EXPORT int cpuslab_stats_json(int file)
{
	struct cache_report cache;

	process_enter();
	int error = write_head(file);

	bool first = true;

	for (unsigned next = 0; !error && report_cache(&next, &cache);) {
		if (!cache.slabs_created)
			continue;
		error = write_cache(file, &cache, first);
		first = false;
	}
	if (!error)
		error = os_write(file, "\n  ]\n}\n", 7);
	if (!error)
		return 0;
	errno = error;
	return -1;
}
