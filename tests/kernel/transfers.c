/* SPDX-License-Identifier: MIT */
/*
 * See modules.h.  Three kinds of memory, each with a pool: the transfer, its segments if there are many, and
 * the pages.  Everybody allocates them in this order, so no two transfers wait for each other: one that has
 * its pages waits for nothing, and returns all three.
 */
#include "modules.h"

#include <linux/atomic.h>
#include <linux/bug.h>
#include <linux/build_bug.h>
#include <linux/export.h>
#include <linux/kernel.h>
#include <linux/mempool.h>
#include <linux/mm.h>
#include <linux/slab.h>

#define MOST_SEGMENTS 256
#define OWN_SEGMENTS  4
#define IN_RESERVE    2

struct segment {
	struct page *page;
	unsigned int bytes;
};

/* Arrays of segments, all of the same length. */
struct store {
	const char *name;
	unsigned int length;
	struct kmem_cache *cache;
	mempool_t pool;
};

struct transfer {
	atomic_t holders;
	unsigned int room, filled;
	struct store *store; /* origin of the segments; NULL if they are embedded */
	struct segment *segments;
	struct segment own[];
};

static struct store stores[] __read_mostly = {
	{"segments-16", 16, NULL, {}},
	{"segments-48", 48, NULL, {}},
	{"segments-256", MOST_SEGMENTS, NULL, {}},
};
static struct store *const no_store = stores + ARRAY_SIZE(stores);
static struct kmem_cache *transfer_cache;
static mempool_t transfer_pool;
static struct mempool *page_pool;

static int __init open_store(struct store *store)
{
	size_t bytes = array_size(store->length, sizeof(struct segment));

	store->cache = kmem_cache_create(store->name, bytes, 0, SLAB_HWCACHE_ALIGN | SLAB_PANIC, NULL);
	return mempool_init_slab_pool(&store->pool, IN_RESERVE, store->cache);
}

int __init transfers_init(void)
{
	size_t bytes = struct_size_t(struct transfer, own, OWN_SEGMENTS);
	int error;

	BUILD_BUG_ON(ARRAY_SIZE(stores) != 3);
	transfer_cache = kmem_cache_create("transfer", bytes, 0, SLAB_HWCACHE_ALIGN | SLAB_PANIC, NULL);
	error = mempool_init_slab_pool(&transfer_pool, IN_RESERVE, transfer_cache);
	for (struct store *store = stores; !error && store < no_store; store++)
		error = open_store(store);
	if (error)
		return error;
	page_pool = mempool_create_page_pool(MOST_SEGMENTS, 0);
	return page_pool ? 0 : -ENOMEM;
}

/* The one with the shortest arrays that are long enough. */
static struct store *store_for(unsigned int segments)
{
	struct store *store = stores;

	while (store < no_store && store->length < segments)
		store++;
	BUG_ON(store == no_store);
	return store;
}

static bool find_segments(struct transfer *transfer, unsigned int segments, gfp_t gfp)
{
	if (likely(segments <= OWN_SEGMENTS)) {
		transfer->room = OWN_SEGMENTS;
		transfer->store = NULL;
		transfer->segments = transfer->own;
		return true;
	}
	transfer->store = store_for(segments);
	transfer->room = transfer->store->length;
	transfer->segments = mempool_alloc(&transfer->store->pool, gfp);
	return transfer->segments;
}

struct transfer *transfer_new(unsigned int segments, gfp_t gfp)
{
	struct transfer *transfer = NULL;

	if (!WARN_ONCE(segments > MOST_SEGMENTS, "%u segments are too many\n", segments))
		transfer = mempool_alloc(&transfer_pool, gfp);
	if (unlikely(!transfer))
		return NULL;
	if (unlikely(!find_segments(transfer, segments, gfp))) {
		mempool_free(transfer, &transfer_pool);
		return NULL;
	}
	atomic_set(&transfer->holders, 1);
	transfer->filled = 0;
	return transfer;
}
EXPORT_SYMBOL(transfer_new);

/* Allocates a page for each segment, all at once, so that no waiter holds some pages that another needs. */
int transfer_fill(struct transfer *transfer)
{
	void *pages[MOST_SEGMENTS] = {NULL};
	int error = mempool_alloc_bulk(page_pool, pages, transfer->room, 0);

	if (!error)
		for (; transfer->filled < transfer->room; transfer->filled++)
			transfer->segments[transfer->filled] =
				(struct segment){.page = pages[transfer->filled], .bytes = PAGE_SIZE};
	return error;
}
EXPORT_SYMBOL(transfer_fill);

void transfer_visit(struct transfer *transfer, void (*visit)(struct page *page))
{
	const struct segment *end = transfer->segments + transfer->filled;

	for (const struct segment *segment = transfer->segments; segment < end; segment++)
		visit(segment->page);
}
EXPORT_SYMBOL(transfer_visit);

/* The reserve first; surplus pages go to the system. */
static void give_pages_back(struct transfer *transfer)
{
	void *pages[MOST_SEGMENTS];
	unsigned int kept;

	for (unsigned int i = 0; i < transfer->filled; i++)
		pages[i] = transfer->segments[i].page;
	kept = mempool_free_bulk(page_pool, pages, transfer->filled);
	while (transfer->filled > kept)
		__free_page(pages[--transfer->filled]);
}

void transfer_put(struct transfer *transfer)
{
	if (!atomic_dec_and_test(&transfer->holders))
		return;
	give_pages_back(transfer);
	if (transfer->store)
		mempool_free(transfer->segments, &transfer->store->pool);
	mempool_free(transfer, &transfer_pool);
}
EXPORT_SYMBOL(transfer_put);

void transfers_exit(void)
{
	mempool_destroy(page_pool);
	for (struct store *store = stores; store < no_store; store++) {
		mempool_exit(&store->pool);
		kmem_cache_destroy(store->cache);
	}
	mempool_exit(&transfer_pool);
	kmem_cache_destroy(transfer_cache);
}
