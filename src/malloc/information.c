/* SPDX-License-Identifier: MIT */
/* glibc's queries and settings: mallinfo, malloc_info, malloc_stats, mallopt, malloc_trim. */
#include "malloc/malloc.h"
#include "malloc/own.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "arch/arch.h"
#include "magazine/control.h"
#include "malloc/large.h"
#include "options/options.h"
#include "process/process.h"
#include "os/os.h"
#include "report/statistics.h"

#ifdef __GLIBC__ /* other C libraries have neither the functions nor their types */
/* The fields as mallinfo(3) defines them, as far as they mean anything here; in bytes. */
REPLACEABLE struct mallinfo2 mallinfo2(void)
{
	struct report report;

	process_enter();
	report_all(&report);

	size_t used = report.live_bytes + (report.pages.large_pages << PAGE_SHIFT);
	size_t heap = report.pages.heap_pages << PAGE_SHIFT;

	return (struct mallinfo2){
		.arena = heap,
		.hblks = report.pages.huge_mappings + report.guarded.live,
		.hblkhd = report.pages.huge_bytes + (report.guarded.pages << PAGE_SHIFT),
		.fsmblks = report.hoarded_bytes,
		.uordblks = used,
		.fordblks = heap > used ? heap - used : 0,
		.keepcost = report.pages.dirty_pages << PAGE_SHIFT,
	};
}

static int clamp(size_t value)
{
	return value > INT_MAX ? INT_MAX : (int)value;
}

REPLACEABLE struct mallinfo mallinfo(void)
{
	struct mallinfo2 wide = mallinfo2();

	return (struct mallinfo){
		.arena = clamp(wide.arena),
		.hblks = clamp(wide.hblks),
		.hblkhd = clamp(wide.hblkhd),
		.fsmblks = clamp(wide.fsmblks),
		.uordblks = clamp(wide.uordblks),
		.fordblks = clamp(wide.fordblks),
		.keepcost = clamp(wide.keepcost),
	};
}
#endif

enum { XML_CHARACTER = sizeof "&quot;" - 1, XML_NAME = XML_CHARACTER * REPORT_NAME };

/* A name as an attribute value: XML allows neither control characters nor invalid UTF-8. */
static const char *xml_name(char text[static XML_NAME], const char *name)
{
	char *end = text;

	for (; *name; name++) {
		const char *character = *name == '"'                 ? "&quot;"
					: *name == '&'               ? "&amp;"
					: *name == '<'               ? "&lt;"
					: *name == '>'               ? "&gt;"
					: *name < ' ' || *name > '~' ? "?"
								     : NULL;

		if (character)
			end = stpcpy(end, character);
		else
			*end++ = *name;
	}
	*end = 0;
	return text;
}

REPLACEABLE int malloc_info(int flags, FILE *stream)
{
	struct report report;
	char name[XML_NAME];
	struct cache_report cache;

	if (flags != 0) {
		errno = EINVAL;
		return -1;
	}
	process_enter();
	fprintf(stream, "<malloc version=\"cpuslab-%s\" mode=\"%s\">\n", cpuslab_version(),
		cpuslab_vcpu_mode_name());
	for (unsigned next = 0; report_cache(&next, &cache);) {
		if (!cache.slabs_created)
			continue;
		fprintf(stream,
			"<cache name=\"%s\" size=\"%u\" live=\"%lu\" hoarded=\"%lu\" total=\"%lu\" "
			"slabs=\"%lu\" "
			"pages_per_slab=\"%u\" alloc_misses=\"%lu\" free_misses=\"%lu\"/>\n",
			xml_name(name, cache.name), cache.size, cache.live, cache.hoarded, cache.total,
			cache.slabs, cache.pages_per_slab, cache.alloc_misses, cache.free_misses);
	}
	report_all(&report);
	fprintf(stream,
		"<system type=\"heap\" size=\"%zu\"/>\n<system type=\"used\" size=\"%zu\"/>\n"
		"<system type=\"dirty\" size=\"%zu\"/>\n<system type=\"metadata\" size=\"%zu\"/>\n"
		"<large runs=\"%zu\" size=\"%zu\"/>\n<huge mappings=\"%zu\" size=\"%zu\" "
		"cached=\"%zu\"/>\n<guarded picked=\"%lu\" refused=\"%lu\" passed=\"%lu\" "
		"nanoseconds=\"%lu\" live=\"%lu\" size=\"%lu\"/>\n"
		"</malloc>\n",
		report.pages.heap_pages << PAGE_SHIFT, report.pages.used_pages << PAGE_SHIFT,
		report.pages.dirty_pages << PAGE_SHIFT, report.pages.metadata_bytes, report.pages.large_runs,
		report.pages.large_pages << PAGE_SHIFT, report.pages.huge_mappings, report.pages.huge_bytes,
		report.pages.huge_cached_bytes, report.guarded.picked, report.guarded.refused,
		report.guarded.passed, report.guarded.spent, report.guarded.live, report.guarded.bytes);
	return ferror(stream) ? -1 : 0;
}

/*
 * Writes to standard error by write(2), so that exit handlers and programs that have closed stdio can use
 * it.
 */
