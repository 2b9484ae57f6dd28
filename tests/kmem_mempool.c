/* SPDX-License-Identifier: MIT */
/*
 * Memory pools: the reserve exists from the start, serves when the allocator fails, is refilled before
 * anything goes back to the allocator, can be resized, and wakes whoever waits for an element; with each of
 * the allocators.
 */
#include "check.h"

#include <linux/mempool.h>
#include <linux/slab.h>

/* An allocator that fails on demand and counts. */
static int failing, allocated, waiting_calls;

static void *test_alloc(gfp_t flags, void *data)
{
	CHECK(data == &failing);
	if (gfpflags_allow_blocking(flags))
		__atomic_fetch_add(&waiting_calls, 1, __ATOMIC_RELAXED);
	/* As real allocators do: with __GFP_NOFAIL it does not return without an element. */
	while (flags & __GFP_NOFAIL && __atomic_load_n(&failing, __ATOMIC_RELAXED))
		sched_yield();
	if (__atomic_load_n(&failing, __ATOMIC_RELAXED))
		return NULL;
	__atomic_fetch_add(&allocated, 1, __ATOMIC_RELAXED);
	return kmalloc(64, GFP_KERNEL);
}

static void test_free(void *element, void *data)
{
	CHECK(data == &failing);
	__atomic_fetch_sub(&allocated, 1, __ATOMIC_RELAXED);
	kfree(element);
}

static void test_reserve(void)
{
	mempool_t *pool = mempool_create(5, test_alloc, test_free, &failing);
	void *elements[8];

	CHECK(pool && allocated == 5 && pool->curr_nr == 5 && pool->min_nr == 5);
	CHECK(mempool_initialized(pool) && mempool_is_saturated(pool));
	/* Tries the allocator first, without waiting. */
	waiting_calls = 0;
	elements[5] = mempool_alloc(pool, GFP_KERNEL);
	CHECK(elements[5] && allocated == 6 && pool->curr_nr == 5 && waiting_calls == 0);
	failing = 1;
	for (int i = 0; i < 5; i++) {
		elements[i] = mempool_alloc(pool, i % 2 ? GFP_NOWAIT : GFP_KERNEL);
		CHECK(elements[i] && pool->curr_nr == 4 - i);
	}
	CHECK(!mempool_is_saturated(pool) && !mempool_alloc(pool, GFP_NOWAIT));
	CHECK(!mempool_alloc(pool, GFP_ATOMIC) && !mempool_alloc_preallocated(pool) && waiting_calls == 0);
	/* Frees go to the reserve first. */
	for (int i = 0; i < 5; i++) {
		mempool_free(elements[i], pool);
		CHECK(pool->curr_nr == i + 1 && allocated == 6);
	}
	mempool_free(elements[5], pool);
	CHECK(pool->curr_nr == 5 && allocated == 5);
	mempool_free(NULL, pool);
	elements[0] = mempool_alloc_preallocated(pool);
	CHECK(elements[0] && pool->curr_nr == 4);
	mempool_free(elements[0], pool);
	failing = 0;

	CHECK(mempool_resize(pool, 8) == 0 && pool->curr_nr == 8 && allocated == 8);
	CHECK(mempool_resize(pool, 2) == 0 && pool->curr_nr == 2 && allocated == 2);
	/* If nothing can be allocated now, frees provide the element. */
	elements[0] = mempool_alloc(pool, GFP_KERNEL);
	failing = 1;
	CHECK(mempool_resize(pool, 3) == 0 && pool->curr_nr == 2 && pool->min_nr == 3);
	mempool_free(elements[0], pool);
	CHECK(pool->curr_nr == 3);
	failing = 0;
	mempool_destroy(pool);
	CHECK(allocated == 0);
	mempool_destroy(NULL);

	/* The reserve must exist. */
	failing = 1;
	CHECK(!mempool_create(1, test_alloc, test_free, &failing) && allocated == 0);
	failing = 0;

	mempool_t own;

	memset(&own, 0, sizeof own);
	mempool_exit(&own);
	CHECK(mempool_init(&own, 3, test_alloc, test_free, &failing) == 0 && allocated == 3);
	mempool_exit(&own);
	mempool_exit(&own);
	CHECK(!mempool_initialized(&own) && allocated == 0);
	CHECK(mempool_init_node(&own, 0, test_alloc, test_free, &failing, GFP_KERNEL, 0) == 0);
	mempool_exit(&own);
	pool = mempool_create_node(2, test_alloc, test_free, &failing, GFP_KERNEL, NUMA_NO_NODE);
	CHECK(pool && allocated == 2);
	mempool_destroy(pool);
	CHECK(allocated == 0);
}

