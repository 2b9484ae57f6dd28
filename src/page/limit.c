/* SPDX-License-Identifier: MIT */
#include "page/limit.h"

#include "arch/minmax.h"
#include "page/allowance.h"
#include "page/layout.h"
#include "page/metadata.h"
#include "page/page.h"

enum {
	NEAR_PART = 16,      /* part of the limit below it from which use presses */
	STEP_PART = 128,     /* part of the limit that is taken before hoards come back again */
	STEP_PART_VAIN = 32, /* at most, where that gains nothing: the limit is kept within this part */
	STEP_LEAST = 16      /* pages */
};

/* In pages. */
static struct {
	size_t soft, hard; /* SIZE_MAX: none */
	size_t taken;      /* since use last pressed */
	size_t step;       /* how many of these there are before it presses again */
} limits ARCH_SPARSE;

static size_t in_pages(size_t option)
{
	size_t bytes = option;

	if (option == OPTION_LIMIT_HIGH)
		bytes = os_cgroup_limit(true);
	else if (option == OPTION_LIMIT_MAX)
		bytes = os_cgroup_limit(false);
	return bytes ? bytes >> PAGE_SHIFT : SIZE_MAX;
}

static size_t least_step(void)
{
	return max_t(size_t, limits.soft / STEP_PART, STEP_LEAST);
}

void page_set_limits(void)
{
	if (!limit_is_set())
		return;
	size_t hard = in_pages(options.limit_hard);

	__atomic_store_n(&limits.hard, hard, __ATOMIC_RELAXED);
	__atomic_store_n(&limits.soft, min_t(size_t, in_pages(options.limit), hard), __ATOMIC_RELAXED);
	__atomic_store_n(&limits.step, least_step(), __ATOMIC_RELAXED);
	/* Use may press already. */
	__atomic_store_n(&limits.taken, limits.step, __ATOMIC_RELAXED);
}

/* Pages that are not free. */
static size_t in_use(void)
{
	size_t heap = allowance_filled();

	/* Marks stay, also those of pages that went back. */
	if (layout.marks.planned)
		heap += page_heap_pages() / (PAGE_MARK_UNIT / sizeof(uint16_t));
	return heap + ((huge_mapped() + metadata_bytes()) >> PAGE_SHIFT);
}

static size_t near(void)
{
	size_t soft = __atomic_load_n(&limits.soft, __ATOMIC_RELAXED);

	return soft - soft / NEAR_PART;
}

__attribute__((noinline, cold)) size_t limit_room(void)
{
	size_t used = in_use() + huge_waiting(), most = near();

	return used < most ? most - used : 0;
}

__attribute__((noinline, cold)) bool limit_exceeds(size_t pages)
{
	size_t hard = __atomic_load_n(&limits.hard, __ATOMIC_RELAXED), used = in_use();

	return used > hard || pages > hard - used;
}

__attribute__((noinline, cold)) void limit_note(size_t pages)
{
	__atomic_fetch_add(&limits.taken, pages, __ATOMIC_RELAXED);
}

__attribute__((noinline, cold)) static bool presses(size_t pages)
{
	size_t step = __atomic_load_n(&limits.step, __ATOMIC_RELAXED);
	size_t used = in_use() + huge_waiting(), most = near();

	if (used + pages <= most) {
		__atomic_store_n(&limits.step, least_step(), __ATOMIC_RELAXED);
		return false;
	}
	/* After no more than a step: the last time gained nothing, or as much was taken since. */
	__atomic_store_n(&limits.taken, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&limits.step,
			 min_t(size_t, 2 * step, max_t(size_t, limits.soft / STEP_PART_VAIN, STEP_LEAST)),
			 __ATOMIC_RELAXED);
	return true;
}

bool page_presses(size_t pages)
{
	return limit_is_set() &&
	       __atomic_load_n(&limits.taken, __ATOMIC_RELAXED) + pages >=
		       __atomic_load_n(&limits.step, __ATOMIC_RELAXED) &&
	       presses(pages);
}