REPLACEABLE void malloc_stats(void)
{
	struct report report;
	struct cache_report cache;
	char line[REPORT_NAME + 192];
	int length;

	process_enter();
	report_all(&report);
	length = snprintf(line, sizeof line,
			  "cpuslab %s, vCPU mode %s%s\n%-16s %10s %10s %10s %8s %12s %12s\n",
			  cpuslab_version(), cpuslab_vcpu_mode_name(), vcpu_why_slots(), "cache", "live",
			  "hoarded", "total", "slabs", "alloc misses", "free misses");
	os_write_error(line, (size_t)length);
	for (unsigned next = 0; report_cache(&next, &cache);) {
		if (!cache.slabs_created)
			continue;
		length = snprintf(line, sizeof line, "%-16s %10lu %10lu %10lu %8lu %12lu %12lu\n", cache.name,
				  cache.live, cache.hoarded, cache.total, cache.slabs, cache.alloc_misses,
				  cache.free_misses);
		os_write_error(line, (size_t)length);
	}
	length = snprintf(
		line, sizeof line,
		"heap %zu KiB, used %zu, dirty %zu, large %zu, huge %zu (cached %zu), metadata %zu KiB\n",
		report.pages.heap_pages * 4, report.pages.used_pages * 4, report.pages.dirty_pages * 4,
		report.pages.large_pages * 4, report.pages.huge_bytes >> 10,
		report.pages.huge_cached_bytes >> 10, report.pages.metadata_bytes >> 10);
	os_write_error(line, (size_t)length);
	if (!guard_is_on())
		return;
	length = snprintf(line, sizeof line,
			  "guarded: %lu picked, %lu refused, %lu passed by in %lu us, %lu live in %lu pages, "
			  "%lu slots\n",
			  report.guarded.picked, report.guarded.refused, report.guarded.passed,
			  report.guarded.spent / 1000, report.guarded.live, report.guarded.pages,
			  report.guarded.slots);
	os_write_error(line, (size_t)length);
}

/* Changes an option, and does what follows from it; returns 0 or a positive errno. */
static int change(const char *name, const char *value)
{
	int error = process_enter() ? magazine_control(name, value) : ENOMEM;

	if (!error) {
		magazine_settle_profile();
		magazine_tick();
		magazine_heap_tick(0);
	}
	return error;
}

#ifdef __GLIBC__
/* M_TRIM_THRESHOLD: how much may lie free before it goes back, which is the option `dirty`; -1: any amount.
 */
static int set_dirty(int value)
{
	char text[OPTION_TEXT];

	if (value < 0)
		snprintf(text, sizeof text, "%zu", SIZE_MAX);
	else
		snprintf(text, sizeof text, "%d", value);
	return !change("dirty", text);
}

/*
 * Like glibc, accepts every parameter, known or not.  M_TRIM_THRESHOLD alone has a meaning here: the others
 * are about arenas, bins, mappings by size and padding at the top of a heap, none of which there is.  Returns
 * 0 for a value that mallopt(3) does not allow.
 */
REPLACEABLE int mallopt(int parameter, int value)
{
	enum { FAST_BIN_MOST = 80 * sizeof(size_t) / 4 };

	if (parameter == M_TRIM_THRESHOLD)
		return set_dirty(value);
	return parameter != M_MXFAST || (value >= 0 && value <= FAST_BIN_MOST);
}
#endif

EXPORT int cpuslab_ctl(const char *name, const char *value)
{
	int error = change(name, value);

	if (!error)
		return 0;
	errno = error;
	return -1;
}

EXPORT int cpuslab_ctl_get(const char *name, char *value, size_t bytes)
{
	char text[OPTION_TEXT];

	process_enter();
	if (!options_value(name, text)) {
		errno = EINVAL;
		return -1;
	}
	if (strlen(text) >= bytes) {
		errno = ERANGE;
		return -1;
	}
	strcpy(value, text);
	return 0;
}

/* `keep` is ignored: it is a hint for a heap with a top.  Returns 1 when memory went back to the system. */
REPLACEABLE int malloc_trim(size_t keep)
{
	struct page_statistics before, after;

	(void)keep;
	process_enter();
	page_statistics(&before);
	magazine_trim();
	page_statistics(&after);
	return after.purged_pages_total > before.purged_pages_total ||
	       after.huge_cached_bytes < before.huge_cached_bytes;
}

EXPORT const char *cpuslab_version(void)
{
	return CPUSLAB_VERSION;
}

EXPORT enum cpuslab_vcpu_mode cpuslab_vcpu_mode(void)
{
	process_enter();
	return vcpu_mode();
}

EXPORT const char *cpuslab_vcpu_mode_name(void)
{
	static const char *const names[] = {
		[CPUSLAB_VCPU_THREAD_SLOT] = "slot",
		[CPUSLAB_VCPU_CPU_ID] = "cpu_id",
		[CPUSLAB_VCPU_MM_CID] = "mm_cid",
	};
	return names[cpuslab_vcpu_mode()];
}

EXPORT void cpuslab_read_counters(struct cpuslab_counters *counters)
{
	struct report report;

	uint64_t large_allocs, large_frees;

	process_enter();
	report_all(&report);
	large_calls(&large_allocs, &large_frees);
	*counters = (struct cpuslab_counters){
		.alloc_misses = report.alloc_misses + large_allocs,
		.free_misses = report.free_misses + large_frees,
		.refills = report.refills,
		.drains = report.drains,
		.slabs_created = report.slabs_created,
		.slabs_freed = report.slabs_freed,
		.section_aborts = __atomic_load_n(&arch_section_aborts, __ATOMIC_RELAXED),
		.fences = vcpu_fences(),
		.purged_bytes = (uint64_t)report.pages.purged_pages_total << PAGE_SHIFT,
		.lock_acquires = report.lock_acquires,
	};
}

OWN(malloc_stats);