/* A caller that must not wait does not wait for the lock either. */
static void test_nowait(void)
{
	mempool_t *pool = mempool_create(2, test_alloc, test_free, &failing);

	failing = 1;
	cpuslab_spin_lock(&pool->lock);
	CHECK(!mempool_alloc(pool, GFP_NOWAIT) && !mempool_alloc(pool, GFP_ATOMIC));
	cpuslab_spin_unlock(&pool->lock);
	void *element = mempool_alloc(pool, GFP_NOWAIT);

	CHECK(element);
	mempool_free(element, pool);
	failing = 0;
	mempool_destroy(pool);
}

enum { THREADS = 4 };
static unsigned long rounds;

/* More threads than elements, and a failing allocator: every element returned must wake a waiter. */
static void *take_turns(void *argument)
{
	mempool_t *pool = argument;

	for (unsigned long i = 0; i < rounds; i++) {
		uint64_t *element = mempool_alloc(pool, GFP_KERNEL);

		CHECK(element);
		check_stamp(element, 64, i + (uintptr_t)&element);
		if (i % 16 == 0)
			sched_yield();
		CHECK_STAMP(element, 64, i + (uintptr_t)&element);
		mempool_free(element, pool);
	}
	return NULL;
}

/* Takes all missing elements or none of the reserve; returned elements refill it from the front. */
static void test_bulk(void)
{
	mempool_t *pool = mempool_create(4, test_alloc, test_free, &failing);
	struct mempool *same = pool;
	void *elements[6] = {NULL}, *own;

	CHECK(pool && same->curr_nr == 4);
	/* Tries the allocator first, without waiting; slots already filled stay. */
	waiting_calls = 0;
	own = elements[1] = mempool_alloc(pool, GFP_KERNEL);
	CHECK(mempool_alloc_bulk(pool, elements, 6, 1) == 0 && elements[1] == own);
	CHECK(allocated == 10 && pool->curr_nr == 4 && waiting_calls == 0);
	for (int i = 0; i < 6; i++) {
		CHECK(elements[i]);
		for (int j = 0; j < i; j++)
			CHECK(elements[i] != elements[j]);
	}
	/* The reserve is full: the caller keeps all. */
	CHECK(mempool_free_bulk(pool, elements, 6) == 0 && elements[0]);
	for (int i = 0; i < 6; i++) {
		mempool_free(elements[i], pool);
		elements[i] = NULL;
	}
	CHECK(allocated == 4);
	failing = 1;
	CHECK(mempool_alloc_bulk(pool, elements, 3, 0) == 0 && pool->curr_nr == 1 && waiting_calls == 0);
	CHECK(elements[0] && elements[1] && elements[2]);
	CHECK(mempool_alloc_bulk(pool, elements, 3, 3) == 0 && pool->curr_nr == 1);
	failing = 0;
	elements[3] = mempool_alloc(pool, GFP_KERNEL);
	CHECK(mempool_free_bulk(pool, elements, 4) == 3 && pool->curr_nr == 4);
	CHECK(!elements[0] && !elements[1] && !elements[2] && elements[3]);
	mempool_free(elements[3], pool);
	CHECK(allocated == 4);

	/*
	 * Empty slots are counted, whatever the caller claims: too much, or too little with the reserve in
	 * use.
	 */
	elements[3] = NULL;
	CHECK(mempool_alloc_bulk(pool, elements, 4, 1) == 0 &&
	      mempool_alloc_bulk(pool, elements + 4, 2, 2) == 0);
	for (int i = 0; i < 6; i++)
		CHECK(elements[i]);
	mempool_free(elements[5], pool);
	mempool_free(elements[4], pool);
	failing = 1;
	elements[4] = elements[5] = NULL;
	CHECK(mempool_alloc_bulk(pool, elements + 4, 2, 0) == 0 && pool->curr_nr == 2);
	void *rest[4] = {elements[4], elements[5]};

	elements[4] = mempool_alloc(pool, GFP_KERNEL);
	elements[5] = mempool_alloc(pool, GFP_KERNEL);
	failing = 0;
	CHECK(pool->curr_nr == 0 && mempool_alloc_bulk(pool, rest, 4, 0) == 0);
	for (int i = 0; i < 4; i++) {
		CHECK(rest[i]);
		mempool_free(rest[i], pool);
	}
	for (int i = 0; i < 6; i++)
		mempool_free(elements[i], pool);
	CHECK(allocated == 4 && pool->curr_nr == 4);
	mempool_destroy(pool);
	CHECK(allocated == 0);
}

