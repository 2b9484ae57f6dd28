/* SPDX-License-Identifier: MIT */
/*
 * geometry: how many objects a slab holds when its index shrinks from four bytes an object to one (seed 003),
 * and how much memory that saves.
 *
 *   objects in a slab   the seed's eight caches by SLAB's rule before and after, beside its published rows
 *   bytes saved         by the objects that a slab has gained
 *   bytes an object     slab and index, over the objects; for this library's slabs too
 *   resident            200000 objects of each cache, allocated and written: slabs built by either rule, an
 *                       object cache of this library, and the malloc of every other allocator.  All memory of
 *                       the process but its files, read from its page tables and not computed: includes what
 *                       the allocator needs for itself, and some 150 KiB of the process's own.
 */
#include "bench.h"

#include "launch.h"
#include "machine.h"

#include "slab/geometry.h"

#include <cpuslab/cache.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { OBJECTS = 200000, PAGE = 4096, LINE = 64 };

/* The caches of the seed's table, in its order. */
static const struct kernel_cache {
	const char *name;
	uint32_t size, alignment;
	bool early;             /* made while the kernel starts: its index can lie nowhere else */
	uint32_t before, after; /* objects in a slab, published */
} caches[] = {
	{"kmalloc-512", 512, LINE, false, 8, 8},       {"kmalloc-256", 256, LINE, false, 15, 16},
	{"kmalloc-192", 192, LINE, false, 20, 21},     {"kmalloc-96", 96, LINE, false, 31, 31},
	{"kmalloc-64", 64, LINE, false, 60, 63},       {"kmalloc-128", 128, LINE, true, 31, 31},
	{"kmalloc-32", 32, LINE / 2, false, 113, 124}, {"kmem_cache", 192, LINE, true, 20, 21},
};

enum { CACHES = sizeof(caches) / sizeof(caches[0]) };

static struct geometry slab_of(const struct kernel_cache *cache, bool narrow)
{
	struct geometry_slab_rule rule = narrow ? geometry_slab_narrow : geometry_slab_wide;
	rule.early = cache->early;
	return geometry_slab(&rule, cache->size, cache->alignment);
}

/* ======== in the worker ======== */

/* Maps fresh memory in small pages, so that exactly the touched pages are resident. */
static char *map(size_t bytes)
{
	char *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		abort();
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	return memory;
}

/* Builds slabs as SLAB lays them out, with every object in use but the surplus of the last slab. */
static void build_slabs(const struct kernel_cache *cache, bool narrow)
{
	struct geometry slab = slab_of(cache, narrow);
	uint32_t stride = geometry_stride(cache->size, cache->alignment);
	uint32_t index = slab.objects * slab.index_bytes;
	size_t slabs = (OBJECTS + slab.objects - 1) / slab.objects, made = 0;
	char *memory = map(slabs * slab.bytes), *outside = map(slabs * index);
	for (size_t s = 0; s < slabs; s++) {
		char *start = memory + s * slab.bytes;
		memset(slab.index_inside ? start : outside + s * index, 1, index);
		char *object = start + (slab.index_inside ? geometry_stride(index, cache->alignment) : 0);
		for (uint32_t i = 0; i < slab.objects && made < OBJECTS; i++, made++)
			memset(object + (size_t)i * stride, 1, cache->size);
	}
}

static void fill_cache(const struct kernel_cache *cache)
{
	__typeof__(cpuslab_cache_create) *create =
		(__typeof__(cpuslab_cache_create) *)dlsym(RTLD_DEFAULT, "cpuslab_cache_create");
	__typeof__(cpuslab_cache_alloc) *allocate =
		(__typeof__(cpuslab_cache_alloc) *)dlsym(RTLD_DEFAULT, "cpuslab_cache_alloc");
	struct cpuslab_cache_args args = {.name = cache->name, .size = cache->size};
	struct cpuslab_cache *made = create && allocate ? create(&args) : NULL;
	if (!made)
		abort();
	for (unsigned i = 0; i < OBJECTS; i++)
		memset(allocate(made), 1, cache->size);
}

static void fill_malloc(const struct kernel_cache *cache)
{
	for (unsigned i = 0; i < OBJECTS; i++) {
		char *object = malloc(cache->size);
		if (!object)
			abort();
		memset(object, 1, cache->size);
	}
}

