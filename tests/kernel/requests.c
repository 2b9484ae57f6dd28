/* SPDX-License-Identifier: MIT */
/*
 * See modules.h.  A request is served whatever happens to memory: it and its buffer come from pools whose
 * allocators fail under memory pressure, and anything not needed for progress is omitted if unavailable.
 * Requests are queued, and served in batches.
 */
#include "modules.h"

#include <linux/atomic.h>
#include <linux/bug.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/mempool.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#define BUFFER 1536

struct request {
	struct list_head queued;
	u64 sector;
	u8 *buffer;
	char *label; /* or NULL */
};

static struct kmem_cache *request_cache, *buffer_cache;
static mempool_t *request_pool;
static mempool_t buffer_pool;
static bool pressure;
static atomic_long_t refused = ATOMIC_LONG_INIT(0);
static DEFINE_SPINLOCK(queue_lock);
static LIST_HEAD(queue);

static bool is_refused(gfp_t gfp)
{
	/* A pool first tries without waiting, and never passes __GFP_NOFAIL on. */
	WARN_ON_ONCE(gfp & __GFP_NOFAIL);
	if (!READ_ONCE(pressure))
		return false;
	atomic_long_inc(&refused);
	return true;
}

static void *alloc_request(gfp_t gfp, void *data)
{
	return is_refused(gfp) ? NULL : mempool_alloc_slab(gfp, data);
}

static void *alloc_buffer(gfp_t gfp, void *data)
{
	return is_refused(gfp) ? NULL : kmem_cache_zalloc(data, gfp);
}

int __init requests_init(unsigned int reserve)
{
	int error = -ENOMEM;

	request_cache = KMEM_CACHE(request, SLAB_HWCACHE_ALIGN | SLAB_TEMPORARY);
	if (!request_cache)
		return error;
	buffer_cache = kmem_cache_create_usercopy("request_buffer", BUFFER, SMP_CACHE_BYTES,
						  SLAB_HWCACHE_ALIGN, 0, BUFFER, NULL);
	if (!buffer_cache)
		goto no_buffers;
	request_pool = mempool_create(reserve, alloc_request, mempool_free_slab, request_cache);
	if (!request_pool)
		goto no_pool;
	error = mempool_init(&buffer_pool, reserve, alloc_buffer, mempool_free_slab, buffer_cache);
	if (!error)
		return 0;
	mempool_destroy(request_pool);
no_pool:
	kmem_cache_destroy(buffer_cache);
no_buffers:
	kmem_cache_destroy(request_cache);
	return error;
}

void requests_press(bool pressed)
{
	WRITE_ONCE(pressure, pressed);
}

long requests_refused(void)
{
	return atomic_long_read(&refused);
}

int requests_reserve(unsigned int reserve)
{
	int error = mempool_resize(request_pool, reserve);

	return error ? error : mempool_resize(&buffer_pool, reserve);
}

/* Never fails: the caller serves what is queued, or has others serve it. */
struct request *request_new(u64 sector)
{
	unsigned int saved = memalloc_noio_save();
	struct request *request = mempool_alloc(request_pool, GFP_KERNEL);

	might_alloc(GFP_NOIO);
	request->sector = sector;
	request->buffer = mempool_alloc(&buffer_pool, GFP_NOIO);
	request->label =
		READ_ONCE(pressure) ? NULL : kasprintf(GFP_NOWAIT, "sector %llu", (unsigned long long)sector);
	memalloc_noio_restore(saved);
	return request;
}

u8 *request_buffer(struct request *request, size_t *bytes)
{
	*bytes = BUFFER;
	return request->buffer;
}

static void free_request(struct request *request)
{
	kfree(request->label);
	/* A buffer returned to the reserve must be as clean as a new one. */
	memzero_explicit(request->buffer, BUFFER);
	mempool_free(request->buffer, &buffer_pool);
	mempool_free(request, request_pool);
}

void request_queue(struct request *request)
{
	guard(spinlock_irq)(&queue_lock);
	list_add_tail(&request->queued, &queue);
}

unsigned int requests_serve(u64 *sectors)
{
	struct request *request, *ahead;
	unsigned int served = 0;
	LIST_HEAD(batch);

	scoped_guard(spinlock_irq, &queue_lock) list_splice_tail_init(&queue, &batch);
	list_for_each_entry_safe(request, ahead, &batch, queued)
	{
		list_del(&request->queued);
		*sectors += request->sector;
		free_request(request);
		served++;
	}
	return served;
}

void requests_exit(void)
{
	WARN_ON(!list_empty(&queue));
	mempool_exit(&buffer_pool);
	mempool_destroy(request_pool);
	kmem_cache_destroy(buffer_cache);
	kmem_cache_destroy(request_cache);
}

MODULE_LICENSE("Dual MIT/GPL");
