/* SPDX-License-Identifier: MIT */
/*
 * slab/hollow: pages of a slab that take no memory, because no object in them is allocated.
 *
 * No metadata lies in a slab, so such a page can go back to the system while its objects stay in the free
 * list.  They read as zero then, and touching one brings a fresh page.
 *
 * For the slab room's own files.  The caller has the slab's lock.
 *
 * Fork: a bit is set after its page was given back.  A repair keeps the bits of pages in which no object is
 * allocated.
 */
#ifndef CPUSLAB_HOLLOW_H
#define CPUSLAB_HOLLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "slab/slab.h"

/*
 * Whether slabs of a cache can have hollow pages: they have several, up to 32, and several objects; content
 * need not survive a free; and nothing else gives their pages back.
 */
bool hollow_is_for(const struct slab_cache *cache);
/* Returns a bit for each page that would free memory if it were given back. */
uint32_t hollow_pages(const struct slab_cache *cache, const struct slab *slab);
/* A row of adjacent pages of one slab. */
struct hollow_row {
	struct slab *slab;
	uint32_t pages;
};
/* Removes the first row from `pages`, and returns it. */
uint32_t hollow_first_row(uint32_t *pages);
/*
 * Gives back up to OS_RANGES rows.  Returns how many, in their order; fewer where the system refuses.
 */
unsigned hollow_give_back(struct slab_cache *cache, const struct hollow_row *rows, unsigned count);
/* Clears the bits of pages in which these objects lie, which were just allocated and will be touched. */
void hollow_fill(struct slab_cache *cache, struct slab *slab, void *const *objects, unsigned count);
/* Clears all bits, before the slab leaves its cache. */
void hollow_forget(struct slab *slab);
/* In a forked child, once the slab's indexes are right and the cache's count is of slabs repaired before. */
void hollow_repair(struct slab_cache *cache, struct slab *slab);

#endif
