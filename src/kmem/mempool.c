/* SPDX-License-Identifier: MIT */
#include <errno.h>

#include "kmem/kmem.h"
#include "os/os.h"

enum { LONGEST_SLEEP = 5 }; /* seconds: the allocator may have memory again, and not tell the pool */

/* Even a pool without a reserve keeps one element: else its waiters would depend on time alone. */
static int reserve_of(int min_nr)
{
	return min_nr > 1 ? min_nr : 1;
}

static void **new_elements(int min_nr, gfp_t flags)
{
	return kmalloc_array((size_t)reserve_of(min_nr), sizeof(void *), flags);
}

/* Takes an element of the reserve; NULL if there is none.  With the lock. */
static void *take(mempool_t *pool)
{
	if (!pool->curr_nr)
		return NULL;
	__atomic_store_n(&pool->curr_nr, pool->curr_nr - 1, __ATOMIC_RELAXED);
	return pool->elements[pool->curr_nr];
}

/* Adds an element to the reserve; false when it is full.  With the lock. */
static bool put(mempool_t *pool, void *element)
{
	if (pool->curr_nr >= reserve_of(pool->min_nr))
		return false;
	pool->elements[pool->curr_nr] = element;
	__atomic_store_n(&pool->curr_nr, pool->curr_nr + 1, __ATOMIC_RELAXED);
	return true;
}

/*
 * Unlocks, and wakes a waiter for each of so many elements that came back.  If any waiter waits for several,
 * wakes all: that one may go to sleep again, and must not have used up another's wake.
 */
static void unlock_and_wake(mempool_t *pool, unsigned elements)
{
	bool any = pool->waiting > 0;
	unsigned woken = pool->waiting_for_several ? pool->waiting : elements;

	if (any)
		__atomic_store_n(&pool->freed, pool->freed + 1, __ATOMIC_RELAXED);
	cpuslab_spin_unlock(&pool->lock);
	if (any)
		os_futex_wake(&pool->freed, (int)woken);
}

/* Allocates until the reserve is full; false when the allocator fails. */
static bool fill(mempool_t *pool, gfp_t flags)
{
	for (;;) {
		cpuslab_spin_lock(&pool->lock);
		bool full = pool->curr_nr >= reserve_of(pool->min_nr);

		cpuslab_spin_unlock(&pool->lock);
		if (full)
			return true;
		void *element = pool->alloc(flags, pool->pool_data);

		if (!element)
			return false;
		cpuslab_mempool_free(element, pool);
	}
}

CPUSLAB_API int cpuslab_mempool_init(mempool_t *pool, int min_nr, mempool_alloc_t *alloc,
				     mempool_free_t *release, void *pool_data, gfp_t flags)
{
	*pool = (mempool_t){.min_nr = min_nr, .pool_data = pool_data, .alloc = alloc, .free = release};
	pool->elements = new_elements(min_nr, flags);
	if (!pool->elements)
		return -ENOMEM;
	if (fill(pool, flags))
		return 0;
	cpuslab_mempool_exit(pool);
	return -ENOMEM;
}

CPUSLAB_API void cpuslab_mempool_exit(mempool_t *pool)
{
	while (pool->curr_nr)
		pool->free(take(pool), pool->pool_data);
	kfree(pool->elements);
	pool->elements = NULL;
}

/* Shrinks the reserve, and frees the elements that no longer fit. */
static void shrink(mempool_t *pool, int min_nr)
{
	cpuslab_spin_lock(&pool->lock);
	__atomic_store_n(&pool->min_nr, min_nr, __ATOMIC_RELAXED);
	while (pool->curr_nr > reserve_of(min_nr)) {
		void *element = take(pool);

		cpuslab_spin_unlock(&pool->lock);
		pool->free(element, pool->pool_data);
		cpuslab_spin_lock(&pool->lock);
	}
	cpuslab_spin_unlock(&pool->lock);
}

