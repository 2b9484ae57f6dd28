/* SPDX-License-Identifier: MIT */
#include "page/page.h"

#include "page/layout.h"
#include "page/metadata.h"
#include "page/run.h"

bool page_init(void)
{
	if (!layout.heap.base) {
		run_init();
		if (!layout_init())
			return false;
	}
	return metadata_provide(0);
}

void page_open(bool all_ours)
{
	layout_admit_forwards(all_ours);
	layout_open();
}

void page_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("page.front", (uintptr_t)&page_front, sizeof page_front);
	show("front.map", offsetof(struct page_front, map), sizeof(uint16_t *));
	show("page.entries", (uintptr_t)&page_entries, sizeof page_entries);
	show("front.slab_of", offsetof(struct page_front, slab_of), sizeof(uint32_t *));
	show("front.metadata", offsetof(struct page_front, metadata), sizeof(char *));
	/* In this order: heap, page map, slab_of, runs, metadata. */
	show("page.regions", (uintptr_t)&layout, sizeof layout);
	show("region", 0, sizeof(struct region));
	show("region.base", offsetof(struct region, base), sizeof(char *));
	show("region.committed", offsetof(struct region, committed), sizeof(size_t));
	run_show(show);
	metadata_show(show);
	huge_show(show);
}

bool page_is_torn(void)
{
	return metadata_is_torn() || run_is_torn() || huge_is_torn();
}

void page_repair(bool all)
{
	metadata_repair(all);
	run_repair(all);
	huge_repair(all);
}
