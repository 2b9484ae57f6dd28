/* SPDX-License-Identifier: MIT */
#include "cache/cache.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "check/corruption.h"
#include "malloc/process.h"
#include "slab/geometry.h"

#define likely(condition)   __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

enum {
	SMALLEST_ALIGNMENT = 8,
	CACHE_LINE = 64,
	DEBUG_FLAGS = CPUSLAB_CACHE_CONSISTENCY_CHECKS | CPUSLAB_CACHE_RED_ZONE | CPUSLAB_CACHE_POISON |
		      CPUSLAB_CACHE_STORE_USER | CPUSLAB_CACHE_TRACE,
	KNOWN_FLAGS = CPUSLAB_CACHE_HWCACHE_ALIGN | CPUSLAB_CACHE_PANIC | CPUSLAB_CACHE_TYPESAFE_BY_RCU |
		      CPUSLAB_CACHE_NO_MERGE | DEBUG_FLAGS,
};

_Static_assert((int)CPUSLAB_CACHE_MAGAZINE_MAX <= (int)DEPOT_CAPACITY_MAX,
	       "a magazine of the largest capacity");

/* ---- create ------------------------------------------------------------------------------------------- */

static bool is_power_of_two(size_t x)
{
	return x && !(x & (x - 1));
}

/* 0, or the errno that says what is wrong. */
static int check_arguments(const struct cpuslab_cache_args *args)
{
	static const uint64_t zero[sizeof args->reserved / sizeof *args->reserved];

	if (!args || !args->name || args->size == 0 || args->size > CPUSLAB_CACHE_SIZE_MAX)
		return EINVAL;
	if (args->align && (!is_power_of_two(args->align) || args->align > CPUSLAB_CACHE_ALIGN_MAX))
		return EINVAL;
	if (args->flags & ~(unsigned)KNOWN_FLAGS || args->engine > CPUSLAB_ENGINE_LINKED ||
	    args->magazine_capacity > CPUSLAB_CACHE_MAGAZINE_MAX ||
	    memcmp(args->reserved, zero, sizeof zero) != 0)
		return EINVAL;
	if (args->use_free_pointer_offset &&
	    (args->free_pointer_offset % sizeof(void *) || args->size < sizeof(void *) ||
	     args->free_pointer_offset > args->size - sizeof(void *)))
		return EINVAL;
	if (strlen(args->name) > CPUSLAB_CACHE_NAME_MAX)
		return ENAMETOOLONG;
	if (args->engine == CPUSLAB_ENGINE_LINKED || args->flags & DEBUG_FLAGS)
		return ENOTSUP;
	return 0;
}

static uint32_t choose_alignment(const struct cpuslab_cache_args *args)
{
	uint32_t alignment = SMALLEST_ALIGNMENT;

	if (args->flags & CPUSLAB_CACHE_HWCACHE_ALIGN) {
		uint32_t line = geometry_line_alignment((uint32_t)args->size, CACHE_LINE);

		alignment = line > alignment ? line : alignment;
	}
	return args->align > alignment ? (uint32_t)args->align : alignment;
}

static struct cpuslab_cache *create(const struct cpuslab_cache_args *args)
{
	size_t name_bytes = strlen(args->name) + 1;
	uint32_t bytes = (uint32_t)(sizeof(struct cpuslab_cache) + name_bytes);
	struct cpuslab_cache *cache = metadata_alloc(bytes);

	if (!cache)
		return NULL;
	cache->constructor = args->constructor;
	cache->size = (uint32_t)args->size;
	cache->flags = args->flags;
	cache->bytes = bytes;
	memcpy(cache->name, args->name, name_bytes);

	uint32_t alignment = choose_alignment(args);
	struct slab_traits traits = {
		.name = cache->name,
		.size = geometry_stride(cache->size, alignment),
		.alignment = alignment >> PAGE_SHIFT,
		.type_stable = args->flags & CPUSLAB_CACHE_TYPESAFE_BY_RCU,
		.construct = args->constructor,
	};

	if (!magazine_create(&cache->cache, &traits, (uint16_t)args->magazine_capacity, cache)) {
		metadata_free(cache, bytes);
		return NULL;
	}
	return cache;
}

CPUSLAB_API struct cpuslab_cache *cpuslab_cache_create(const struct cpuslab_cache_args *args)
{
	int error = check_arguments(args);
	struct cpuslab_cache *cache = NULL;

	if (!error) {
		process_enter();
		cache = create(args);
		error = cache ? 0 : ENOMEM;
	}
	if (likely(cache))
		return cache;
	if (args && args->flags & CPUSLAB_CACHE_PANIC)
		corruption_abort(args->name, NULL,
				 error == ENOMEM
					 ? "no memory for a cache that the program cannot do without"
					 : "bad arguments for a cache that the program cannot do without");
	errno = error;
	return NULL;
}

/* ---- destroy ------------------------------------------------------------------------------------------ */

