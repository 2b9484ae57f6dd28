/* SPDX-License-Identifier: MIT */
/*
 * page_blocks: the option huge_pages.  `always` and `never` apply to the whole heap and to mappings outside
 * it.  `auto` leaves the heap's beginning alone; advises what a filled heap grows by, but not growth of one
 * that is not filled, nor growth far beyond its size; withdraws the advice where a part of a block is given
 * back, and restores it with the whole; starts sooner in a large program; advises large objects once such
 * objects were filled, those of resident pages only after many; gives whole blocks back first; stops where a
 * huge page is dear, but tries again now and then; and also covers what goes back to the reserve.
 *
 * Advice is read from the flags in /proc/self/smaps, which needs no free huge page; a separate check uses an
 * advised mapping of the test's own to see whether advised memory becomes huge pages.
 */
#include "check.h"

#include <sys/mman.h>

#include "options/options.h"
#include "page/block.h"
#include "page/layout.h"
#include "page/page.h"

enum { SOME_SLAB = 40000, RUN_PAGES = 16, RUN_BYTES = RUN_PAGES * PAGE_BYTES, MIB = 1 << 20 };

struct mapping {
	unsigned long start, end;
	size_t huge_bytes;
	bool advised, forbidden;
};

/* Reads the next mapping of smaps, without malloc, which would change the result. */
static bool read_mapping(FILE *smaps, struct mapping *mapping)
{
	char line[512];
	while (fgets(line, sizeof line, smaps)) {
		unsigned long start, end;
		size_t kib;
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
			mapping->start = start;
			mapping->end = end;
		}
		if (sscanf(line, "AnonHugePages: %zu kB", &kib) == 1)
			mapping->huge_bytes = kib * 1024;
		if (strncmp(line, "VmFlags:", 8) == 0) {
			mapping->advised = strstr(line, " hg");
			mapping->forbidden = strstr(line, " nh");
			return true;
		}
	}
	return false;
}

/* How many of the bytes from `address` on lie in advised, forbidden and huge memory (the last by mapping). */
static struct mapping look(const void *address, size_t bytes, size_t *advised, size_t *forbidden)
{
	static char buffer[1 << 16];
	uintptr_t start = (uintptr_t)address, end = start + bytes;
	struct mapping mapping = {0}, sum = {0};
	FILE *smaps = fopen("/proc/self/smaps", "re");
	CHECK(smaps && setvbuf(smaps, buffer, _IOFBF, sizeof buffer) == 0);
	*advised = *forbidden = 0;
	while (read_mapping(smaps, &mapping)) {
		uintptr_t from = mapping.start > start ? mapping.start : start;
		uintptr_t to = mapping.end < end ? mapping.end : end;
		if (from >= to)
			continue;
		*advised += mapping.advised ? to - from : 0;
		*forbidden += mapping.forbidden ? to - from : 0;
		sum.huge_bytes += mapping.huge_bytes;
	}
	fclose(smaps);
	return sum;
}

/* Which of the heap's first `count` blocks are advised; by one walk through smaps. */
static void look_at_blocks(bool *advised, unsigned count)
{
	static char buffer[1 << 16];
	struct mapping mapping = {0};
	FILE *smaps = fopen("/proc/self/smaps", "re");
	CHECK(smaps && setvbuf(smaps, buffer, _IOFBF, sizeof buffer) == 0);
	memset(advised, 0, count * sizeof *advised);
	while (read_mapping(smaps, &mapping))
		for (unsigned block = 0; mapping.advised && block < count; block++) {
			uintptr_t start = (uintptr_t)layout.heap.base + (size_t)block * BLOCK_BYTES;
			advised[block] |= mapping.start <= start && start + BLOCK_BYTES <= mapping.end;
		}
	fclose(smaps);
}

static size_t advised_bytes(const void *address, size_t bytes)
{
	size_t advised, forbidden;
	look(address, bytes, &advised, &forbidden);
	return advised;
}

