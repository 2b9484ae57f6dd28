/* SPDX-License-Identifier: MIT */
#include "depot/order.h"

#include <string.h>

#include "page/page.h"

enum {
	LOOKS = 11, /* pairs compared, on the two or three cache lines of a magazine that are needed first */
	WORDS = PAGE_BYTES / ORDER_UNIT / 64,
	PLACES = 256,
	PLACE_BITS = 8
};

/* A bitmap of each page's objects, so that no two need be compared. */
struct order {
	uint64_t objects[ORDER_PAGES][WORDS];
	/* page number, and in the low bits the index of its bitmap in `objects` */
	uint64_t pages[ORDER_PAGES];
	/* hash table of pages with linear probing: the index plus 1, 0 for none */
	uint8_t places[PLACES];
};

_Static_assert(sizeof(struct order) <= METADATA_REUSED_MOST, "the block can be used again");
_Static_assert((int)ORDER_PAGES < PLACES && PLACES <= 1 << PLACE_BITS, "each page finds a place");

bool order_is_missing(const struct magazine *magazine)
{
	unsigned count = magazine->count;
	bool above = false, below = false;

	if (count <= LOOKS)
		return false;
	for (unsigned i = count; i > count - LOOKS; i--) {
		intptr_t apart = (const char *)magazine->slot[i] - (const char *)magazine->slot[i - 1];

		above |= apart < -PAGE_BYTES;
		below |= apart > PAGE_BYTES;
	}
	return above && below;
}

/* Returns the bitmap of a page, added if need be; NULL where there are too many pages. */
static uint64_t *find_page(struct order *order, unsigned *count, uintptr_t page)
{
	unsigned at = page % PLACES, place;

	for (; (place = order->places[at]); at = (at + 1) % PLACES)
		if (order->pages[place - 1] >> PLACE_BITS == page)
			return order->objects[place - 1];
	if (*count == ORDER_PAGES)
		return NULL;
	place = (*count)++;
	order->places[at] = (uint8_t)(place + 1);
	order->pages[place] = page << PLACE_BITS | place;
	return memset(order->objects[place], 0, sizeof order->objects[place]);
}

/*
 * False at an object that cannot be noted, or is already: one freed twice, or by a pointer into its middle,
 * is left for the slabs to find.
 */
static bool note_objects(struct order *order, unsigned *count, const struct magazine *magazine)
{
	for (unsigned i = 1; i <= magazine->count; i++) {
		const void *object = magazine->slot[i];
		uint64_t *words = find_page(order, count, page_of(object));
		unsigned unit = (unsigned)((uintptr_t)object % PAGE_BYTES / ORDER_UNIT);
		uint64_t bit = UINT64_C(1) << unit % 64;

		if (!words || words[unit / 64] & bit || (uintptr_t)object % ORDER_UNIT)
			return false;
		words[unit / 64] |= bit;
	}
	return true;
}

/* Insertion sort: the pages are few, and mostly come in order. */
static void sort_pages(uint64_t *pages, unsigned count)
{
	for (unsigned i = 1; i < count; i++) {
		uint64_t page = pages[i];
		unsigned at = i;

		for (; at && pages[at - 1] > page; at--)
			pages[at] = pages[at - 1];
		pages[at] = page;
	}
}

/* Refills the magazines; there are as many objects as they had. */
static void put_back(const struct order *order, unsigned pages, struct magazine *const *magazines)
{
	void **slot = &(*magazines)->slot[(*magazines)->count];

	for (unsigned i = 0; i < pages; i++) {
		const uint64_t *words = order->objects[order->pages[i] % (1 << PLACE_BITS)];
		uintptr_t base = order->pages[i] >> PLACE_BITS << PAGE_SHIFT;

		for (unsigned w = 0; w < WORDS; w++, base += 64 * ORDER_UNIT)
			for (uint64_t word = words[w]; word; word &= word - 1) {
				while (slot == &(*magazines)->slot[0]) {
					magazines++;
					slot = &(*magazines)->slot[(*magazines)->count];
				}
				*slot-- = (void *)(base + (uintptr_t)__builtin_ctzll(word) * ORDER_UNIT);
			}
	}
}

bool order_by_address(struct magazine *const *magazines, unsigned count)
{
	struct order *order = metadata_alloc(sizeof *order);
	unsigned pages = 0;
	bool noted = order;

	if (!order)
		return false;
	memset(order->places, 0, sizeof order->places);
	for (unsigned m = 0; m < count && noted; m++)
		noted = note_objects(order, &pages, magazines[m]);
	if (noted) {
		sort_pages(order->pages, pages);
		put_back(order, pages, magazines);
	}
	metadata_free(order, sizeof *order);
	return noted;
}
