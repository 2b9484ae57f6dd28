/* SPDX-License-Identifier: MIT */
#include "page/purge.h"

#include "arch/minmax.h"
#include "arch/probe.h"
#include "background/background.h"
#include "page/allowance.h"
#include "page/block.h"
#include "page/metadata.h"
#include "page/run.h"

bool purge_behind;
static bool bare_due; /* page_ebb() was called, and no records have gone back since */

/* How much of a dirty run to purge when too many pages are dirty: not all of a large one, nor bit by bit. */
static uint32_t surplus_of(uint32_t pages)
{
	size_t allowed = allowance_dirty();
	size_t surplus = run_pages.free[RUN_DIRTY] > allowed ? run_pages.free[RUN_DIRTY] - allowed : 0;

	if (surplus < PAGE_PURGE_RUN)
		surplus = PAGE_PURGE_RUN;
	return surplus < pages ? (uint32_t)surplus : pages;
}

/*
 * Takes the next pages to purge, up to `most`, out of the oldest dirty run and marks them as in transit,
 * neither free nor used.  Returns how many; 0 when none are overdue.  With the lock.
 */
static uint32_t take_overdue(bool all, uint64_t now, size_t most, uint32_t *first)
{
	uint32_t start = run_oldest, pages, part;

	if (start == RUN_NONE || !(all || allowance_is_overdue(now)))
		return 0;
	bool old = all || allowance_is_old(now);

	*first = start;
	pages = run_at(start)->pages;
	part = old ? pages : surplus_of(pages);
	if (part > most)
		part = (uint32_t)most;
	if (part < pages)
		part = block_surplus(first, pages, part);
	run_pages.in_transit += part;
	if (!old)
		allowance.given_back += part;

	uint32_t end = *first + part;

	(void)run_take_span(start, *first, end);
	/*
	 * The rest behind the part is moved first, so that it comes second.  The rest of a run that was cut
	 * for surplus, not for age, had its turn: runs that lose a part each serve more requests than one
	 * that is eaten up.
	 */
	if (old && end < start + pages)
		run_stay_oldest(end);
	if (old && start < *first)
		run_stay_oldest(start);
	run_mark_ends(*first, part, PAGE_TRANSIT);
	return part;
}

/* Runs on their way to the system. */
struct purging {
	unsigned count, purged; /* runs taken; of them, from the first on, those that the system took */
	size_t done;            /* pages, with each run's minimum */
	struct purged_run {
		uint32_t first, pages;
	} runs[OS_RANGES];
};

/* Takes the next runs while fewer than `most` pages are done.  With the lock. */
static void take_several(struct purging *purging, bool all, uint64_t now, size_t most)
{
	for (purging->count = 0; purging->count < OS_RANGES && purging->done < most; purging->count++) {
		struct purged_run *run = &purging->runs[purging->count];

		run->pages = take_overdue(all, now, most - purging->done, &run->first);
		if (!run->pages)
			return;
		purging->done += max_t(size_t, run->pages, PAGE_PURGE_RUN);
	}
}

/* Without the lock. */
static void purge_several(struct purging *purging)
{
	struct os_range ranges[OS_RANGES];

	for (unsigned i = 0; i < purging->count; i++) {
		struct purged_run run = purging->runs[i];

		block_purge(run.first, run.pages);
		ranges[i] = (struct os_range){run_address(run.first), (size_t)run.pages << PAGE_SHIFT};
		ARCH_PROBE("purge", (uintptr_t)ranges[i].address, ranges[i].bytes);
	}
	purging->purged = os_purge_several(ranges, purging->count);
}

/* With the lock. */
static void put_purged(const struct purging *purging, uint64_t now)
{
	for (unsigned i = 0; i < purging->count; i++) {
		struct purged_run run = purging->runs[i];
		bool purged = i < purging->purged;

		run_mark_ends(run.first, run.pages, PAGE_FREE);
		run_pages.in_transit -= run.pages;
		if (purged)
			run_pages.purged += run.pages;
		run_insert(run.first, run.pages, purged ? RUN_CLEAN : RUN_DIRTY, now);
	}
}

