/* SPDX-License-Identifier: MIT */
#include "malloc/leaks.h"

#include <stdbool.h>

#include "check/stack.h"
#include "check/text.h"
#include "malloc/large_checks.h"
#include "os/os.h"
#include "report/statistics.h"

enum {
	STACKS = 1 << 14, /* distinct ones; all further ones are added up together */
	SHOWN = 100,
};

/* Objects that one stack allocated. */
struct debt {
	uint32_t stack; /* 0: empty entry, or unknown */
	uint64_t objects, bytes;
};

/* A hash table, and the sum of those with unknown stacks. */
struct debts {
	struct debt by_stack[STACKS], unknown;
	uint64_t objects, bytes; /* of the cache being visited */
};

static struct debt *find(struct debts *debts, uint32_t stack)
{
	for (uint32_t i = 0, at = stack * 0x9e3779b1u; stack && i < STACKS; i++, at++) {
		struct debt *debt = &debts->by_stack[at % STACKS];

		if (!debt->stack)
			debt->stack = stack;
		if (debt->stack == stack)
			return debt;
	}
	return &debts->unknown;
}

static void add(uint32_t stack, uint32_t bytes, void *argument)
{
	struct debts *debts = argument;
	struct debt *debt = find(debts, stack);

	debt->objects++;
	debt->bytes += bytes;
	debts->objects++;
	debts->bytes += bytes;
}

/* ---- by cache -------------------------------------------------------------------------------------- */

static void report_line(uint64_t bytes, uint64_t objects, const char *name)
{
	if (!objects)
		return;
	text_begin();
	text_add("%14lu %10lu  %s\n", bytes, objects, name);
	text_end();
}

/* True if any cache records owners. */
static bool report_caches(struct debts *debts)
{
	struct cache_report report;
	bool owners = false;

	for (unsigned next = 0; report_cache(&next, &report);) {
		struct cache *cache = magazine_cache_number(next - 1);

		if (cache && magazine_is_checked(cache)) {
			debts->objects = debts->bytes = 0;
			owners |= magazine_visit_live(cache, add, debts);
			report_line(debts->bytes, debts->objects, report.name);
		} else {
			report_line(report.live * report.size, report.live, report.name);
		}
	}
	return owners;
}

static void report_pages(void)
{
	struct page_statistics pages;

	page_statistics(&pages);
	report_line((uint64_t)pages.large_pages << PAGE_SHIFT, pages.large_runs, "large");
	report_line(pages.huge_bytes, pages.huge_mappings, "huge");
}

/* ---- by owner -------------------------------------------------------------------------------------- */

static void report_debt(const struct debt *debt)
{
	text_begin();
	text_add("\n%lu bytes in %lu %s, allocated in\n", debt->bytes, debt->objects,
		 debt->objects == 1 ? "object" : "objects");
	if (debt->stack)
		stack_report(debt->stack);
	else
		text_add("    places that are not known\n");
	text_end();
}

/* The largest first. */
static void report_owners(struct debts *debts)
{
	for (unsigned shown = 0; shown < SHOWN; shown++) {
		struct debt *largest = &debts->unknown;

		for (unsigned i = 0; i < STACKS; i++)
			if (debts->by_stack[i].bytes > largest->bytes)
				largest = &debts->by_stack[i];
		if (!largest->objects)
			return;
		report_debt(largest);
		largest->objects = largest->bytes = 0;
	}
}

void leaks_report(void)
{
	struct debts *debts = os_map(NULL, (sizeof *debts + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);

	if (!debts)
		return;
	text_begin();
	text_add("cpuslab: still allocated as the program ends (pid %d)\n%14s %10s  %s\n",
		 (int)os_process_id(), "bytes", "objects", "cache");
	text_end();
	magazine_keep_caches();
	bool owners = report_caches(debts);

	magazine_let_caches_go();
	if (large_is_checked())
		owners |= large_checks_visit_live(add, debts);
	report_pages();
	if (owners) {
		report_owners(debts);
	} else {
		text_begin();
		text_add("CPUSLAB_DEBUG=U tells who allocated them\n");
		text_end();
	}
	os_unmap(debts, (sizeof *debts + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
}
