/* SPDX-License-Identifier: MIT */
/*
 * page_huge: separate mappings: thousands of them are found, and no other address is; freed ones are cached,
 * reused and given back by the rules; resizing keeps the contents; alignment up to 1 GiB.
 */
#include "check.h"

#include <sys/mman.h>

#include "options/options.h"
#include "page/page.h"

enum { MANY = 3000, MIB = 1 << 20 };

static struct mapping {
	char *address;
	size_t bytes;
} mappings[MANY];
static size_t live, live_bytes;

static struct page_statistics statistics(void)
{
	struct page_statistics now;
	page_statistics(&now);
	return now;
}

static void check_counts(void)
{
	struct page_statistics now = statistics();
	CHECK(now.huge_mappings == live, "%zu mappings, not %zu", now.huge_mappings, live);
	CHECK(now.huge_bytes == live_bytes, "%zu bytes, not %zu", now.huge_bytes, live_bytes);
	CHECK(now.huge_cached_bytes <= options.dirty);
}

static size_t to_pages(size_t bytes)
{
	return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static bool is_mapped(const char *address)
{
	return msync((void *)(uintptr_t)address, PAGE_BYTES, MS_ASYNC) == 0;
}

static void take(struct mapping *mapping, size_t bytes)
{
	bool zeroed = false;
	mapping->address = huge_alloc(bytes, 1, &zeroed);
	CHECK(mapping->address && zeroed && *mapping->address == 0);
	mapping->bytes = to_pages(bytes);
	CHECK(huge_bytes(mapping->address) == mapping->bytes);
	live++;
	live_bytes += mapping->bytes;
}

static void give(struct mapping *mapping)
{
	CHECK(huge_bytes(mapping->address) == mapping->bytes);
	CHECK(huge_free(mapping->address));
	CHECK(huge_bytes(mapping->address) == 0 && !huge_free(mapping->address));
	/* 1 is the table's own mark for a removed entry. */
	CHECK(huge_bytes((void *)1) == 0 && !huge_free((void *)1) && !huge_resize((void *)1, 1));
	live--;
	live_bytes -= mapping->bytes;
	mapping->address = NULL;
}

/* Without the cache: a freed mapping is gone. */
static void test_table(void)
{
	uint64_t random = 5;
	struct options saved = options;
	options.decay = 0;
	for (size_t i = 0; i < MANY; i++)
		take(&mappings[i], 1 + check_below(&random, 3 * PAGE_BYTES));
	check_counts();
	/* Addresses of no mapping: neighbours, interior, nonsense. */
	for (size_t i = 0; i < MANY; i += 37) {
		char *address = mappings[i].address;
		CHECK(huge_bytes(address + 1) == 0 && huge_bytes(address - 1) == 0);
		CHECK(!huge_free(address + 16) && !huge_resize(address + 16, 1));
	}
	CHECK(huge_bytes(NULL) == 0 && !huge_free(NULL) && !huge_resize(NULL, 1));

	/* Entries come and go: removed ones neither fill the table nor hide those behind them. */
	for (unsigned long round = 0; round < check_rounds(20000, 200000, 2000); round++) {
		size_t i = check_below(&random, MANY);
		if (mappings[i].address)
			give(&mappings[i]);
		else
			take(&mappings[i], 1 + check_below(&random, 3 * PAGE_BYTES));
		if (round % 1000 == 0)
			check_counts();
	}
	for (size_t i = 0; i < MANY; i++)
		if (mappings[i].address)
			give(&mappings[i]);
	check_counts();
	for (int round = 0; round < 2000; round++) {
		take(&mappings[0], 1);
		give(&mappings[0]);
	}
	check_counts();
	CHECK(statistics().huge_cached_bytes == 0);
	options = saved;
}

static void test_cache(void)
{
	struct options saved = options;
	bool zeroed = true;
	options.decay = 1000000;
	options.dirty = 32 * MIB;
	huge_purge(true);
	CHECK(statistics().huge_cached_bytes == 0);

	/* One that a request of 4 MiB at 1 GiB could not use, which chance would make of one in 512. */
	char *aligned = NULL;
	char *first = huge_alloc(4 * MIB, 1, &zeroed);
	if ((uintptr_t)first % (1ul << 30) == 0) {
		aligned = first;
		first = huge_alloc(4 * MIB, 1, &zeroed);
	}
	CHECK(first && zeroed && (uintptr_t)first % (1ul << 30) != 0);
	if (aligned) {
		options.decay = 0; /* not into the cache */
		CHECK(huge_free(aligned));
		options.decay = 1000000;
	}
	memset(first, 1, 4 * MIB);
	CHECK(huge_free(first) && huge_bytes(first) == 0);
	CHECK(statistics().huge_cached_bytes == 4 * MIB);
	/* Too small to be worth it, too large, and not aligned enough. */
	for (int i = 0; i < 3; i++) {
		static const size_t sizes[] = {2 * MIB, 5 * MIB, 4 * MIB};
		char *other = huge_alloc(sizes[i], i == 2 ? 1ul << 30 : 1, &zeroed);
		CHECK(other && zeroed && other != first);
		CHECK(huge_bytes(other) == sizes[i]);
		options.decay = 0; /* not into the cache */
		CHECK(huge_free(other));
		options.decay = 1000000;
	}
	CHECK(statistics().huge_cached_bytes == 4 * MIB);
	/* A mapping that wastes at most a quarter serves a request, which gets all of it. */
	CHECK(huge_alloc(3 * MIB + 1, 1, &zeroed) == first && !zeroed && *first == 1);
	CHECK(huge_bytes(first) == 4 * MIB && statistics().huge_cached_bytes == 0);
	CHECK(huge_free(first));

	/* The best fit of several. */
	char *better = huge_alloc(5 * MIB, 1, &zeroed);
	CHECK(huge_free(better));
	CHECK(huge_alloc(4 * MIB - 5, 1, &zeroed) == first);
	CHECK(huge_alloc(4 * MIB - 5, 1, &zeroed) == better);
	CHECK(huge_free(first) && huge_free(better));

	/* The limit: eight mappings, and options.dirty; the oldest make room. */
	char *many[12];
	for (int i = 0; i < 12; i++)
		many[i] = huge_alloc((size_t)(i + 1) * MIB / 4, 1, &zeroed);
	for (int i = 0; i < 12; i++) {
		CHECK(huge_free(many[i]));
		CHECK(statistics().huge_cached_bytes <= options.dirty);
	}
	huge_purge(false);
	CHECK(statistics().huge_cached_bytes != 0);
	char *large = huge_alloc(30 * MIB, 1, &zeroed);
	CHECK(zeroed && huge_free(large));
	check_counts();
	large = huge_alloc(33 * MIB, 1, &zeroed);
	CHECK(zeroed && huge_free(large) && !is_mapped(large));
	check_counts();

	/* By age, and all. */
	huge_purge(true);
	CHECK(statistics().huge_cached_bytes == 0 && !is_mapped(first));
	large = huge_alloc(MIB, 1, &zeroed);
	CHECK(zeroed && huge_free(large) && is_mapped(large));
	huge_purge(false);
	CHECK(statistics().huge_cached_bytes == MIB && is_mapped(large));
	usleep(30000);
	options.decay = 1;
	huge_purge(false);
	CHECK(statistics().huge_cached_bytes == 0 && !is_mapped(large));
	options = saved;
	check_counts();
}

static void test_resize(void)
{
	struct options saved = options;
	unsigned moved = 0;
	options.decay = 0;
	for (int i = 0; i < 40; i++) {
		struct mapping *mapping = &mappings[i];
		take(mapping, MIB + (size_t)i * PAGE_BYTES);
		check_stamp(mapping->address, mapping->bytes, (uint64_t)i);
	}
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < 40; i++) {
			struct mapping *mapping = &mappings[i];
			size_t bytes = round == 0 ? 2 * MIB + (size_t)i : round == 1 ? 900000 : 3 * MIB;
			size_t kept = bytes < mapping->bytes ? bytes : mapping->bytes;
			kept = kept < MIB / 2 ? kept : MIB / 2;
			char *resized = huge_resize(mapping->address, bytes);
			CHECK(resized);
			CHECK_STAMP(resized, kept, (uint64_t)i);
			live_bytes += to_pages(bytes) - mapping->bytes;
			mapping->bytes = to_pages(bytes);
			CHECK(huge_bytes(resized) == mapping->bytes);
			if (resized != mapping->address) {
				CHECK(round != 1, "a mapping moved to shrink");
				CHECK(huge_bytes(mapping->address) == 0);
				moved++;
			}
			mapping->address = resized;
			resized[mapping->bytes - 1] = 1;
			check_counts();
			/* Resizing to the same size changes nothing; an impossible size is refused. */
			CHECK(huge_resize(resized, bytes) == resized);
			CHECK(!huge_resize(resized, 1ul << 47) && huge_bytes(resized) == mapping->bytes);
		}
	CHECK(moved > 0);
	for (int i = 0; i < 40; i++) {
		CHECK_STAMP(mappings[i].address, MIB / 2, (uint64_t)i);
		give(&mappings[i]);
	}
	check_counts();
	options = saved;
}