/*
 * Several threads that each want most of the reserve, and others that want one element: nobody may hold a
 * part of what it needs while it waits, nor consume the wakeup of a waiter that could proceed.
 */
static void *take_several(void *argument)
{
	mempool_t *pool = argument;
	unsigned want = (unsigned)pool->min_nr - 1;

	for (unsigned long i = 0; i < rounds; i++) {
		void *elements[8] = {NULL};

		CHECK(want <= 8 && mempool_alloc_bulk(pool, elements, want, 0) == 0);
		for (unsigned j = 0; j < want; j++) {
			CHECK(elements[j]);
			check_stamp(elements[j], 64, i + j);
		}
		if (i % 16 == 0)
			sched_yield();
		for (unsigned j = 0; j < want; j++)
			CHECK_STAMP(elements[j], 64, i + j);
		if (i % 2) {
			CHECK(mempool_free_bulk(pool, elements, want) == want);
		} else {
			for (unsigned j = 0; j < want; j++)
				mempool_free(elements[j], pool);
		}
	}
	return NULL;
}

static void *want_three(void *pool)
{
	void *elements[3] = {NULL};

	CHECK(mempool_alloc_bulk(pool, elements, 3, 0) == 0);
	for (int i = 0; i < 3; i++) {
		CHECK(elements[i]);
		mempool_free(elements[i], pool);
	}
	return NULL;
}

static void *want_one(void *pool)
{
	void *element = mempool_alloc(pool, GFP_KERNEL);

	CHECK(element);
	mempool_free(element, pool);
	return NULL;
}

static void until_waiting(mempool_t *pool, unsigned threads)
{
	while (__atomic_load_n(&pool->waiting, __ATOMIC_RELAXED) != threads)
		sched_yield();
	/* They are about to sleep. */
	usleep(1000);
}

/*
 * The first sleeper wants three elements; it must hold neither the element nor the wakeup that the other
 * waits for.
 */
static void test_order_of_waiting(void)
{
	mempool_t *pool = mempool_create(4, test_alloc, test_free, &failing);
	void *elements[4];

	__atomic_store_n(&failing, 1, __ATOMIC_RELAXED);
	/* A lost wakeup costs five seconds, as above. */
	for (int round = 0; round < 40; round++) {
		for (int i = 0; i < 3; i++)
			elements[i] = mempool_alloc(pool, GFP_KERNEL);
		pthread_t three = check_thread(want_three, pool);

		until_waiting(pool, 1);
		CHECK(pool->curr_nr == 1 && pool->waiting_for_several == 1);
		elements[3] = mempool_alloc(pool, GFP_KERNEL);
		pthread_t one = check_thread(want_one, pool);

		until_waiting(pool, 2);
		mempool_free(elements[3], pool);
		check_join(one);
		CHECK(mempool_free_bulk(pool, elements, 3) == 3);
		check_join(three);
		CHECK(pool->curr_nr == 4 && pool->waiting == 0 && pool->waiting_for_several == 0);
	}
	__atomic_store_n(&failing, 0, __ATOMIC_RELAXED);
	mempool_destroy(pool);
	CHECK(allocated == 0);
}

static void *want_one_for_sure(void *pool)
{
	void *element = mempool_alloc(pool, GFP_KERNEL | __GFP_NOFAIL);

	CHECK(element);
	mempool_free(element, pool);
	return NULL;
}