static void report_live(void *object, void *argument)
{
	const struct cpuslab_cache *cache = argument;
	char line[CPUSLAB_CACHE_NAME_MAX + 128];
	int length =
		snprintf(line, sizeof line, "cpuslab: %s: %p: still allocated as its cache is destroyed\n",
			 cache->name, object);

	if (length > 0)
		os_write_error(line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

CPUSLAB_API int cpuslab_cache_destroy(struct cpuslab_cache *cache)
{
	if (!cache)
		return 0;
	process_enter();
	magazine_keep_caches();
	uint64_t live = magazine_destroy(&cache->cache);

	if (live)
		slab_visit_objects(&cache->cache.depot.slabs, report_live, cache);
	else
		metadata_free(cache, cache->bytes);
	magazine_let_caches_go();
	if (!live)
		return 0;
	errno = EBUSY;
	return -1;
}

CPUSLAB_API int cpuslab_cache_shrink(struct cpuslab_cache *cache)
{
	struct slab_statistics statistics;

	process_enter();
	magazine_shrink(&cache->cache);
	slab_statistics(&cache->cache.depot.slabs, &statistics);
	return statistics.slabs != 0;
}

/* ---- one object --------------------------------------------------------------------------------------- */

static __attribute__((noinline)) void *alloc_slow(struct cpuslab_cache *cache)
{
	process_enter();
	void *object = magazine_alloc_missed(&cache->cache);

	if (unlikely(!object))
		errno = ENOMEM;
	return object;
}

CPUSLAB_API void *cpuslab_cache_alloc(struct cpuslab_cache *cache)
{
	void *object = magazine_alloc_from(&cache->cache);

	return likely(object) ? object : alloc_slow(cache);
}

CPUSLAB_API void *cpuslab_cache_zalloc(struct cpuslab_cache *cache)
{
	if (unlikely(cache->constructor)) {
		errno = EINVAL;
		return NULL;
	}
	void *object = cpuslab_cache_alloc(cache);

	return likely(object) ? memset(object, 0, cache->size) : NULL;
}

/* The page map says that the object lies in a slab of this cache, or of another that has no id of its own. */
static inline bool is_marked(const struct cpuslab_cache *cache, const void *object)
{
	uintptr_t page = page_of(object);

	return page < page_front.limit && page_front.map[page] == cache->cache.id;
}

/* Everything but a hit: NULL, misses, and what is not this cache's. */
static __attribute__((noinline)) void free_slow(struct cpuslab_cache *cache, void *object)
{
	if (!object)
		return;
	process_enter();
	if (magazine_cache(object) != &cache->cache)
		corruption_abort(cache->name, object,
				 "free of a pointer that is not an object of this cache");
	magazine_free_missed(&cache->cache, object);
}

CPUSLAB_API void cpuslab_cache_free(struct cpuslab_cache *cache, void *object)
{
	if (likely(is_marked(cache, object)) && likely(magazine_free_to(&cache->cache, object)))
		return;
	free_slow(cache, object);
}

/* ---- several ------------------------------------------------------------------------------------------ */

static unsigned at_most(size_t count)
{
	return count < CPUSLAB_CACHE_MAGAZINE_MAX ? (unsigned)count : CPUSLAB_CACHE_MAGAZINE_MAX;
}

CPUSLAB_API size_t cpuslab_cache_alloc_bulk(struct cpuslab_cache *cache, size_t count, void **objects)
{
	size_t taken = 0;

	process_enter();
	for (;;) {
		taken += magazine_alloc_several(&cache->cache, objects + taken, at_most(count - taken));
		if (taken == count)
			return count;
		/* The slow path loads another magazine, from which the next round takes. */
		void *object = alloc_slow(cache);

		if (!object) {
			cpuslab_cache_free_bulk(cache, taken, objects);
			return 0;
		}
		objects[taken++] = object;
	}
}

CPUSLAB_API void cpuslab_cache_free_bulk(struct cpuslab_cache *cache, size_t count, void *const *objects)
{
	size_t given = 0, marked = 0;

	process_enter();
	while (given < count) {
		while (marked < count && is_marked(cache, objects[marked]))
			marked++;
		given += magazine_free_several(&cache->cache, objects + given, at_most(marked - given));
		/* The one that found no room, or is no object of this cache. */
		if (given < count)
			free_slow(cache, objects[given++]);
		if (marked < given)
			marked = given;
	}
}

/* ---- queries ------------------------------------------------------------------------------------------ */

CPUSLAB_API size_t cpuslab_cache_size(const struct cpuslab_cache *cache)
{
	return cache->size;
}

CPUSLAB_API const char *cpuslab_cache_name(const struct cpuslab_cache *cache)
{
	return cache->name;
}

CPUSLAB_API int cpuslab_cache_iterate(int (*visit)(struct cpuslab_cache *cache, void *argument),
				      void *argument)
{
	int result = 0;

	process_enter();
	magazine_keep_caches();
	for (unsigned number = 0; number < magazine_caches() && !result; number++) {
		const struct cache *cache = magazine_cache_number(number);

		if (cache && cache->owner)
			result = visit(cache->owner, argument);
	}
	magazine_let_caches_go();
	return result;
}