/* Of the whole process. */
static size_t virtual_pages(void)
{
	char text[128];
	int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	ssize_t length = read(file, text, sizeof text - 1);
	CHECK(file >= 0 && length > 0);
	close(file);
	text[length] = 0;
	return strtoul(text, NULL, 10);
}

static void test_alignment(void)
{
	bool zeroed;
	options.decay = 0;
	for (size_t alignment = PAGE_BYTES; alignment <= 1ul << 30; alignment *= 4) {
		size_t before = virtual_pages();
		char *address = huge_alloc(5 * PAGE_BYTES - 3, alignment, &zeroed);
		CHECK(address && zeroed && (uintptr_t)address % alignment == 0,
		      "%p is not aligned to %zu bytes", (void *)address, alignment);
		CHECK(huge_bytes(address) == 5 * PAGE_BYTES);
		check_stamp(address, 5 * PAGE_BYTES, 9);
		/* What was mapped in addition for alignment is gone again. */
		CHECK(virtual_pages() - before <= 5 + 1, "%zu pages for 5 at %zu bytes of alignment",
		      virtual_pages() - before, alignment);
		CHECK(huge_free(address));
	}
	CHECK(!huge_alloc(1ul << 47, 1, &zeroed));
	CHECK(!huge_alloc(PAGE_BYTES, 1ul << 62, &zeroed));
	CHECK(!huge_alloc(PTRDIFF_MAX, 1ul << 62, &zeroed));
	check_counts();
}

int main(void)
{
	check_watchdog(60);
	free(malloc(1));
	test_table();
	test_cache();
	test_resize();
	test_alignment();
	return 0;
}
