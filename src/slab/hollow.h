/* SPDX-License-Identifier: MIT */
/*
 * slab/hollow: pages of a slab that take no memory, because none of its objects in them is allocated.
 *
 * Nothing of ours lies in a slab, so that such a page can go back to the system while its objects stay in the
 * free list.  They read as zero then, and whoever is handed one gets a fresh page by touching it.
 *
 * For the slab room's own files, about a slab whose lock the caller has.
 *
 * Fork: a bit is set after its page went, and a repair takes those for hollow in which no object is
 * allocated.
 */
#ifndef CPUSLAB_HOLLOW_H
#define CPUSLAB_HOLLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "slab/slab.h"

/* Pages' worth of free objects that are worth a walk; and objects in a page, with which few have none. */
enum { HOLLOW_LEAST = 32, HOLLOW_SHARING = 2 };

/*
 * Whether slabs of a cache may have such pages: more than one, nothing in free objects that must be found
 * again, and pages that nobody else gives back.
 */
bool hollow_is_for(const struct slab_cache *cache);
/* A bit for each page of a slab that would free memory. */
uint32_t hollow_pages(const struct slab_cache *cache, const struct slab *slab);
/* Pages of one slab that lie in a row. */
struct hollow_row {
	struct slab *slab;
	uint32_t pages;
};
/* Takes the first row off these pages. */
uint32_t hollow_first_row(uint32_t *pages);
/*
 * Gives rows back, OS_RANGES of them at most, by one system call where the system lets.  Returns how many, in
 * their order; fewer where it refuses.
 */
unsigned hollow_give_back(struct slab_cache *cache, const struct hollow_row *rows, unsigned count);
/* After objects were allocated from a slab: what they lie in will be touched. */
void hollow_fill(struct slab_cache *cache, struct slab *slab, void *const *objects, unsigned count);
/* Before a slab leaves its cache. */
void hollow_forget(struct slab *slab);
/* In a forked child, when the slab's marks are right and its cache's count is of those before it. */
void hollow_repair(struct slab_cache *cache, struct slab *slab);

#endif
