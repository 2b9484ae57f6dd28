/* SPDX-License-Identifier: MIT */
/*
 * magazine_nowait: allocations that must not wait for another thread return while every lock that they try is
 * held: with objects that need no such lock, or with NULL; and what they made beside a held lock is all found
 * later.
 */
#include "check.h"

#include "cache/cache.h"
#include "lock/lock.h"
#include "magazine/magazine.h"
#include "page/layout.h"
#include "slab/descriptor.h"

#include <sys/mman.h>
#include <sys/syscall.h>

enum { OBJECTS = 500, SIZE = 200 };

static struct cpuslab_cache *create(void (*constructor)(void *))
{
	struct cpuslab_cache_args args = {
		.name = "nowait", .size = SIZE, .flags = CPUSLAB_CACHE_NO_MERGE, .constructor = constructor};
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);

	CHECK(cache);
	return cache;
}

static unsigned constructed;

static void construct(void *object)
{
	__atomic_fetch_add(&constructed, 1, __ATOMIC_RELAXED);
	memset(object, 'c', SIZE);
}

static uint64_t allocated(struct cpuslab_cache *cache)
{
	struct slab_statistics statistics;

	slab_statistics(&cache->memory->cache.depot.slabs, &statistics);
	return statistics.allocated;
}

/* With an empty cache: slabs are made without a lock, at first and again later. */
static void test_fresh(void (*constructor)(void *))
{
	struct cpuslab_cache *cache = create(constructor);
	static void *objects[OBJECTS];

	for (unsigned i = 0; i < OBJECTS; i++) {
		objects[i] = cpuslab_cache_alloc_nowait(cache);
		CHECK(objects[i] && (!constructor || check_all_bytes(objects[i], SIZE, 'c')));
		if (!constructor)
			check_stamp(objects[i], SIZE, i);
	}
	CHECK(allocated(cache) == OBJECTS);
	for (unsigned i = 0; i < OBJECTS; i++) {
		if (!constructor)
			CHECK_STAMP(objects[i], SIZE, i);
		cpuslab_cache_free(cache, objects[i]);
	}
	/* Magazines in the depot serve as well. */
	for (unsigned i = 0; i < OBJECTS; i++)
		objects[i] = cpuslab_cache_alloc_nowait(cache);
	for (unsigned i = 0; i < OBJECTS; i++)
		cpuslab_cache_free(cache, objects[i]);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static void test_held(void (*constructor)(void *))
{
	struct cpuslab_cache *cache = create(constructor);
	struct depot *depot = &cache->memory->cache.depot;
	void *first, *second;

	/* At most one slab is made while the lock is held. */
	cpuslab_spin_lock(&depot->lock);
	cpuslab_spin_lock(&depot->slabs.lock);
	first = cpuslab_cache_alloc_nowait(cache);
	CHECK(first && (!constructor || check_all_bytes(first, SIZE, 'c')));
	errno = 0;
	CHECK(!cpuslab_cache_alloc_nowait(cache) && errno == ENOMEM);
	CHECK(depot->slabs.slabs == 0);
	cpuslab_spin_unlock(&depot->slabs.lock);

	/* The next holder of the lock adopts it. */
	second = cpuslab_cache_alloc_nowait(cache);
	CHECK(second && depot->slabs.slabs == 1 && depot->slabs.allocated == 2);
	cpuslab_spin_unlock(&depot->lock);
	cpuslab_cache_free(cache, first);
	cpuslab_cache_free(cache, second);
	CHECK(cpuslab_cache_destroy(cache) == 0);

	/* Its object comes back before anybody has adopted the slab. */
	cache = create(constructor);
	depot = &cache->memory->cache.depot;
	cpuslab_spin_lock(&depot->slabs.lock);
	first = cpuslab_cache_alloc_nowait(cache);
	cpuslab_spin_unlock(&depot->slabs.lock);
	slab_free_batch(&depot->slabs, &first, 1);
	CHECK(allocated(cache) == 0);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

/* The first slab of a cache that has free objects. */
static struct slab *partial_slab(struct slab_cache *slabs)
{
	struct slab *slab = NULL;

	for (unsigned bin = 0; !slab && bin < sizeof slabs->partial / sizeof *slabs->partial; bin++)
		slab = slabs->partial[bin];
	return slab;
}

/*
 * A slab's lock is free but has waiters, and a thread that holds the queue's guard is waking one of them, and
 * may have lost its CPU.
 */
static void test_guard(void)
{
	struct cpuslab_cache *cache = create(NULL);
	struct slab_cache *slabs = &cache->memory->cache.depot.slabs;
	unsigned count = 0;
	static void *objects[OBJECTS];

	while (!partial_slab(slabs) && count < OBJECTS)
		CHECK((objects[count++] = cpuslab_cache_alloc_nowait(cache)));
	struct slab *slab = partial_slab(slabs);

	CHECK(slab);
	uint8_t *byte = &slab->lock.byte, before = *byte;

	cpuslab_spin_lock(pagelock_guard(byte));
	__atomic_fetch_or(byte, CPUSLAB_PAGELOCK_WAITERS, __ATOMIC_RELAXED);
	for (unsigned tries = 0; tries < 20 && count < OBJECTS; tries++)
		if ((objects[count] = cpuslab_cache_alloc_nowait(cache)))
			count++;
	CHECK(*byte == (before | CPUSLAB_PAGELOCK_WAITERS));
	cpuslab_spin_unlock(pagelock_guard(byte));
	while (count)
		cpuslab_cache_free(cache, objects[--count]);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

/* The linked engine: objects come from its existing slabs. */
static void test_linked(void)
{
	struct cpuslab_cache_args args = {.name = "nowait", .size = SIZE, .engine = CPUSLAB_ENGINE_LINKED};
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);
	static void *objects[OBJECTS];
	unsigned got = 0;

	CHECK(cache);
	errno = 0;
	CHECK(!cpuslab_cache_alloc_nowait(cache) && errno == ENOMEM);
	for (unsigned i = 0; i < OBJECTS; i++)
		objects[i] = cpuslab_cache_alloc(cache);
	/* Frees one object of each slab. */
	for (unsigned i = 0; i < OBJECTS; i += 40) {
		cpuslab_cache_free(cache, objects[i]);
		objects[i] = NULL;
	}
	struct linked_cache *linked = cache_linked(cache->memory);

	cpuslab_spin_lock(&linked->lock);
	while (cpuslab_cache_alloc_nowait(cache))
		got++;
	cpuslab_spin_unlock(&linked->lock);
#if !ARCH_HAS_PAIR
	cpuslab_spin_lock(&linked->pair_lock);
	CHECK(!cpuslab_cache_alloc_nowait(cache));
	cpuslab_spin_unlock(&linked->pair_lock);
#endif
	for (void *object; (object = cpuslab_cache_alloc_nowait(cache)); got++) {
		check_stamp(object, SIZE, got);
		CHECK(cpuslab_object_of((char *)object + SIZE - 1) == object);
	}
	/* All of the slabs' objects, including those never handed out before. */
	CHECK(got >= (OBJECTS + 39) / 40, "%u", got);
	CHECK(linked->first == NULL);
	for (unsigned i = 0; i < OBJECTS; i++)
		cpuslab_cache_free(cache, objects[i]);
}

/* ---- with threads that wait, and that free others' objects ---------------------------------------- */

enum { THREADS = 4, SHARED = 256 };
static struct cpuslab_cache *shared;
static void *exchange[SHARED];

static void *allocate_and_free(void *argument)
{
	uint64_t random = (uint64_t)(uintptr_t)argument;
	bool waits = (uintptr_t)argument % 2;

	for (unsigned long i = 0; i < check_rounds(200000, 20000000, 3000); i++) {
		void *object = NULL;

		if (random % 2) {
			object = waits ? cpuslab_cache_alloc(shared) : cpuslab_cache_alloc_nowait(shared);
			if (object)
				check_stamp(object, SIZE, (uint64_t)(uintptr_t)object);
		}
		object = __atomic_exchange_n(&exchange[check_below(&random, SHARED)], object,
					     __ATOMIC_ACQ_REL);
		if (!object)
			continue;
		CHECK_STAMP(object, SIZE, (uint64_t)(uintptr_t)object);
		/* Bypasses the magazines, so that the slabs are busy. */
		if (random % 4 == 0)
			slab_free_batch(&shared->memory->cache.depot.slabs, &object, 1);
		else
			cpuslab_cache_free(shared, object);
	}
	return NULL;
}

static void test_threads(void)
{
	pthread_t threads[THREADS];
	/* Small magazines, so that most calls miss. */
	struct cpuslab_cache_args args = {.name = "nowait", .size = SIZE, .magazine_capacity = 2};

	shared = cpuslab_cache_create(&args);
	CHECK(shared);
	for (uintptr_t i = 0; i < THREADS; i++)
		threads[i] = check_thread(allocate_and_free, (void *)(i + 1));
	for (int i = 0; i < THREADS; i++)
		check_join(threads[i]);
	for (unsigned i = 0; i < SHARED; i++)
		cpuslab_cache_free(shared, exchange[i]);
	CHECK(cpuslab_cache_destroy(shared) == 0);
}

/* All of malloc's sizes, and alignments. */
static void test_malloc(void)
{
	for (size_t align = 1; align <= 1 << 20; align *= 2)
		for (size_t size = 1; size <= 2 << 20; size = size * 5 / 4 + 1) {
			char *object = cpuslab_aligned_alloc_nowait(align, size);

			CHECK(object && (uintptr_t)object % align == 0, "%zu bytes aligned to %zu", size,
			      align);
			CHECK(malloc_usable_size(object) >= size);
			check_stamp(object, size, size);
			CHECK_STAMP(object, size, size);
			free(object);
		}
	/* Up to the heap's own alignment, and not beyond. */
	for (size_t align = 1 << 21; align <= 1 << 23; align *= 2) {
		char *object = cpuslab_aligned_alloc_nowait(align, SIZE);

		CHECK(object && (uintptr_t)object % align == 0, "aligned to %zu", align);
		free(object);
	}
	for (size_t align = 1 << 24; align; align *= 2) {
		errno = 0;
		CHECK(!cpuslab_aligned_alloc_nowait(align, SIZE) && errno == ENOMEM, "aligned to %zu", align);
	}
	errno = 0;
	CHECK(!cpuslab_aligned_alloc_nowait(3, 8) && errno == EINVAL);
	errno = 0;
	CHECK(!cpuslab_aligned_alloc_nowait(8, SIZE_MAX) && errno == ENOMEM);
	CHECK(!cpuslab_aligned_alloc_nowait((size_t)1 << 62, 8));
	void *none = cpuslab_aligned_alloc_nowait(1, 0);

	CHECK(none);
	free(none);
}

/* ---- while metadata grows -------------------------------------------------------------------------- */

static __thread bool stays;
static bool held, let_go;

/* Also called by the library, to make metadata usable, holding nothing but the lock of metadata. */
int mprotect(void *address, size_t bytes, int access)
{
	if (stays) {
		__atomic_store_n(&held, true, __ATOMIC_RELEASE);
		while (!__atomic_load_n(&let_go, __ATOMIC_ACQUIRE))
			usleep(100);
	}
	return (int)syscall(SYS_mprotect, address, bytes, access);
}

static void *hold_metadata(void *unused)
{
	stays = true;
	while (!__atomic_load_n(&held, __ATOMIC_RELAXED) && metadata_alloc(VCPU_AREA_BYTES))
		;
	stays = false;
	/* Never happens where metadata is used up, or grows by another call. */
	__atomic_store_n(&held, true, __ATOMIC_RELEASE);
	return unused;
}

/*
 * One after another of these blocks is advised on huge pages after it was filled, which is recorded.  Their
 * frees may wait.
 */
static void take_advised(char **blocks, unsigned count)
{
	enum { BYTES = 6 << 20 };

	for (unsigned i = 0; i < count; i++) {
		blocks[i] = cpuslab_aligned_alloc_nowait(1, BYTES);
		CHECK(blocks[i]);
		memset(blocks[i], 1, BYTES);
	}
}

/* The heap grows although metadata that it would like to have is missing. */
static void test_metadata(void)
{
	enum { RUN = 1 << 20, MOST = 4096, ADVISED = 4 };
	static void *runs[MOST];
	char *advised[ADVISED];
	unsigned count = 0;
	pthread_t holder = check_thread(hold_metadata, NULL);

	while (!__atomic_load_n(&held, __ATOMIC_ACQUIRE))
		usleep(100);
	take_advised(advised, ADVISED);
	for (size_t usable = layout.heap.committed; layout.heap.committed == usable; count++) {
		CHECK(count < MOST, "the heap does not grow");
		runs[count] = cpuslab_aligned_alloc_nowait(1, RUN);
		CHECK(runs[count]);
	}
	__atomic_store_n(&let_go, true, __ATOMIC_RELEASE);
	check_join(holder);
	printf("%u MiB until the heap has grown\n", count);
	while (count)
		free(runs[--count]);
	for (unsigned i = 0; i < ADVISED; i++)
		free(advised[i]);
}

/* Large objects allocated this way are counted like those of calls that may wait. */
static void test_counted(void)
{
	enum { CALLS = 10, LARGE = 1 << 20 };
	struct cpuslab_counters before = check_counters();

	for (size_t i = 0; i < CALLS; i++) {
		void *object = cpuslab_aligned_alloc_nowait(16, LARGE + i * 4096);

		CHECK(object);
		free(object);
	}
	struct cpuslab_counters after = check_counters();

	CHECK(after.alloc_misses - before.alloc_misses >= CALLS, "%lu misses",
	      after.alloc_misses - before.alloc_misses);
	CHECK(after.free_misses - before.free_misses >= CALLS);
}

int main(void)
{
	check_watchdog(100);
	test_fresh(NULL);
	test_fresh(construct);
	test_held(NULL);
	test_held(construct);
	test_guard();
	test_linked();
	test_threads();
	test_malloc();
	test_counted();
	test_metadata();
	return 0;
}