static size_t forbidden_bytes(const void *address, size_t bytes)
{
	size_t advised, forbidden;
	look(address, bytes, &advised, &forbidden);
	return forbidden;
}

static size_t huge_page_bytes(const void *address, size_t bytes)
{
	size_t advised, forbidden;
	return look(address, bytes, &advised, &forbidden).huge_bytes;
}

/* Whether advised memory becomes huge pages here and now. */
static bool system_has_huge_pages(void)
{
	size_t bytes = 4ul * BLOCK_BYTES;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	madvise(memory, bytes, MADV_HUGEPAGE);
	memset(memory, 1, bytes);
	bool has = huge_page_bytes(memory, bytes) >= BLOCK_BYTES;
	munmap(memory, bytes);
	if (!has)
		printf("no huge pages on this system: flags alone were looked at\n");
	return has;
}

static char *block_at(unsigned block)
{
	return layout.heap.base + (size_t)block * BLOCK_BYTES;
}

static char *take(size_t pages, uint16_t id, bool touch)
{
	bool zeroed;
	char *run = page_alloc(pages, 1, id, &zeroed);
	CHECK(run);
	for (size_t page = 0; touch && page < pages; page++)
		run[page * PAGE_BYTES + page % PAGE_BYTES] = 1;
	if (id == SOME_SLAB && touch)
		page_count_touched((long)pages);
	return run;
}

/* Grows the heap to `bytes` with runs like those of slabs; none is ever freed. */
static void fill_heap(size_t bytes, bool touch)
{
	while (page_heap_pages() * PAGE_BYTES < bytes)
		take(RUN_PAGES, SOME_SLAB, touch);
}

/* ---- auto ------------------------------------------------------------------------------------------ */

static void expect_advice(unsigned block, bool advised)
{
	CHECK(advised_bytes(block_at(block), BLOCK_BYTES) == (advised ? BLOCK_BYTES : 0), "block %u", block);
}

static void test_dense(void)
{
	fill_heap(96ul * MIB, true);
	CHECK(advised_bytes(layout.heap.base, BLOCK_SMALL_HEAP) == 0);
	CHECK(forbidden_bytes(layout.heap.base, BLOCK_SMALL_HEAP) == BLOCK_SMALL_HEAP);
	/* Blocks made usable together with the last of the beginning were not asked about separately. */
	for (unsigned block = BLOCK_SMALL_HEAP / BLOCK_BYTES; block < 96 * MIB / BLOCK_BYTES; block++)
		expect_advice(block, true);
	CHECK(!system_has_huge_pages() || huge_page_bytes(block_at(16), 64ul * MIB) >= BLOCK_BYTES);
}

/* Runs of one block each, except that the rest of the last one is left out. */
static void test_purge(void)
{
	while (page_heap_pages() % BLOCK_PAGES)
		take(1, SOME_SLAB, true);
	char *run = take(3ul * BLOCK_PAGES, SOME_SLAB, true);
	unsigned block = (unsigned)((run - layout.heap.base) / BLOCK_BYTES);
	expect_advice(block, true);

	/* Half of a block, one block, and a quarter. */
	page_free(run + BLOCK_BYTES / 2, BLOCK_PAGES / 2 + BLOCK_PAGES + BLOCK_PAGES / 4);
	page_purge(true);
	expect_advice(block, false);
	expect_advice(block + 1, true);
	expect_advice(block + 2, false);
	expect_advice(block + 3, advised_bytes(block_at(block + 3), BLOCK_BYTES) != 0);
	expect_advice(block - 1, true);
	CHECK(forbidden_bytes(block_at(block), BLOCK_BYTES) == BLOCK_BYTES);

	/*
	 * The rest: it goes back whole, along with clean memory, and may become huge again only as one run.
	 */
	page_free(run, BLOCK_PAGES / 2);
	page_free(run + 2ul * BLOCK_BYTES + BLOCK_BYTES / 4, BLOCK_PAGES / 4 * 3);
	page_purge(true);
	expect_advice(block, false);
	char *again = take(3ul * BLOCK_PAGES, SOME_SLAB, true);
	CHECK(again == run);
	page_free(again, 3ul * BLOCK_PAGES);
	page_purge(true);
	for (unsigned i = 0; i < 3; i++)
		expect_advice(block + i, true);
}