CPUSLAB_API int cpuslab_mempool_resize(mempool_t *pool, int min_nr)
{
	if (min_nr <= pool->min_nr) {
		shrink(pool, min_nr);
		return 0;
	}
	void **elements = new_elements(min_nr, GFP_KERNEL), **old = pool->elements;

	if (!elements)
		return -ENOMEM;
	cpuslab_spin_lock(&pool->lock);
	for (int i = 0; i < pool->curr_nr; i++)
		elements[i] = old[i];
	pool->elements = elements;
	__atomic_store_n(&pool->min_nr, min_nr, __ATOMIC_RELAXED);
	cpuslab_spin_unlock(&pool->lock);
	kfree(old);
	/* As in the kernel: later frees bring what cannot be allocated now. */
	(void)fill(pool, GFP_KERNEL);
	return 0;
}

/* Takes the lock; without permission to wait only tries to. */
static bool lock_by(mempool_t *pool, gfp_t flags)
{
	if (!gfpflags_allow_blocking(flags))
		return cpuslab_spin_trylock(&pool->lock);
	cpuslab_spin_lock(&pool->lock);
	return true;
}

/* Takes an element of the reserve, if need be after a sleep; NULL if there is none then. */
static void *take_or_sleep(mempool_t *pool)
{
	const struct timespec longest = {.tv_sec = LONGEST_SLEEP};

	cpuslab_spin_lock(&pool->lock);
	void *element = take(pool);
	uint32_t freed = pool->freed;

	if (!element)
		pool->waiting++;
	cpuslab_spin_unlock(&pool->lock);
	if (element)
		return element;
	/* No wake is lost: an element that comes back after the unlock changes `freed`, and then the futex
	 * does not sleep. */
	os_futex_wait(&pool->freed, freed, &longest);
	cpuslab_spin_lock(&pool->lock);
	pool->waiting--;
	element = take(pool);
	cpuslab_spin_unlock(&pool->lock);
	return element;
}

CPUSLAB_API void *cpuslab_mempool_alloc(mempool_t *pool, gfp_t flags)
{
	/* A pool that may wait never fails.  An allocator that never fails would wait past the reserve. */
	flags &= ~__GFP_NOFAIL;
	gfp_t first = flags & ~(__GFP_DIRECT_RECLAIM | __GFP_IO);
	void *element = pool->alloc(first, pool->pool_data);

	if (!element && lock_by(pool, flags)) {
		element = take(pool);
		cpuslab_spin_unlock(&pool->lock);
	}
	if (!gfpflags_allow_blocking(flags))
		return element;
	while (!element) {
		element = pool->alloc(flags, pool->pool_data);
		if (!element)
			element = take_or_sleep(pool);
	}
	return element;
}

CPUSLAB_API void *cpuslab_mempool_take(mempool_t *pool)
{
	cpuslab_spin_lock(&pool->lock);
	void *element = take(pool);

	cpuslab_spin_unlock(&pool->lock);
	return element;
}

/*
 * Whether the reserve looks full, without the lock.  When an element that was taken from a full reserve
 * comes back, its taker wrote curr_nr before it had the element, and the element came from there to here: so
 * this reads that count, or a later one.  If it says full, others have filled the reserve since.
 */
static bool looks_full(mempool_t *pool)
{
	return __atomic_load_n(&pool->curr_nr, __ATOMIC_RELAXED) >=
	       reserve_of(__atomic_load_n(&pool->min_nr, __ATOMIC_RELAXED));
}

CPUSLAB_API void cpuslab_mempool_free(void *element, mempool_t *pool)
{
	if (!element)
		return;
	if (!looks_full(pool)) {
		cpuslab_spin_lock(&pool->lock);
		if (put(pool, element)) {
			unlock_and_wake(pool, 1);
			return;
		}
		cpuslab_spin_unlock(&pool->lock);
	}
	pool->free(element, pool->pool_data);
}

/* ---- several at a time -------------------------------------------------------------------------------- */

