/* SPDX-License-Identifier: MIT */
/*
 * page_metadata: blocks are aligned, apart, zero when new, reused by size, found again by reference; and when
 * the system has no more, what came back is cut up.
 *
 *   page_metadata full   in a small heap; started by page_metadata itself
 */
#include "check.h"

#include "page/layout.h"
#include "page/page.h"

enum { BLOCKS = 400, KEPT_MOST = 64 * METADATA_UNIT };

static struct block {
	char *start;
	size_t bytes;
} blocks[BLOCKS];

static size_t rounded(size_t bytes)
{
	return (bytes + METADATA_UNIT - 1) / METADATA_UNIT * METADATA_UNIT;
}

static size_t metadata_in_use(void)
{
	struct page_statistics statistics;
	page_statistics(&statistics);
	return statistics.metadata_bytes;
}

static void take(struct block *block, size_t bytes)
{
	*block = (struct block){metadata_alloc(bytes), bytes};
	CHECK(block->start && (uintptr_t)block->start % METADATA_UNIT == 0);
	CHECK(metadata_contains(block->start) && metadata_contains(block->start + bytes - 1));
	CHECK(!page_is_heap(block->start));
	uint32_t reference = metadata_reference(block->start);
	CHECK(reference != 0 && metadata_block(reference) == block->start);
}

static void test_random(void)
{
	uint64_t random = 7;
	for (unsigned long round = 0; round < check_rounds(20000, 200000, 2000); round++) {
		size_t i = check_below(&random, BLOCKS);
		struct block *block = &blocks[i];
		if (!block->start) {
			size_t before = metadata_in_use();
			/* Beyond a size nothing is kept, so few of those. */
			take(block, 1 + check_below(&random, round % 512 ? KEPT_MOST : 3 * KEPT_MOST));
			size_t grown = metadata_in_use() - before;
			CHECK(grown == 0 || grown == rounded(block->bytes) ||
			      grown == rounded(block->bytes) + METADATA_UNIT);
			if (grown)
				CHECK(check_all_bytes(block->start, rounded(block->bytes), 0));
			/* All of it, up to the unit: a neighbour that overlaps will see. */
			check_stamp(block->start, rounded(block->bytes), i);
		} else {
			CHECK_STAMP(block->start, rounded(block->bytes), i);
			metadata_free(block->start, block->bytes);
			block->start = NULL;
		}
	}
	for (size_t i = 0; i < BLOCKS; i++)
		if (blocks[i].start) {
			CHECK_STAMP(blocks[i].start, rounded(blocks[i].bytes), i);
			metadata_free(blocks[i].start, blocks[i].bytes);
			blocks[i].start = NULL;
		}
}

static void test_reuse(void)
{
	struct block first, second;
	take(&first, 1000);
	metadata_free(first.start, 1000);
	size_t before = metadata_in_use();
	/* The same size in units, the last one freed first. */
	take(&second, 961);
	CHECK(second.start == first.start);
	metadata_free(second.start, 961);
	take(&second, 1025);
	CHECK(second.start != first.start);
	metadata_free(second.start, 1025);
	take(&second, 1000);
	CHECK(second.start == first.start);
	metadata_free(second.start, 1000);
	CHECK(metadata_in_use() - before <= rounded(1025));

	CHECK(!metadata_contains(NULL) && !metadata_contains(&first) &&
	      !metadata_contains(layout.metadata.base - 1) &&
	      !metadata_contains(layout.metadata.base + layout.metadata.planned));
}

static void be_full(void)
{
	enum { LARGE = KEPT_MOST, SMALL = METADATA_UNIT };
	char *last = NULL, *next;
	size_t count = 0;
	while ((next = metadata_alloc(LARGE))) {
		last = next;
		count++;
	}
	CHECK(count * LARGE <= layout.metadata.planned && count * LARGE > layout.metadata.planned / 2);
	CHECK(layout.metadata.committed == layout.metadata.planned);
	/* What is left of the region, and of the blocks that the process has freed so far. */
	while (metadata_alloc(SMALL))
		;
	CHECK(!metadata_alloc(LARGE) && !metadata_alloc(SMALL) && !metadata_alloc(1ul << 40));

	/* One block that comes back serves as many small requests as it has room for. */
	metadata_free(last, LARGE);
	static bool seen[LARGE / SMALL];
	for (int i = 0; i < LARGE / SMALL; i++) {
		char *small = metadata_alloc(SMALL);
		CHECK(small >= last && small < last + LARGE, "block %d is %p", i, (void *)small);
		size_t place = (size_t)(small - last) / SMALL;
		CHECK(!seen[place]);
		seen[place] = true;
		memset(small, 1, SMALL);
	}
	CHECK(!metadata_alloc(SMALL));
	/* The heap itself lives on with what metadata it has. */
	free(malloc(100));
}

int main(int argc, char **argv)
{
	(void)argv;
	check_watchdog(60);
	free(malloc(1));
	if (argc > 1) {
		be_full();
		return 0;
	}
	test_random();
	test_reuse();
	check_again("reserve:8M", "full");
	return 0;
}