static void test_surplus(void)
{
	unsigned block = (unsigned)(page_heap_pages() / BLOCK_PAGES);
	uint32_t first = (block - 3) * BLOCK_PAGES - 100;
	expect_advice(block - 3, true);

	uint32_t part = first;
	CHECK(block_surplus(&part, 99, 64) == 64 && part == first);
	CHECK(block_surplus(&part, BLOCK_PAGES, 64) == 64 && part == first);
	CHECK(block_surplus(&part, BLOCK_PAGES + 100, 64) == BLOCK_PAGES && part == first + 100);
	part = first;
	CHECK(block_surplus(&part, 2 * BLOCK_PAGES + 100, BLOCK_PAGES + 1) == 2 * BLOCK_PAGES &&
	      part == first + 100);
	part = first;
	CHECK(block_surplus(&part, 2 * BLOCK_PAGES + 99, 2 * BLOCK_PAGES) == BLOCK_PAGES);
	/* Nothing is advised in the heap's beginning. */
	part = 5;
	CHECK(block_surplus(&part, 2 * BLOCK_PAGES, 64) == 64 && part == 5);
}

static void test_mapping(void)
{
	bool zeroed;
	char *mapping = huge_alloc(20ul * MIB, 1, &zeroed);
	CHECK(mapping && advised_bytes(mapping, 20ul * MIB) == 0);
	mapping = huge_resize(mapping, 40ul * MIB);
	CHECK(mapping && advised_bytes(mapping, 40ul * MIB) == 0); /* it was not filled */
	memset(mapping, 1, 40ul * MIB);
	mapping = huge_resize(mapping, 50ul * MIB);
	CHECK(mapping && advised_bytes(mapping, 50ul * MIB) == 0); /* not doubled */
	mapping = huge_resize(mapping, 64ul * MIB);
	CHECK(mapping && advised_bytes(mapping, 64ul * MIB) == 0); /* filled too little */
	memset(mapping, 1, 64ul * MIB);
	mapping = huge_resize(mapping, 128ul * MIB);
	CHECK(mapping && advised_bytes(mapping, 128ul * MIB) == 128ul * MIB);
	CHECK(huge_free(mapping));
}

/* ---- the others ------------------------------------------------------------------------------------ */

