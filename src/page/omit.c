/* SPDX-License-Identifier: MIT */
#include "page/omit.h"

#include <string.h>

#include "arch/minmax.h"
#include "os/os.h"
#include "page/block.h"
#include "page/layout.h"
#include "page/metadata.h"
#include "page/run.h"

/* A bit for each unit of the heap that is left out; the array exists from the first such unit on. */
static uint64_t *omitted;
static uint32_t omitted_end; /* no unit from here on is left out */
uint32_t omit_count;
static uint8_t *kept; /* pages of each unit that page_omit has counted, or fewer */

static uint32_t units_up(uint32_t pages)
{
	return (pages + OMIT_PAGES - 1) / OMIT_PAGES;
}

static char *unit_at(uint32_t unit)
{
	return layout.heap.base + (size_t)unit * OMIT_BYTES;
}

static bool is_omitted(uint32_t unit)
{
	return omitted[unit / 64] >> unit % 64 & 1;
}

/* Makes the array, or returns false; the next clean run asks again. */
static bool has_array(void)
{
	size_t bytes = layout.heap.planned / OMIT_BYTES / 8;

	/* Fresh metadata is zero, a reused block is not. */
	if (bytes <= METADATA_REUSED_MOST)
		bytes = METADATA_REUSED_MOST + 1;
	if (!omitted)
		omitted = metadata_try_alloc(bytes);
	return omitted;
}

static void dump_records(uint32_t unit, uint32_t end, bool contained)
{
	if (unit < end)
		(void)os_dump(run_at(unit * OMIT_PAGES),
			      (size_t)(end - unit) * OMIT_PAGES * sizeof(struct run), contained);
}

/*
 * After units were left out: leaves out the records of those with such neighbours, too.  Others may hold what
 * is known of the run.
 */
static void omit_records(uint32_t unit, uint32_t end)
{
	uint32_t first = unit + 1, last = end - 1;

	for (int i = 0; i < 2 && first >= 2 && is_omitted(first - 2); i++)
		first--;
	for (int i = 0; i < 2 && last + 1 < omitted_end && is_omitted(last + 1); i++)
		last++;
	dump_records(first, last, false);
}

/* The marks of hardened slabs are zero while a unit is left out. */
static void dump_marks(uint32_t unit, uint32_t end, bool contained)
{
	if (layout.marks.planned)
		(void)os_dump(page_mark(unit_at(unit)), (size_t)(end - unit) * OMIT_MARK_BYTES, contained);
}

/* Leaves units out or not, where they are not so yet, with two system calls for each row of them. */
static void set(uint32_t unit, uint32_t end, bool out)
{
	for (uint32_t next; unit < end; unit = next) {
		bool was = is_omitted(unit);

		for (next = unit + 1; next < end && is_omitted(next) == was;)
			next++;
		if (was == out || os_dump(unit_at(unit), (size_t)(next - unit) * OMIT_BYTES, !out))
			continue;
		for (uint32_t i = unit; i < next; i++)
			omitted[i / 64] ^= 1ul << i % 64;
		omit_count += out ? next - unit : unit - next;
		dump_marks(unit, next, !out);
		if (out)
			omit_records(unit, next);
		else
			dump_records(unit - (unit > 0), next + 1, true);
	}
}

void omit_clean(uint32_t from, uint32_t to, uint32_t first, uint32_t end)
{
	/* At the end of the heap, together with what is shown ahead. */
	if (end == run_pages.top && layout.heap.shown > end)
		to = end = layout.heap.shown;
	/* The rest of the run has been seen before. */
	uint32_t unit = max_t(uint32_t, units_up(first), from / OMIT_PAGES);
	uint32_t unit_end = min_t(uint32_t, end / OMIT_PAGES, units_up(to));

	if (unit >= unit_end || !has_array())
		return;
	omitted_end = max_t(uint32_t, omitted_end, unit_end);
	set(unit, unit_end, true);
}

/* Blocks that may be huge pages are returned as a whole. */
void omit_return(uint32_t first, uint32_t end)
{
	if (block_was_advised(first / BLOCK_PAGES))
		first -= first % BLOCK_PAGES;
	if (block_was_advised((end - 1) / BLOCK_PAGES))
		end += -end % BLOCK_PAGES;
	set(first / OMIT_PAGES, min_t(uint32_t, units_up(end), omitted_end), false);
}

void omit_nothing(void)
{
	omit_taken(0, omitted_end * OMIT_PAGES);
	/* What was being counted is unknown; that too few are known of does no harm. */
	if (kept)
		memset(kept, 0, omitted_end);
}

/* Of the pages from *first to `end`, those of its unit; the next time those of the next one. */
static uint32_t part(uint32_t *first, uint32_t end)
{
	uint32_t pages = min_t(uint32_t, end, (*first / OMIT_PAGES + 1) * OMIT_PAGES) - *first;

	*first += pages;
	return pages;
}

/* What the heap has shown beyond its end is as empty as what page_omit is called for. */
static void omit_ahead(void)
{
	uint32_t end = layout.heap.shown / OMIT_PAGES;

	omitted_end = max_t(uint32_t, omitted_end, end);
	set(units_up(run_pages.top), end, true);
}

void page_omit(const void *address, size_t pages)
{
	uint32_t first = run_number(address), end = first + (uint32_t)pages;

	run_lock();
	if (!kept && (kept = metadata_try_alloc(layout.heap.planned / OMIT_BYTES)))
		(void)os_dump(kept, layout.heap.planned / OMIT_BYTES, false); /* nobody looks for these */
	while (kept && has_array() && first < end) {
		uint32_t unit = first / OMIT_PAGES;

		omitted_end = max_t(uint32_t, omitted_end, unit + 1);
		kept[unit] += (uint8_t)part(&first, end);
		if (kept[unit] == OMIT_PAGES) {
			set(unit, unit + 1, true);
			dump_records(unit, unit + 1, false); /* pages of slabs have none */
			omit_ahead();
			/* All zero already: nothing in the unit is allocated, or waits. */
			(void)os_purge(page_mark(unit_at(unit)), OMIT_MARK_BYTES);
		}
	}
	run_unlock();
}

void page_contain(const void *address, size_t pages)
{
	uint32_t first = run_number(address), end = first + (uint32_t)pages;

	run_lock();
	while (kept && first < end) {
		uint32_t unit = first / OMIT_PAGES, used = part(&first, end);

		kept[unit] -= (uint8_t)min_t(uint32_t, used, kept[unit]);
		if (omitted)
			set(unit, unit + 1, false);
	}
	run_unlock();
}
