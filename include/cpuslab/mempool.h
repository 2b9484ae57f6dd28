/* SPDX-License-Identifier: MIT */
/*
 * The kernel's memory pools (linux/mempool.h) in user space: an allocator backed by a reserve, so that
 * mempool_alloc() with GFP_KERNEL always succeeds as long as elements come back.
 *
 * mempool_alloc() asks the allocator first, without waiting, and then takes from the reserve.  If it may
 * wait, it goes on with the allocator under the flags given, then the reserve, then sleeps until an element
 * is freed or five seconds have passed, and repeats this.  A freed element fills the reserve before it goes
 * to the allocator.
 *
 * Any thread may call mempool_alloc and mempool_free.  Without __GFP_DIRECT_RECLAIM mempool_alloc waits for
 * no other thread: if the pool's lock is taken, it returns NULL.  The page pools' elements are of type
 * `struct page *` (gfp.h).
 */
#ifndef CPUSLAB_MEMPOOL_H
#define CPUSLAB_MEMPOOL_H

#include <stdbool.h>

#include "cpuslab/gfp.h"
#include "cpuslab/lock.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kmem_cache;

typedef void *(mempool_alloc_t)(gfp_t flags, void *pool_data);
typedef void(mempool_free_t)(void *element, void *pool_data);

/* struct mempool_s before Linux 6.19. */
#define mempool_s mempool

typedef struct mempool {
	struct cpuslab_spinlock lock;
	int min_nr;  /* target size of the reserve, in elements */
	int curr_nr; /* its size now */
	void **elements;
	void *pool_data;
	mempool_alloc_t *alloc;
	mempool_free_t *free;
	unsigned waiting;             /* sleeping threads */
	unsigned waiting_for_several; /* those of them for which one element may not be enough */
	uint32_t freed;               /* the futex they sleep on: changes when they are to wake */
} mempool_t;

/*
 * The library's functions behind the names below.  cpuslab_mempool_init allocates `min_nr` elements at once,
 * and returns 0 or -ENOMEM.  cpuslab_mempool_resize returns 0 or -ENOMEM, and must not run concurrently with
 * another resize.
 */
CPUSLAB_API int cpuslab_mempool_init(mempool_t *pool, int min_nr, mempool_alloc_t *alloc,
				     mempool_free_t *release, void *pool_data, gfp_t flags);
CPUSLAB_API void cpuslab_mempool_exit(mempool_t *pool);
CPUSLAB_API int cpuslab_mempool_resize(mempool_t *pool, int min_nr);
CPUSLAB_API void *cpuslab_mempool_alloc(mempool_t *pool, gfp_t flags);
CPUSLAB_API void *cpuslab_mempool_take(mempool_t *pool);
CPUSLAB_API void cpuslab_mempool_alloc_bulk(mempool_t *pool, void **elements, unsigned int count);
CPUSLAB_API void cpuslab_mempool_free(void *element, mempool_t *pool);
CPUSLAB_API unsigned int cpuslab_mempool_free_bulk(mempool_t *pool, void **elements, unsigned int count);

/* Initializes a pool in the caller's memory.  Returns 0 or -ENOMEM. */
static inline int mempool_init_node(mempool_t *pool, int min_nr, mempool_alloc_t *alloc,
				    mempool_free_t *release, void *pool_data, gfp_t flags, int node)
{
	(void)node;
	return cpuslab_mempool_init(pool, min_nr, alloc, release, pool_data, flags);
}

static inline int mempool_init(mempool_t *pool, int min_nr, mempool_alloc_t *alloc, mempool_free_t *release,
			       void *pool_data)
{
	return cpuslab_mempool_init(pool, min_nr, alloc, release, pool_data, GFP_KERNEL);
}

/* Frees the reserve.  Harmless on a pool of zeros, and when called twice. */
static inline void mempool_exit(mempool_t *pool)
{
	cpuslab_mempool_exit(pool);
}

static inline bool mempool_initialized(mempool_t *pool)
{
	return pool->elements != NULL;
}

static inline bool mempool_is_saturated(mempool_t *pool)
{
	return __atomic_load_n(&pool->curr_nr, __ATOMIC_RELAXED) >=
	       __atomic_load_n(&pool->min_nr, __ATOMIC_RELAXED);
}

/* Allocates and initializes a pool; NULL when memory is short. */
static inline mempool_t *mempool_create_node(int min_nr, mempool_alloc_t *alloc, mempool_free_t *release,
					     void *pool_data, gfp_t flags, int node)
{
	mempool_t *pool = (mempool_t *)cpuslab_kmem_obtain(sizeof(void *), sizeof(mempool_t), flags);

	if (pool && mempool_init_node(pool, min_nr, alloc, release, pool_data, flags, node) != 0) {
		free(pool);
		pool = NULL;
	}
	return pool;
}