/* A large object is advised if one of half its size was filled; one that was not filled counts against it. */
static void run_large(void)
{
	size_t pages = 4ul * BLOCK_PAGES;
	char *object = take(pages, PAGE_LARGE, false);
	CHECK(advised_bytes(object, pages * PAGE_BYTES) == 0);
	page_free(object, pages);
	page_purge(true);
	object = take(pages, PAGE_LARGE, true);
	CHECK(advised_bytes(object, pages * PAGE_BYTES) == 0);
	page_free(object, pages);
	page_purge(true);

	/* In the heap's beginning the advice goes with the memory; this object was never touched. */
	object = take(2 * pages, PAGE_LARGE, false);
	CHECK(advised_bytes(object, 2 * pages * PAGE_BYTES) >= 2 * pages * PAGE_BYTES - 2ul * BLOCK_BYTES);
	page_free(object, 2 * pages);
	page_purge(true);
	CHECK(advised_bytes(layout.heap.base, BLOCK_SMALL_HEAP) == 0);
	object = take(2 * pages, PAGE_LARGE, true);
	CHECK(advised_bytes(object, 2 * pages * PAGE_BYTES) == 0);

	/* Nobody looks into the one before this, which is filled: it was not freed, and may be unreadable. */
	CHECK(mprotect(object, PAGE_BYTES, PROT_NONE) == 0);
	char *other = take(2 * pages, PAGE_LARGE, false);
	CHECK(advised_bytes(other, 2 * pages * PAGE_BYTES) == 0);
	CHECK(mprotect(object, PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
	page_free(object, 2 * pages);
	page_free(other, 2 * pages);
	page_purge(true);
}

/* The same where the table of blocks fits into a reused piece of metadata. */
static void run_small(void)
{
	size_t blocks = layout.heap.planned / BLOCK_BYTES;
	void *piece = metadata_alloc(blocks);
	CHECK(blocks <= METADATA_REUSED_MOST && piece);
	memset(piece, 1, blocks);
	metadata_free(piece, blocks);
	run_large();
}

enum { REUSES = 512, REUSES_LEAST = 100 };

/*
 * How often a large object must reuse the memory of the one before until its blocks are advised; REUSES for
 * never.
 */
static unsigned reuses_until_advised(size_t pages, bool touch)
{
	for (unsigned reuses = 0; reuses < REUSES; reuses++) {
		char *object = take(pages, PAGE_LARGE, touch);
		size_t advised = advised_bytes(object, pages * PAGE_BYTES);
		page_free(object, pages);
		if (advised) {
			CHECK(advised >= (pages - 2ul * BLOCK_PAGES) * PAGE_BYTES, "%zu bytes", advised);
			return reuses;
		}
	}
	return REUSES;
}

/* Resident pages are given back to make room for huge ones, but not before that pays. */
static void run_reused(void)
{
	size_t pages = 4ul * BLOCK_PAGES;
	/* Without this object each free would leave no large one, which is an ebb. */
	char *other = take(1, PAGE_LARGE, true);
	unsigned reuses = reuses_until_advised(pages, true);
	CHECK(reuses >= REUSES_LEAST && reuses < REUSES, "%u reuses", reuses);
	char *object = take(pages, PAGE_LARGE, false);
	CHECK(!system_has_huge_pages() || huge_page_bytes(object, pages * PAGE_BYTES) >= BLOCK_BYTES);
	page_free(object, pages);
	page_free(other, 1);
}

/* Huge pages that count as dear whatever they cost, and then as cheap. */
static void run_dear(void)
{
	enum { SMALL = BLOCK_SMALL_HEAP / BLOCK_BYTES, MIDDLE = 64, BLOCKS = 128 };
	bool advised[BLOCKS];
	block_dear = 0;
	fill_heap((size_t)MIDDLE * BLOCK_BYTES, true);
	/* The first two blocks, since one proves nothing; another one after 15; then 45 are due without
	 * advice. */
	look_at_blocks(advised, MIDDLE);
	for (unsigned block = 0; block < MIDDLE; block++)
		CHECK(advised[block] == (block == SMALL || block == SMALL + 1 || block == SMALL + 17),
		      "block %u", block);
	block_dear = UINT64_MAX;
	fill_heap((size_t)BLOCKS * BLOCK_BYTES, true);
	look_at_blocks(advised, BLOCKS);
	/*
	 * Each trial is followed by half as many blocks without advice as the one before it: 22, 11, 5, 2, 1.
	 */
	static const unsigned tried[] = {SMALL + 63, SMALL + 86, SMALL + 98, SMALL + 104, SMALL + 107};
	for (unsigned block = MIDDLE, next = 0; block < BLOCKS; block++) {
		bool wanted =
			next < sizeof tried / sizeof *tried ? block == tried[next] : block > SMALL + 108;
		CHECK(advised[block] == wanted, "block %u", block);
		next += wanted && next < sizeof tried / sizeof *tried;
	}

	/* The first blocks of two large objects are tried, and then no more of later ones. */
	while (page_heap_pages() % BLOCK_PAGES)
		take(1, SOME_SLAB, true);
	block_dear = 0;
	size_t pages = 8ul * BLOCK_PAGES;
	char *object = take(pages, PAGE_LARGE, true);
	page_free(object, pages);
	page_purge(true);
	for (int i = 0; i < 3; i++) {
		object = take(pages, PAGE_LARGE, true);
		size_t bytes = advised_bytes(object, pages * PAGE_BYTES);
		CHECK(bytes == (i < 2 ? BLOCK_BYTES : 0), "object %d: %zu bytes", i, bytes);
	}
	/* Nor are their pages given back for huge ones, except for those of one block. */
	size_t most = 0;
	for (int i = 0; i < REUSES; i++) {
		page_free(object, pages);
		object = take(pages, PAGE_LARGE, true);
		size_t bytes = advised_bytes(object, pages * PAGE_BYTES);
		most = bytes > most ? bytes : most;
	}
	CHECK(most == BLOCK_BYTES, "%zu bytes", most);
}

/* Only unused memory is touched to measure the cost: alignment may have skipped the block's beginning. */
static void run_skipped(void)
{
	bool zeroed;
	for (size_t blocks = 1; blocks <= 2; blocks++) {
		fill_heap(64ul * MIB, true);
		/* The next block has an odd number. */
		while (page_heap_pages() % (2 * BLOCK_PAGES) != BLOCK_PAGES - 1)
			take(1, SOME_SLAB, true);
		char *next = layout.heap.base + (page_heap_pages() + 1) * PAGE_BYTES;
		char *run = page_alloc(1, blocks * BLOCK_PAGES, SOME_SLAB, &zeroed);
		CHECK(run == next + (blocks - 1) * BLOCK_BYTES);
		unsigned char present;
		CHECK(mincore(next, PAGE_BYTES, &present) == 0 && (present & 1) == (run == next));
		CHECK(advised_bytes(next, BLOCK_BYTES) == BLOCK_BYTES);
	}
}

/* Memory that nobody touches: large objects, and growth of the heap. */
static void run_sparse(void)
{
	CHECK(reuses_until_advised(4ul * BLOCK_PAGES, false) == REUSES);
	fill_heap(96ul * MIB, false);
	CHECK(advised_bytes(layout.heap.base, 96ul * MIB) == 0);
}

/* Objects larger than a page may be untouched, for all that is known: they justify no advice, filled or not.
 */
static void run_large_objects(void)
{
	fill_heap(20ul * MIB, true);
	while (page_heap_pages() * PAGE_BYTES < 40ul * MIB)
		take(RUN_PAGES, PAGE_LARGE, true);
	fill_heap(64ul * MIB, true);
	CHECK(advised_bytes(layout.heap.base, 64ul * MIB) == 0);
}

/* A small filled heap justifies advice for as much again and not for more. */
static void run_jump(void)
{
	fill_heap(31ul * MIB, true);
	char *object = take(512ul * MIB / PAGE_BYTES, PAGE_LARGE, false);
	size_t advised = advised_bytes(object, 512ul * MIB);
	CHECK(advised && advised <= 32ul * MIB, "%zu bytes", advised);
}

/* As after the system has refused a page of one of the regions: what is reserved anew. */
static void shrink_heap(void)
{
	size_t had = layout.heap.committed;

	__atomic_store_n(&layout_refused, true, __ATOMIC_RELAXED);
	page_purge(true);
	CHECK(layout.heap.committed < had && layout.heap.committed == page_heap_pages() * PAGE_BYTES);
}

/* The heap's beginning, metadata, and an advised block keep their advice. */
static void run_shrunk(void)
{
	fill_heap(8ul * MIB + RUN_BYTES, true);
	shrink_heap();
	CHECK(forbidden_bytes(layout.heap.base, BLOCK_SMALL_HEAP) == BLOCK_SMALL_HEAP);
	CHECK(forbidden_bytes(layout.metadata.base, layout.metadata.planned) == layout.metadata.planned);
	fill_heap(96ul * MIB + RUN_BYTES, true);
	expect_advice(96 * MIB / BLOCK_BYTES, true);
	shrink_heap();
	expect_advice(96 * MIB / BLOCK_BYTES, true);
	expect_advice(96 * MIB / BLOCK_BYTES + 1, false);
	CHECK(forbidden_bytes(layout.metadata.base, layout.metadata.planned) == layout.metadata.planned);
}

static void run_everywhere(bool wanted)
{
	bool zeroed;
	fill_heap(8ul * MIB, true);
	char *mapping = huge_alloc(3ul * BLOCK_BYTES, 1, &zeroed);
	CHECK(mapping);
	memset(mapping, 1, 3ul * BLOCK_BYTES);
	for (int round = 0; round < 2; round++) {
		size_t heap = layout.heap.committed;
		CHECK(advised_bytes(layout.heap.base, heap) == (wanted ? heap : 0));
		CHECK(forbidden_bytes(layout.heap.base, heap) == (wanted ? 0 : heap));
		CHECK(advised_bytes(mapping, 3ul * BLOCK_BYTES) == (wanted ? 3ul * BLOCK_BYTES : 0));
		CHECK(forbidden_bytes(mapping, 3ul * BLOCK_BYTES) == (wanted ? 0 : 3ul * BLOCK_BYTES));
		page_purge(true);
	}
	/* Past the end of the usable heap, up to which page_purge() may have taken what it gave back. */
	fill_heap(layout.heap.committed + 1, true);
	shrink_heap();
	size_t heap = layout.heap.planned;
	CHECK(advised_bytes(layout.heap.base, heap) == (wanted ? heap : 0));
	CHECK(forbidden_bytes(layout.heap.base, heap) == (wanted ? 0 : heap));
	if (wanted && system_has_huge_pages())
		CHECK(huge_page_bytes(layout.heap.base, 8ul * MIB) >= BLOCK_BYTES);
	CHECK(wanted || huge_page_bytes(layout.heap.base, 8ul * MIB) == 0);
}

static void run_auto(void)
{
	test_mapping();
	test_dense();
	test_purge();
	test_surplus();
}

int main(int argc, char **argv)
{
	check_watchdog(120);
	if (check_valgrind())
		check_skip("valgrind makes the mappings");
	if (access("/proc/self/smaps", R_OK) != 0)
		check_skip("no /proc/self/smaps");
	if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0)
		check_skip("a kernel without huge pages");
	if (argc == 1) {
		static const char *const modes[] = {"auto",   "large",         "small",  "reused",
						    "sparse", "jump",          "dear",   "skipped",
						    "shrunk", "large_objects", "always", "never"};
		for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
			char text[64];
			snprintf(text, sizeof text, "huge_pages:%s%s", i < 10 ? "auto" : modes[i],
				 strcmp(modes[i], "small") == 0 ? ",reserve:128M" : "");
			check_again(text, modes[i]);
		}
		return 0;
	}
	free(malloc(1)); /* starts the library */
	/* The actual cost of a huge page on this machine does not matter here. */
	block_dear = UINT64_MAX;
	if (strcmp(argv[1], "auto") == 0)
		run_auto();
	else if (strcmp(argv[1], "large") == 0)
		run_large();
	else if (strcmp(argv[1], "small") == 0)
		run_small();
	else if (strcmp(argv[1], "reused") == 0)
		run_reused();
	else if (strcmp(argv[1], "sparse") == 0)
		run_sparse();
	else if (strcmp(argv[1], "jump") == 0)
		run_jump();
	else if (strcmp(argv[1], "dear") == 0)
		run_dear();
	else if (strcmp(argv[1], "skipped") == 0)
		run_skipped();
	else if (strcmp(argv[1], "shrunk") == 0)
		run_shrunk();
	else if (strcmp(argv[1], "large_objects") == 0)
		run_large_objects();
	else
		run_everywhere(strcmp(argv[1], "always") == 0);
	return 0;
}
