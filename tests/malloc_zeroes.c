/* SPDX-License-Identifier: MIT */
/*
 * malloc_zeroes: objects of 16 KiB to 256 KiB that are to read as zero do so without being touched: those of
 * calloc, of kzalloc and kvzalloc, with and without leave to wait, and of object caches.  The same after
 * memory that was written to has gone back to the system, and where others have left pages resident.
 *
 * In hardened mode the canary behind each object takes its last page.
 */
#include "check.h"

#include <cpuslab/kmem.h>
#include <sys/prctl.h>

enum { KIB = 1 << 10, MIB = 1 << 20, PAGE = 4096, TOTAL = 8 * MIB, LEAST = 16 * KIB, MOST = 256 * KIB };

static unsigned char *objects[TOTAL / LEAST];

static void *by_calloc(size_t size)
{
	return calloc(1, size);
}

static void *by_kzalloc(size_t size)
{
	return kzalloc(size, GFP_KERNEL);
}

static void *by_kzalloc_nowait(size_t size)
{
	return kzalloc(size, GFP_NOWAIT);
}

static void *by_kvzalloc(size_t size)
{
	return kvzalloc(size, GFP_KERNEL);
}

static struct cpuslab_cache *cache;

static void *by_cache(size_t size)
{
	(void)size;
	return cpuslab_cache_zalloc(cache);
}

static void *by_cache_nowait(size_t size)
{
	(void)size;
	return kmem_cache_zalloc((struct kmem_cache *)cache, GFP_NOWAIT);
}

static const struct way {
	const char *name;
	void *(*alloc)(size_t size);
	bool cached;
} ways[] = {
	{"calloc", by_calloc, false},
	{"kzalloc", by_kzalloc, false},
	{"kzalloc without waiting", by_kzalloc_nowait, false},
	{"kvzalloc", by_kvzalloc, false},
	{"cpuslab_cache_zalloc", by_cache, true},
	{"kmem_cache_zalloc without waiting", by_cache_nowait, true},
};

static void alloc_all(const struct way *way, size_t size)
{
	for (size_t i = 0; i < TOTAL / size; i++) {
		objects[i] = way->alloc(size);
		CHECK(objects[i], "%s of %zu bytes", way->name, size);
	}
}

static void free_all(const struct way *way, size_t size)
{
	for (size_t i = 0; i < TOTAL / size; i++)
		if (way->cached)
			cpuslab_cache_free(cache, objects[i]);
		else
			free(objects[i]);
}

/* The library's records and magazines; with canaries a page for each object, two where one lies across. */
static size_t allowed(size_t size)
{
	return MIB / 2 + (check_hardened() ? TOTAL / size * 2 * PAGE : 0);
}

static void expect_untouched(const struct way *way, size_t size, const char *when)
{
	size_t before = check_anonymous();
	alloc_all(way, size);
	size_t more = check_anonymous() - before;
	CHECK((long)more < (long)allowed(size), "%s of %zu bytes %s: %zu KiB are resident", way->name, size,
	      when, more / KIB);
	for (size_t i = 0; i < TOTAL / size; i++)
		for (size_t at = 0; at < size; at += 8)
			CHECK(*(uint64_t *)(objects[i] + at) == 0, "%s of %zu bytes %s", way->name, size,
			      when);
}

static void write_all(size_t size)
{
	for (size_t i = 0; i < TOTAL / size; i++)
		memset(objects[i], 0xa5, size);
}

static void try_size(const struct way *way, size_t size)
{
	if (way->cached) {
		struct cpuslab_cache_args args = {
			.name = "zeroes", .size = size, .flags = CPUSLAB_CACHE_NO_MERGE};
		cache = cpuslab_cache_create(&args);
		CHECK(cache);
	}
	expect_untouched(way, size, "at first");
	free_all(way, size);
	expect_untouched(way, size, "again");
	write_all(size);
	free_all(way, size);
	malloc_trim(0);
	expect_untouched(way, size, "after a purge");
	/* What stays resident from here on is none of the next objects' doing, but has to be cleared. */
	write_all(size);
	free_all(way, size);
	expect_untouched(way, size, "on resident pages");
	free_all(way, size);
	if (way->cached)
		cpuslab_cache_destroy(cache);
	malloc_trim(0);
}

int main(void)
{
	check_watchdog(100);
	/* A huge page is resident as a whole. */
	CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
	for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++)
		for (size_t size = LEAST; size <= MOST; size += size < 32 * KIB ? 3616 : size / 3 & ~7ul)
			try_size(&ways[i], size);
	printf("%s\n", check_mode());
	return 0;
}
