/* SPDX-License-Identifier: MIT */
/*
 * magazine_glance: statistics count objects below words that other threads use.  By the time such a word is
 * followed its magazine may have been freed and become other metadata, at the very end of the region: nothing
 * behind that is read, and no address found there is followed.
 */
#include "check.h"

#include "magazine/magazine.h"
#include "page/layout.h"

static struct cache cache;

/* A page of metadata with nothing mapped behind it. */
static uintptr_t *last_page(void)
{
	char *page;

	do {
		page = metadata_alloc(PAGE_BYTES);
		CHECK(page);
	} while (page + PAGE_BYTES != layout.metadata.base + layout.metadata.committed);
	return (uintptr_t *)(void *)page;
}

static uintptr_t *some_word(void)
{
	for (unsigned id = 0; id < vcpu_ids(); id++) {
		uintptr_t *word = vcpu_word(id, cache.number);

		if (word)
			return word;
	}
	CHECK(false, "no vCPU has an area");
	return NULL;
}

int main(void)
{
	enum { SLOTS = PAGE_BYTES / sizeof(uintptr_t) };
	static const struct slab_traits traits = {.name = "glanced at", .size = 64};

	check_watchdog(60);
	free(malloc(1));
	CHECK(magazine_create(&cache, &traits, 0, NULL));

	uintptr_t *page = last_page(), *word = some_word();
	/* Looks like a magazine's end mark, except for its target. */
	const uintptr_t beyond = ((uintptr_t)layout.metadata.base + layout.metadata.planned - PAGE_BYTES) | 1;
	const uintptr_t across = (uintptr_t)(page + SLOTS - 1) | 1;
	const uintptr_t contents[] = {0, UINTPTR_MAX - 1, beyond, across};

	for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
		for (unsigned slot = 0; slot < SLOTS; slot++)
			page[slot] = contents[i];
		for (unsigned slot = 0; slot < SLOTS; slot++) {
			*word = (uintptr_t)&page[slot];
			CHECK(magazine_objects_loaded(&cache) <= DEPOT_CAPACITY_MAX);
		}
	}
	*word = vcpu_void;
	return 0;
}
