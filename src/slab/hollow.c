/* SPDX-License-Identifier: MIT */
#include "slab/hollow.h"

#include <assert.h>

#include "os/os.h"
#include "page/page.h"
#include "slab/descriptor.h"
#include "slab/state.h"

/* A hardened slab ends in a page without access. */
static uint32_t object_pages(const struct slab_cache *cache)
{
	return cache->pages - cache->traits.hardened;
}

bool hollow_is_for(const struct slab_cache *cache)
{
	const struct slab_traits *traits = &cache->traits;

	return object_pages(cache) > 1 && cache->objects > 1 && cache->pages <= 32 &&
	       !slab_keeps_content(traits) && !traits->untouchable && !traits->checks;
}

/* The pages from byte `first` to byte `last` of a slab, inclusive; of at most 32 pages (hollow_is_for). */
static uint32_t pages_between(size_t first, size_t last)
{
	return (2u << (last >> PAGE_SHIFT)) - (1u << (first >> PAGE_SHIFT));
}

/* The pages in which an object is allocated. */
static uint32_t pages_in_use(const struct slab_cache *cache, const struct slab *slab)
{
	const size_t size = cache->traits.size;
	uint32_t pages = 0;

	for (unsigned i = 0; i < slab->bump; i++)
		if (slab_is_allocated(slab, i, cache->wide))
			pages |= pages_between(i * size, (i + 1) * size - 1);
	return pages;
}

uint32_t hollow_pages(const struct slab_cache *cache, const struct slab *slab)
{
	size_t touched = slab->clean_tail ? slab->bump * (size_t)cache->traits.size
					  : (size_t)object_pages(cache) * PAGE_BYTES;

	if (cpuslab_pagelock_flags(&slab->lock) & SLAB_PURGED)
		return 0;
	return touched ? pages_between(0, touched - 1) & ~slab->hollow & ~pages_in_use(cache, slab) : 0;
}

static void set_hollow(struct slab_cache *cache, struct slab *slab, uint32_t pages)
{
	long more = __builtin_popcount(pages) - __builtin_popcount(slab->hollow);

	slab->hollow = pages;
	/* In this order, so that a child forked in between never subtracts more from the page room's count
	 * than it has. */
	if (more > 0)
		page_count_hollow(more);
	__atomic_fetch_add(&cache->hollow, (uint64_t)more, __ATOMIC_RELEASE);
	if (more < 0)
		page_count_hollow(more);
}

uint32_t hollow_first_row(uint32_t *pages)
{
	/* Adding the row's lowest bit clears the row and carries into the bit above it. */
	uint32_t row = *pages & ~(*pages + (*pages & -*pages));

	*pages &= ~row;
	return row;
}

unsigned hollow_give_back(struct slab_cache *cache, const struct hollow_row *rows, unsigned count)
{
	struct os_range ranges[OS_RANGES];

	assert(count <= OS_RANGES);
	for (unsigned i = 0; i < count; i++)
		ranges[i] = (struct os_range){rows[i].slab->base +
						      (size_t)__builtin_ctz(rows[i].pages) * PAGE_BYTES,
					      (size_t)__builtin_popcount(rows[i].pages) * PAGE_BYTES};
	count = page_hollow(ranges, count);
	for (unsigned i = 0; i < count; i++)
		set_hollow(cache, rows[i].slab, rows[i].slab->hollow | rows[i].pages);
	return count;
}

void hollow_fill(struct slab_cache *cache, struct slab *slab, void *const *objects, unsigned count)
{
	uint32_t filled = 0;

	for (unsigned n = 0; n < count; n++) {
		size_t offset = (size_t)((const char *)objects[n] - slab->base);

		filled |= pages_between(offset, offset + cache->traits.size - 1);
	}
	if (filled & slab->hollow)
		set_hollow(cache, slab, slab->hollow & ~filled);
}

void hollow_forget(struct slab *slab)
{
	if (slab->hollow)
		set_hollow(slab->cache, slab, 0);
}

void hollow_repair(struct slab_cache *cache, struct slab *slab)
{
	if (!slab->hollow)
		return;

	uint32_t hollow = slab->hollow & ~pages_in_use(cache, slab);

	slab->hollow = 0;
	set_hollow(cache, slab, hollow);
}