/* A caller that must not fail waits for returned elements like others, and not inside the allocator. */
static void test_nofail(void)
{
	mempool_t *pool = mempool_create(1, test_alloc, test_free, &failing);

	__atomic_store_n(&failing, 1, __ATOMIC_RELAXED);
	void *element = mempool_alloc(pool, GFP_KERNEL | __GFP_NOFAIL);

	CHECK(element && pool->curr_nr == 0);
	pthread_t waiter = check_thread(want_one_for_sure, pool);

	until_waiting(pool, 1);
	mempool_free(element, pool);
	check_join(waiter);
	CHECK(pool->curr_nr == 1 && pool->waiting == 0);
	__atomic_store_n(&failing, 0, __ATOMIC_RELAXED);
	mempool_destroy(pool);
	CHECK(allocated == 0);
}

/* Threads that run `one` or `other`, with `elements` elements. */
static void run_threads(int elements, void *(*one)(void *), void *(*other)(void *))
{
	mempool_t *pool = mempool_create(elements, test_alloc, test_free, &failing);
	pthread_t threads[THREADS];

	__atomic_store_n(&failing, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		threads[i] = check_thread(i % 2 ? one : other, pool);
	for (int i = 0; i < THREADS; i++)
		check_join(threads[i]);
	CHECK(pool->curr_nr == elements && pool->waiting == 0 && pool->waiting_for_several == 0);
	__atomic_store_n(&failing, 0, __ATOMIC_RELAXED);
	mempool_destroy(pool);
	CHECK(allocated == 0);
}

static void test_waiting_for_several(int elements)
{
	rounds = check_rounds(5000, 300000, 100);
	run_threads(elements, take_turns, take_several);
}

static void test_waiting(int elements)
{
	/* A lost wakeup costs five seconds: after a few of them the watchdog ends the test. */
	rounds = check_rounds(elements == 1 ? 3000 : 20000, 1000000, 300);
	run_threads(elements, take_turns, take_turns);
}

static void use(mempool_t *pool, size_t bytes, size_t align)
{
	void *elements[20];

	CHECK(pool && pool->curr_nr == 4);
	for (int i = 0; i < 20; i++) {
		elements[i] = mempool_alloc(pool, i % 2 ? GFP_KERNEL : GFP_ATOMIC);
		CHECK(elements[i] && (uintptr_t)elements[i] % align == 0);
		check_stamp(elements[i], bytes, (uint64_t)i);
	}
	for (int i = 0; i < 20; i++) {
		CHECK_STAMP(elements[i], bytes, (uint64_t)i);
		mempool_free(elements[i], pool);
	}
}

static void test_allocators(void)
{
	struct kmem_cache *cache = kmem_cache_create("pooled", 104, 0, SLAB_NO_MERGE, NULL);
	mempool_t *pool = mempool_create_slab_pool(4, cache), own;

	use(pool, 104, 8);
	mempool_destroy(pool);
	CHECK(mempool_init_slab_pool(&own, 4, cache) == 0);
	use(&own, 104, 8);
	mempool_exit(&own);
	/* Nothing is left, or the child would report it. */
	CHECK(cpuslab_cache_destroy((struct cpuslab_cache *)(void *)cache) == 0);

	pool = mempool_create_kmalloc_pool(4, 1000);
	use(pool, 1000, 8);
	mempool_destroy(pool);
	CHECK(mempool_init_kmalloc_pool(&own, 4, 128) == 0);
	use(&own, 128, 128);
	mempool_exit(&own);

	pool = mempool_create_page_pool(4, 2);
	use(pool, 4 * PAGE_SIZE, 4 * PAGE_SIZE);
	mempool_destroy(pool);
	CHECK(mempool_init_page_pool(&own, 4, 0) == 0);
	use(&own, PAGE_SIZE, PAGE_SIZE);
	mempool_exit(&own);
}

int main(void)
{
	check_watchdog(60);
	test_reserve();
	test_nowait();
	test_waiting(1);
	test_waiting(2);
	test_bulk();
	test_order_of_waiting();
	test_nofail();
	test_waiting_for_several(4);
	test_allocators();
	return 0;
}