int worker_geometry(int argc, char **argv)
{
	unsigned which = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : CACHES;
	if (which >= CACHES)
		return 2;
	const struct kernel_cache *cache = &caches[which];
	if (strcmp(argv[1], "cache") == 0)
		fill_cache(cache);
	else if (strcmp(argv[1], "malloc") == 0)
		fill_malloc(cache);
	else
		build_slabs(cache, strcmp(argv[1], "narrow") == 0);
	double bytes = anonymous_bytes();
	return session_reply(&bytes, sizeof(bytes)) ? 0 : 1;
}

/* ======== in the command ======== */

static const char before_name[] = "index 4 bytes", after_name[] = "index 1 byte";

static void add_exact(struct bench *bench, struct cell *cell, const char *column, enum role role,
		      double value)
{
	if (!results_find(&bench->results, cell, column))
		results_add(&bench->results, cell, column, role, value);
}

/* Returns slab and index, wherever that lies, over the objects. */
static double bytes_an_object(const struct geometry *slab)
{
	double index = slab->index_inside ? 0 : (double)slab->objects * slab->index_bytes;
	return (slab->bytes + index) / slab->objects;
}

static void add_rules(struct bench *bench, const struct kernel_cache *cache)
{
	struct geometry before = slab_of(cache, false), after = slab_of(cache, true);
	struct geometry ours = geometry_runs(PAGE, geometry_stride(cache->size, 16));
	struct cell cell = {"geometry", "slabs", cache->name, "objects in a slab", "objects", BETTER_HIGHER};
	add_exact(bench, &cell, "before, seed", ROLE_PUBLISHED, cache->before);
	add_exact(bench, &cell, before_name, ROLE_EXACT, before.objects);
	add_exact(bench, &cell, "after, seed", ROLE_PUBLISHED, cache->after);
	add_exact(bench, &cell, after_name, ROLE_EXACT, after.objects);
	cell = (struct cell){"geometry", "slabs", cache->name, "saved in a slab", "bytes", BETTER_HIGHER};
	add_exact(bench, &cell, after_name, ROLE_EXACT,
		  (after.objects - before.objects) * (double)cache->size);
	cell = (struct cell){"geometry", "slabs",     cache->name, "slab memory of an object",
			     "bytes",    BETTER_LOWER};
	add_exact(bench, &cell, before_name, ROLE_EXACT, bytes_an_object(&before));
	add_exact(bench, &cell, after_name, ROLE_EXACT, bytes_an_object(&after));
	add_exact(bench, &cell, "cpuslab", ROLE_EXACT, bytes_an_object(&ours));
}

struct context {
	struct cell cell;
	char which[8];
};

static bool add_resident(struct bench *bench, const struct context *c, const char *column, const char *how,
			 const struct peer *peer)
{
	char *argv[] = {launch_program, "bench", "worker", "geometry", (char *)how, (char *)c->which, NULL};
	struct launch launch = {.argv = argv, .peer = peer, .cpu = machine_pinned_cpu()};
	double bytes;
	if (!launch_report(launch, &bytes, sizeof(bytes)))
		return false;
	results_add(&bench->results, &c->cell, column, ROLE_MEASURED, bytes);
	return true;
}

/* The slabs of both rules are built beside the first allocator of each round. */
static bool measure_geometry(struct bench *bench, unsigned peer, bool warm_up, void *context)
{
	const struct context *c = context;
	const struct peer *p = &bench->peers.list[peer];
	if (warm_up)
		return true;
	if (peer == 0 && !(add_resident(bench, c, before_name, "wide", NULL) &&
			   add_resident(bench, c, after_name, "narrow", NULL)))
		return false;
	return add_resident(bench, c, p->name, strcmp(p->name, "cpuslab") == 0 ? "cache" : "malloc", p);
}

bool group_geometry(struct bench *bench)
{
	for (unsigned i = 0; i < CACHES; i++) {
		struct context context = {.cell = {"geometry", "200000 objects", caches[i].name, "resident",
						   "B", BETTER_LOWER}};
		if (!bench_asked_for(bench, caches[i].name))
			continue;
		snprintf(context.which, sizeof(context.which), "%u", i);
		add_rules(bench, &caches[i]);
		bench_rounds_of(bench, &context.cell, bench_rounds(bench, 4), measure_geometry, &context);
	}
	return true;
}
