/* SPDX-License-Identifier: MIT */
/* The calls that programs make, as variants; and the list. */
#include "variants.h"

#include <cpuslab/cache.h>

#include <stdlib.h>

#include "process/process.h"
#include "options/options.h"
#include "vcpu/vcpu.h"

static void *create_cache(size_t size, enum cpuslab_engine engine)
{
	struct cpuslab_cache_args args = {
		.name = "variant", .size = size, .engine = engine, .flags = CPUSLAB_CACHE_NO_MERGE};

	return cpuslab_cache_create(&args);
}

static void *create_linked(size_t size)
{
	return create_cache(size, CPUSLAB_ENGINE_LINKED);
}

static void *create_magazine(size_t size)
{
	return create_cache(size, CPUSLAB_ENGINE_MAGAZINE);
}

/* Any pointer that is not NULL will do; this one is the size. */
static void *create_malloc(size_t size)
{
	return (void *)size;
}

static void *allocate_malloc(void *size)
{
	return malloc((size_t)size);
}

static void release_malloc(void *size, void *object)
{
	(void)size;
	free(object);
}

static bool destroy_cache(void *cache)
{
	return cpuslab_cache_destroy(cache) == 0;
}

static bool destroy_malloc(void *size)
{
	(void)size;
	return true;
}

/* The casts change only a pointer's type, so that a call costs what a program's call costs. */
#define CACHE_CALLS                                                                                          \
	.allocate = (void *(*)(void *))cpuslab_cache_alloc,                                                  \
	.release = (void (*)(void *, void *))cpuslab_cache_free, .destroy = destroy_cache

const struct variant variant_linked = {.name = "cache linked", .create = create_linked, CACHE_CALLS};
const struct variant variant_magazine = {.name = "cache magazine", .create = create_magazine, CACHE_CALLS};
const struct variant variant_malloc = {
	.name = "malloc",
	.create = create_malloc,
	.allocate = allocate_malloc,
	.release = release_malloc,
	.destroy = destroy_malloc,
};

/* The cost of calling an allocator that does nothing. */
static void *create_floor(size_t size)
{
	return calloc(1, size);
}

static void *allocate_floor(void *object)
{
	return object;
}

static void release_floor(void *cache, void *object)
{
	(void)cache, (void)object;
}

static bool destroy_floor(void *object)
{
	free(object);
	return true;
}

const struct variant variant_floor = {
	.name = "floor",
	.create = create_floor,
	.allocate = allocate_floor,
	.release = release_floor,
	.destroy = destroy_floor,
};

const struct variant *variants_list(unsigned *count)
{
	static struct variant list[16];

	process_enter();
	bool restartable = vcpu_mode() != CPUSLAB_VCPU_THREAD_SLOT;

	*count = 0;
#define VARIANT(name, everywhere)                                                                            \
	if (everywhere || restartable)                                                                       \
		list[(*count)++] = variant_##name;
#include "variants.def"
#undef VARIANT
	/* Page faults are the same for all, and larger than the differences of interest. */
	options.dirty = (size_t)4 << 30;
	options.decay = 60000;
	return list;
}