void purge_runs(bool all, size_t most)
{
	uint64_t now = os_milliseconds();
	struct purging purging = {0};

	do {
		run_lock();
		put_purged(&purging, now);
		bool refused = purging.purged < purging.count;

		take_several(&purging, all, now, refused ? 0 : most);
		if (!purging.count)
			__atomic_store_n(&purge_behind, !refused && allowance_is_purge_due(now),
					 __ATOMIC_RELAXED);
		run_unlock();
		if (purging.count)
			purge_several(&purging);
	} while (purging.count);
}

static __attribute__((noinline, cold)) void leave_purge(void)
{
	purge_later();
	background_note(true);
}

void purge_due(size_t most)
{
	if (background_serves())
		leave_purge();
	else
		purge_runs(false, most);
}

/* Purges the records of long clean runs.  Under the lock, so that no thread cuts such a run meanwhile. */
static void give_back_records(void)
{
	struct os_range ranges[OS_RANGES];

	run_lock();
	(void)os_purge_several(ranges, run_bare_records(ranges));
	__atomic_store_n(&bare_due, false, __ATOMIC_RELAXED);
	run_unlock();
}

/* ---- the room's functions ------------------------------------------------------------------------------ */

void page_count_purged(size_t pages)
{
	run_lock();
	run_pages.purged += pages;
	run_unlock();
}

unsigned page_hollow(const struct os_range *ranges, unsigned count)
{
	size_t pages = 0;

	for (unsigned i = 0; i < count; i++) {
		block_purge(run_number(ranges[i].address), (uint32_t)(ranges[i].bytes >> PAGE_SHIFT));
		ARCH_PROBE("purge", (uintptr_t)ranges[i].address, ranges[i].bytes);
	}
	count = os_purge_several(ranges, count);
	for (unsigned i = 0; i < count; i++)
		pages += ranges[i].bytes >> PAGE_SHIFT;
	run_lock();
	run_pages.purged += pages;
	/* With less in use, fewer free pages may stay in an ebb. */
	if (allowance.ebbing)
		purge_later();
	run_unlock();
	return count;
}

/* Records go when nothing else is left to go.  Without the lock. */
static bool bare_is_due(void)
{
	return __atomic_load_n(&bare_due, __ATOMIC_RELAXED) &&
	       !__atomic_load_n(&purge_behind, __ATOMIC_RELAXED);
}

/*
 * Gives back the unused ends of all steps.  Steps are a convenience: where the system has refused one region
 * even a page, what it granted to others may be what is missing.  With the lock.
 */
static __attribute__((noinline)) void give_back_steps(void)
{
	__atomic_store_n(&layout_refused, false, __ATOMIC_RELAXED);
	region_shrink(&layout.heap, (size_t)run_pages.top << PAGE_SHIFT);
	block_heap_shrunk();
	region_shrink(&layout.runs, run_pages.top * sizeof(struct run));
	metadata_shrink();
}

/* Before everything free is purged.  Out of line: an ebb, whose code lies apart, never asks for that. */
static __attribute__((noinline)) void prepare_all(void)
{
	run_lock();
	run_recall();
	if (__atomic_load_n(&layout_refused, __ATOMIC_RELAXED))
		give_back_steps();
	else
		run_take_over_block();
	run_unlock();
}

void page_purge(bool all)
{
	if (all)
		prepare_all();

	size_t most =
		__atomic_load_n(&allowance.ebbing, __ATOMIC_RELAXED) ? PAGE_PURGE_MOST / 2 : PAGE_PURGE_MOST;

	purge_runs(all, all ? SIZE_MAX : most);
	huge_purge(all);
	metadata_purge(all);
	if (all || bare_is_due())
		give_back_records();
}

void page_ebb(bool low)
{
	run_lock();
	run_recall();
	run_take_over_block();
	allowance_begin_ebb();
	purge_later();
	__atomic_store_n(&bare_due, true, __ATOMIC_RELAXED);
	run_unlock();
	if (low)
		metadata_ebb();
}

/* What pages stand by for was decided by the options as they were. */
void page_options_changed(void)
{
	page_set_limits();
	run_lock();
	standby_forget_all();
	pocket_close();
	run_recall();
	purge_later();
	run_unlock();
}

bool page_is_behind(void)
{
	return __atomic_load_n(&purge_behind, __ATOMIC_RELAXED) || huge_is_behind() || metadata_is_behind() ||
	       bare_is_due();
}