/* Allocates for empty slots until the allocator fails; returns how many are still empty. */
static unsigned allocate_missing(mempool_t *pool, void **elements, unsigned count, gfp_t flags)
{
	unsigned missing = 0;

	for (unsigned i = 0; i < count; i++) {
		if (elements[i])
			continue;
		/* After a failure only counts the rest. */
		if (!missing)
			elements[i] = pool->alloc(flags, pool->pool_data);
		missing += !elements[i];
	}
	return missing;
}

/*
 * Takes all that is missing, or nothing.  If two threads each took what there is and waited for the rest,
 * neither would ever get it.  With the lock.
 */
static bool take_missing(mempool_t *pool, void **elements, unsigned count, unsigned missing)
{
	if ((unsigned)pool->curr_nr < missing)
		return false;
	for (unsigned i = 0; i < count; i++)
		if (!elements[i])
			elements[i] = take(pool);
	return true;
}

/* Takes all that is missing from the reserve, if need be after a sleep, as take_or_sleep(). */
static bool take_missing_or_sleep(mempool_t *pool, void **elements, unsigned count, unsigned missing)
{
	const struct timespec longest = {.tv_sec = LONGEST_SLEEP};

	cpuslab_spin_lock(&pool->lock);
	bool taken = take_missing(pool, elements, count, missing);
	uint32_t freed = pool->freed;

	pool->waiting += !taken;
	pool->waiting_for_several += !taken;
	cpuslab_spin_unlock(&pool->lock);
	if (taken)
		return true;
	os_futex_wait(&pool->freed, freed, &longest);
	cpuslab_spin_lock(&pool->lock);
	pool->waiting--;
	pool->waiting_for_several--;
	taken = take_missing(pool, elements, count, missing);
	cpuslab_spin_unlock(&pool->lock);
	return taken;
}

CPUSLAB_API void cpuslab_mempool_alloc_bulk(mempool_t *pool, void **elements, unsigned count)
{
	gfp_t without_waiting = GFP_KERNEL & ~(__GFP_DIRECT_RECLAIM | __GFP_IO);
	unsigned missing = allocate_missing(pool, elements, count, without_waiting);

	if (!missing)
		return;
	cpuslab_spin_lock(&pool->lock);
	bool taken = take_missing(pool, elements, count, missing);

	cpuslab_spin_unlock(&pool->lock);
	while (!taken) {
		missing = allocate_missing(pool, elements, count, GFP_KERNEL);
		taken = !missing || take_missing_or_sleep(pool, elements, count, missing);
	}
}

CPUSLAB_API unsigned cpuslab_mempool_free_bulk(mempool_t *pool, void **elements, unsigned count)
{
	unsigned freed = 0;

	if (looks_full(pool))
		return 0;
	cpuslab_spin_lock(&pool->lock);
	while (freed < count && put(pool, elements[freed]))
		elements[freed++] = NULL;
	unlock_and_wake(pool, freed);
	return freed;
}

/* ---- allocators --------------------------------------------------------------------------------------- */

CPUSLAB_API void *cpuslab_mempool_alloc_slab(gfp_t flags, void *pool_data)
{
	return kmem_cache_alloc(pool_data, flags);
}

CPUSLAB_API void cpuslab_mempool_free_slab(void *element, void *pool_data)
{
	kmem_cache_free(pool_data, element);
}

CPUSLAB_API void *cpuslab_mempool_kmalloc(gfp_t flags, void *pool_data)
{
	return kmalloc((size_t)pool_data, flags);
}

CPUSLAB_API void cpuslab_mempool_kfree(void *element, void *pool_data)
{
	(void)pool_data;
	kfree(element);
}

CPUSLAB_API void *cpuslab_mempool_alloc_pages(gfp_t flags, void *pool_data)
{
	return alloc_pages(flags, (unsigned)(uintptr_t)pool_data);
}

CPUSLAB_API void cpuslab_mempool_free_pages(void *element, void *pool_data)
{
	__free_pages(element, (unsigned)(uintptr_t)pool_data);
}
