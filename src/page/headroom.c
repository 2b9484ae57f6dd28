/* SPDX-License-Identifier: MIT */
#include "page/headroom.h"

#include "page/handover.h"
#include "page/layout.h"
#include "page/page.h"
#include "page/run.h"

enum { CLEAN = 1, PAGES_SHIFT = 1, START_SHIFT = 32 };

/*
 * From bit 0: whether the pages are clean; their number; their first page, which is never 0 behind a run.  A
 * number of 0 means that the run has taken them all.  The word is 0 where the place is empty, or a thread has
 * taken it to grow.
 */
static uint64_t words[HEADROOM_PLACES] __attribute__((aligned(64)));
/* Pages put into each place and not known to have been taken by its run. */
static uint32_t kept[HEADROOM_PLACES];
/* Stays true while a thread has taken the word to grow. */
static bool filled[HEADROOM_PLACES];

static uint64_t word_of(struct headroom headroom)
{
	return (uint64_t)headroom.start << START_SHIFT | headroom.pages << PAGES_SHIFT | headroom.clean;
}

static struct headroom headroom_of(uint64_t word)
{
	return (struct headroom){.start = (uint32_t)(word >> START_SHIFT),
				 .pages = (uint32_t)word >> PAGES_SHIFT,
				 .clean = word & CLEAN};
}

unsigned headroom_place(uint32_t run)
{
	return (unsigned)(run * 0x9e3779b97f4a7c15u >> 62);
}

/*
 * After each of these stores the last page of the run and its headroom are marked as used or in transit, so
 * that neither neighbour takes them for free; and a repair that sees the old length marks the run's old end.
 */
static void grow_into(struct run *run, uint32_t first, struct headroom headroom, uint32_t pages)
{
	uint32_t old = run->pages, end = first + pages;

	handover_mark(end - 1, PAGE_LARGE_TAIL);
	if (end < headroom.start + headroom.pages)
		handover_mark(end, PAGE_TRANSIT);
	if (headroom.start < end - 1)
		handover_mark(headroom.start, PAGE_FREE);
	if (old > 1)
		handover_mark(first + old - 1, PAGE_FREE);
	__atomic_store_n(&run->pages, pages, __ATOMIC_RELEASE);
}

bool headroom_is_behind(uint32_t first, uint32_t pages)
{
	return headroom_of(handover_look(&words[headroom_place(first)])).start == first + pages;
}

bool page_large_grow(void *address, size_t pages)
{
	uint32_t first = (uint32_t)(page_of(address) - page_front.heap_page);
	struct run *run = (struct run *)layout.runs.base + first;
	uint64_t *place = &words[headroom_place(first)], word = handover_look(place);
	struct headroom headroom = headroom_of(word);
	size_t old = run->pages, more = pages - old;

	if (pages <= old)
		return pages == old;
	if (headroom.start != first + old || headroom.pages < more || !handover_exchange(place, word, 0))
		return false;
	grow_into(run, first, headroom, (uint32_t)pages);
	headroom.start += (uint32_t)more;
	headroom.pages -= (uint32_t)more;
	__atomic_store_n(place, word_of(headroom), __ATOMIC_RELEASE);
	return true;
}

void headroom_put(unsigned place, struct headroom headroom)
{
	kept[place] = headroom.pages;
	filled[place] = true;
	__atomic_store_n(&words[place], word_of(headroom), __ATOMIC_RELEASE);
}

bool headroom_is_empty(unsigned place)
{
	return !filled[place];
}

bool headroom_is_kept(void)
{
	bool any = false;

	for (unsigned place = 0; place < HEADROOM_PLACES; place++)
		any |= filled[place];
	return any;
}

/* Decodes a place's word and updates what is known to be kept there. */
static bool account(unsigned place, uint64_t word, struct headroom *headroom)
{
	if (!word)
		return false;
	*headroom = headroom_of(word);
	headroom->grown = kept[place] - headroom->pages;
	kept[place] = headroom->pages;
	return true;
}

bool headroom_look(unsigned place, struct headroom *headroom)
{
	return account(place, handover_look(&words[place]), headroom);
}

bool headroom_take(unsigned place, struct headroom *headroom)
{
	uint64_t word = handover_look(&words[place]);

	/* Failed: a thread is growing into it just now. */
	if (word && !handover_exchange(&words[place], word, 0))
		return false;
	if (!account(place, word, headroom))
		return false;
	filled[place] = false;
	return true;
}

size_t headroom_pages(void)
{
	size_t pages = 0;

	for (unsigned place = 0; place < HEADROOM_PLACES; place++)
		pages += headroom_of(handover_look(&words[place])).pages;
	return pages;
}

bool headroom_is_in_hand(void)
{
	for (unsigned place = 0; place < HEADROOM_PLACES; place++)
		if (filled[place] && !handover_look(&words[place]))
			return true;
	return false;
}

void headroom_repair(void)
{
	for (unsigned place = 0; place < HEADROOM_PLACES; place++) {
		__atomic_store_n(&words[place], 0, __ATOMIC_RELAXED);
		filled[place] = false;
	}
}

void headroom_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("headroom.words", (uintptr_t)words, sizeof words);
	show("headroom.kept", (uintptr_t)kept, sizeof kept);
	show("headroom.pages_shift", PAGES_SHIFT, 0);
}