static inline mempool_t *mempool_create(int min_nr, mempool_alloc_t *alloc, mempool_free_t *release,
					void *pool_data)
{
	return mempool_create_node(min_nr, alloc, release, pool_data, GFP_KERNEL, NUMA_NO_NODE);
}

static inline void mempool_destroy(mempool_t *pool)
{
	if (pool)
		mempool_exit(pool);
	free(pool);
}

/* Changes the size of the reserve while the pool is in use.  Returns 0 or -ENOMEM. */
static inline int mempool_resize(mempool_t *pool, int min_nr)
{
	return cpuslab_mempool_resize(pool, min_nr);
}

/* Never NULL with __GFP_DIRECT_RECLAIM.  Not for __GFP_ZERO: elements of the reserve are not zeroed. */
static inline void *mempool_alloc(mempool_t *pool, gfp_t flags)
{
	return cpuslab_mempool_alloc(pool, flags);
}

/* Takes an element from the reserve alone; NULL when it is empty. */
static inline void *mempool_alloc_preallocated(mempool_t *pool)
{
	return cpuslab_mempool_take(pool);
}

/*
 * Since Linux 6.19: allocates an element for each NULL slot among the `count`, whatever `allocated` says of
 * how many are filled.  Always succeeds, and returns 0: it may wait as with GFP_KERNEL, and meanwhile holds
 * nothing of the reserve, which must be `count` elements large.
 */
static inline int mempool_alloc_bulk(mempool_t *pool, void **elements, unsigned int count,
				     unsigned int allocated)
{
	(void)allocated;
	cpuslab_mempool_alloc_bulk(pool, elements, count);
	return 0;
}

/*
 * Moves the first elements into the reserve, as many as it has room for, and sets their slots to NULL.
 * Returns their number; the caller must free the others.
 */
static inline unsigned int mempool_free_bulk(mempool_t *pool, void **elements, unsigned int count)
{
	return cpuslab_mempool_free_bulk(pool, elements, count);
}

/* NULL is ignored. */
static inline void mempool_free(void *element, mempool_t *pool)
{
	cpuslab_mempool_free(element, pool);
}

/* ---- allocators: pool_data is a cache, a size in bytes, or an order of pages --------------------------- */

CPUSLAB_API void *cpuslab_mempool_alloc_slab(gfp_t flags, void *pool_data);
CPUSLAB_API void cpuslab_mempool_free_slab(void *element, void *pool_data);
CPUSLAB_API void *cpuslab_mempool_kmalloc(gfp_t flags, void *pool_data);
CPUSLAB_API void cpuslab_mempool_kfree(void *element, void *pool_data);
CPUSLAB_API void *cpuslab_mempool_alloc_pages(gfp_t flags, void *pool_data);
CPUSLAB_API void cpuslab_mempool_free_pages(void *element, void *pool_data);

/* Functions in the library, so that each has one address. */
#define mempool_alloc_slab  cpuslab_mempool_alloc_slab
#define mempool_free_slab   cpuslab_mempool_free_slab
#define mempool_kmalloc     cpuslab_mempool_kmalloc
#define mempool_kfree       cpuslab_mempool_kfree
#define mempool_alloc_pages cpuslab_mempool_alloc_pages
#define mempool_free_pages  cpuslab_mempool_free_pages

static inline int mempool_init_slab_pool(mempool_t *pool, int min_nr, struct kmem_cache *cache)
{
	return mempool_init(pool, min_nr, mempool_alloc_slab, mempool_free_slab, (void *)cache);
}

static inline mempool_t *mempool_create_slab_pool(int min_nr, struct kmem_cache *cache)
{
	return mempool_create(min_nr, mempool_alloc_slab, mempool_free_slab, (void *)cache);
}

static inline int mempool_init_kmalloc_pool(mempool_t *pool, int min_nr, size_t size)
{
	return mempool_init(pool, min_nr, mempool_kmalloc, mempool_kfree, (void *)size);
}

static inline mempool_t *mempool_create_kmalloc_pool(int min_nr, size_t size)
{
	return mempool_create(min_nr, mempool_kmalloc, mempool_kfree, (void *)size);
}

static inline int mempool_init_page_pool(mempool_t *pool, int min_nr, int order)
{
	return mempool_init(pool, min_nr, mempool_alloc_pages, mempool_free_pages, (void *)(long)order);
}

static inline mempool_t *mempool_create_page_pool(int min_nr, int order)
{
	return mempool_create(min_nr, mempool_alloc_pages, mempool_free_pages, (void *)(long)order);
}

#ifdef __cplusplus
}
#endif
#endif
