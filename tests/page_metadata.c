/* SPDX-License-Identifier: MIT */
/*
 * page_metadata: blocks are aligned, disjoint, within one page each, zero when new, made from what others
 * have left, and found again by reference; when the system has no more memory, freed blocks are split.
 * Lasting blocks lie together, and in a child forked while one was being made they belong to nobody else.
 * Empty pages go back to the system, in an ebb, by age or when everything is to; if the system refuses some,
 * and in a child forked meanwhile, each block can be used again.
 *
 *   page_metadata full   in a small heap; started by page_metadata itself
 *   page_metadata aged   pages are overdue at the second tick
 */
#include "check.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include "page/layout.h"
#include "page/metadata.h"
#include "page/page.h"
#include "single_step.h"

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
			/* Larger blocks are not kept for reuse, so few of those. */
			take(block, 1 + check_below(&random, round % 512 ? KEPT_MOST : 3 * KEPT_MOST));
			if (block->bytes <= KEPT_MOST)
				CHECK(page_of(block->start) == page_of(block->start + block->bytes - 1));
			/*
			 * Stamps all of it, rounded up to the unit, so that an overlap with a neighbour is
			 * noticed.
			 */
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

/* Blocks of all sizes are made from freed ones, without an additional page. */
static void test_reuse(void)
{
	struct block whole, parts[4];
	take(&whole, KEPT_MOST);
	size_t before = metadata_in_use();
	metadata_free(whole.start, KEPT_MOST);
	for (unsigned i = 0; i < 4; i++) {
		take(&parts[i], 1000);
		memset(parts[i].start, 1, 1000);
	}
	for (unsigned i = 0; i < 4; i++)
		metadata_free(parts[i].start, 961); /* the same number of units */
	take(&whole, KEPT_MOST);
	metadata_free(whole.start, KEPT_MOST);
	CHECK(metadata_in_use() == before);

	CHECK(!metadata_contains(NULL) && !metadata_contains(&whole) &&
	      !metadata_contains(layout.metadata.base - 1) &&
	      !metadata_contains(layout.metadata.base + layout.metadata.planned));
}

/* ---- lasting blocks ------------------------------------------------------------------------------------ */

enum { LASTING = 56, LASTING_BYTES = 9 * METADATA_UNIT, IN_A_PAGE = PAGE_BYTES / LASTING_BYTES };

/*
 * Neighbours may be freed, and pages with them: lasting blocks share pages, but for three that grow up to a
 * page.
 */
static void test_lasting(void)
{
	struct block lasting[LASTING], others[LASTING];
	uintptr_t last = 0;
	unsigned count = 0;
	for (unsigned i = 0; i < LASTING; i++) {
		lasting[i] = (struct block){metadata_alloc_lasting(LASTING_BYTES - i % METADATA_UNIT, i % 2),
					    LASTING_BYTES};
		CHECK(lasting[i].start && (uintptr_t)lasting[i].start % METADATA_UNIT == 0);
		check_stamp(lasting[i].start, LASTING_BYTES, i);
		take(&others[i], 500);
		check_stamp(others[i].start, rounded(500), LASTING + i);
	}
	for (unsigned i = 0; i < LASTING; i++) {
		CHECK_STAMP(lasting[i].start, LASTING_BYTES, i);
		CHECK_STAMP(others[i].start, rounded(500), LASTING + i);
		metadata_free(others[i].start, 500);
		count += page_of(lasting[i].start) != last;
		last = page_of(lasting[i].start);
	}
	CHECK(count <= LASTING / IN_A_PAGE + 3, "%u pages", count);
	for (unsigned i = 0; i < LASTING; i++)
		metadata_free(lasting[i].start, LASTING_BYTES);
}

#ifdef __x86_64__
static unsigned long lasting_steps;

/* What was about to be freed in the parent belongs to nobody else here. */
static void on_lasting_step(int number)
{
	enum { SMALL = 300 };
	(void)number;
	lasting_steps++;
	pid_t child = _Fork();
	CHECK(child >= 0);
	if (!child) {
		char *small[SMALL];
		metadata_repair(false);
		for (unsigned i = 0; i < SMALL; i++) {
			CHECK((small[i] = metadata_alloc(METADATA_UNIT)));
			check_stamp(small[i], METADATA_UNIT, i);
		}
		for (unsigned i = 0; i < 2; i++)
			check_stamp(metadata_alloc_lasting(PAGE_BYTES - i * METADATA_UNIT, true),
				    PAGE_BYTES - i * METADATA_UNIT, SMALL + i);
		for (unsigned i = 0; i < SMALL; i++) {
			char *again = metadata_alloc(METADATA_UNIT);
			CHECK(again);
			check_stamp(again, METADATA_UNIT, SMALL + 2 + i);
		}
		for (unsigned i = 0; i < SMALL; i++)
			CHECK_STAMP(small[i], METADATA_UNIT, i);
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
}

/* A child is forked in the middle of it. */
static void test_fork_in_lasting(void)
{
	CHECK(metadata_alloc_lasting(METADATA_UNIT, true));
	struct sigaction action = {.sa_handler = on_lasting_step};
	CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
	step_from_here();
	/* Too large for the current rest, which is freed. */
	void *block = metadata_alloc_lasting(PAGE_BYTES, true);
	step_to_here();
	CHECK(block && lasting_steps > 50, "%lu steps", lasting_steps);
	metadata_free(block, PAGE_BYTES);
}
#else
static void test_fork_in_lasting(void)
{
}
#endif

/* ---- what goes back ------------------------------------------------------------------------------------ */

enum { PAGES = 200, KEPT = 8, ROWS = 4 };

static char *pages[PAGES];

/* What happens while a range is given back. */
static void (*meanwhile)(void);
static unsigned calls;

int madvise(void *address, size_t bytes, int advice)
{
	if (advice == MADV_DONTNEED) {
		calls++;
		if (meanwhile)
			meanwhile();
	}
	return (int)syscall(SYS_madvise, address, bytes, advice);
}

static size_t resident(void)
{
	size_t count = 0;
	for (unsigned i = 0; i < PAGES; i++) {
		unsigned char present = 0;
		CHECK(mincore(pages[i], PAGE_BYTES, &present) == 0);
		count += present & 1;
	}
	return count;
}

/* Fills pages with a block at the beginning of each, and nothing else. */
static void fill(void)
{
	for (unsigned i = 0; i < PAGES; i++) {
		pages[i] = metadata_alloc(PAGE_BYTES);
		CHECK(pages[i] && (uintptr_t)pages[i] % PAGE_BYTES == 0);
		memset(pages[i], 1, PAGE_BYTES);
	}
	CHECK(resident() == PAGES);
	for (unsigned i = 0; i < PAGES; i++)
		for (unsigned row = 1; row < ROWS; row++)
			metadata_free(pages[i] + row * PAGE_BYTES / ROWS, PAGE_BYTES / ROWS);
}

static void empty(void)
{
	for (unsigned i = 0; i < PAGES; i++)
		metadata_free(pages[i], PAGE_BYTES / ROWS);
}

/* Each page can be used once more, and no other is needed for that. */
static void use_again(void)
{
	static bool seen[PAGES];
	char *again[PAGES];
	size_t most = layout.metadata.planned;
	layout.metadata.planned = 0;
	memset(seen, 0, sizeof seen);
	for (unsigned i = 0; i < PAGES; i++) {
		again[i] = metadata_alloc(PAGE_BYTES);
		CHECK(again[i], "page %u of %u", i, PAGES);
		memset(again[i], 2, PAGE_BYTES);
	}
	for (unsigned i = 0; i < PAGES; i++)
		metadata_free(again[i], PAGE_BYTES);
	layout.metadata.planned = most;
}

/* A page with a block left in it stays, with its content. */
static void test_partial(void)
{
	fill();
	metadata_ebb();
	metadata_purge(true);
	CHECK(resident() == PAGES, "%zu of %u", resident(), PAGES);
	for (unsigned i = 0; i < PAGES; i++)
		CHECK(check_all_bytes(pages[i], PAGE_BYTES / ROWS, 1));
	empty();
	metadata_purge(true);
}

static void test_ebb(void)
{
	fill();
	size_t before = metadata_in_use();
	empty();
	CHECK(!metadata_is_behind(), "pages were to go before an ebb");
	metadata_purge(false);
	CHECK(resident() == PAGES);
	metadata_ebb();
	while (metadata_is_behind())
		metadata_purge(false);
	metadata_purge(false);
	CHECK(resident() <= KEPT, "%zu pages stay", resident());
	CHECK(before - metadata_in_use() >= (PAGES - KEPT) * PAGE_BYTES, "%zu bytes, and %zu before",
	      metadata_in_use(), before);
	/* Memory that was given back reads as zero, for any late reader. */
	size_t zero = 0;
	for (unsigned i = 0; i < PAGES; i++)
		zero += check_all_bytes(pages[i], PAGE_BYTES, 0);
	CHECK(zero >= PAGES - KEPT, "%zu pages read as zero", zero);
	use_again();
	/* A request for such a page ends the ebb. */
	CHECK(!metadata_is_behind());
	metadata_purge(true);
	CHECK(resident() == 0, "%zu pages stay", resident());
}

/* Locked memory does not go back; pages that went before it are gone. */
static void test_locked(void)
{
	fill();
	CHECK(mlock(pages[PAGES / 2], PAGE_BYTES) == 0);
	empty();
	metadata_purge(true);
	CHECK(resident() >= 1);
	CHECK(munlock(pages[PAGES / 2], PAGE_BYTES) == 0);
	metadata_purge(true);
	CHECK(resident() == 0, "%zu pages stay", resident());
	use_again();
	metadata_purge(true);
}

/* While another thread is purging nobody waits, and the pages on their way have no owner. */
static void purge_meanwhile(void)
{
	unsigned before = calls;
	metadata_purge(true);
	CHECK(calls == before, "two gave pages back at once");
	/* Continues to free pages as fast as they go. */
	char *block = metadata_alloc(PAGE_BYTES);
	memset(block, 3, PAGE_BYTES);
	metadata_free(block, PAGE_BYTES);
}

/* A child forked while pages are on their way has them all. */
static void fork_meanwhile(void)
{
	meanwhile = NULL;
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		size_t before = metadata_in_use();
		metadata_repair(false);
		CHECK(metadata_in_use() == before, "%zu bytes, and %zu before", metadata_in_use(), before);
		use_again();
		metadata_purge(true);
		CHECK(resident() == 0, "%zu pages stay in a child", resident());
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
}

static void test_meanwhile(void (*what)(void))
{
	fill();
	for (unsigned i = 0; i < PAGES / 2; i++)
		metadata_free(pages[i], PAGE_BYTES / ROWS);
	metadata_purge(true);
	for (unsigned i = PAGES / 2; i < PAGES; i++)
		metadata_free(pages[i], PAGE_BYTES / ROWS);
	meanwhile = what;
	metadata_purge(true);
	meanwhile = NULL;
	use_again();
	metadata_purge(true);
	CHECK(resident() == 0, "%zu pages stay", resident());
}

#ifdef __x86_64__
enum { STEPS = 37 };
static unsigned long steps;
static size_t rest; /* bytes in use after everything possible was given back */

static void on_step(int number)
{
	(void)number;
	if (++steps % STEPS)
		return;
	pid_t child = _Fork();
	CHECK(child >= 0);
	if (!child) {
		metadata_repair(true);
		use_again();
		metadata_purge(true);
		CHECK(metadata_in_use() == rest, "%zu bytes, not %zu", metadata_in_use(), rest);
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
}

/* A child forked in the middle of a repair starts it anew, and has everything there was. */
static void test_fork_in_repair(void)
{
	metadata_purge(true);
	rest = metadata_in_use();
	fill();
	empty();
	struct sigaction action = {.sa_handler = on_step};
	CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
	step_from_here();
	metadata_repair(true);
	step_to_here();
	CHECK(steps > 100 * STEPS, "%lu steps", steps);
	use_again();
	metadata_purge(true);
	CHECK(resident() == 0, "%zu pages stay", resident());
}
#else
static void test_fork_in_repair(void)
{
}
#endif

/* One system call each: a few at a time. */
static void test_one_by_one(void)
{
	fill();
	/* Every other page stays, so that no two adjacent ones go. */
	for (unsigned i = 0; i < PAGES; i += 2)
		metadata_free(pages[i], PAGE_BYTES / ROWS);
	metadata_ebb();
	unsigned rounds = 0;
	for (; metadata_is_behind(); rounds++) {
		calls = 0;
		metadata_purge(false);
		CHECK(calls <= 4, "%u system calls by one call", calls);
	}
	CHECK(rounds > 1, "%u rounds", rounds);
	for (unsigned i = 1; i < PAGES; i += 2)
		metadata_free(pages[i], PAGE_BYTES / ROWS);
	test_meanwhile(purge_meanwhile);
	test_meanwhile(fork_meanwhile);
}

/* At the second tick, exactly the pages that were idle all the while are overdue. */
static void be_aged(void)
{
	fill();
	metadata_tick();
	empty();
	metadata_tick();
	CHECK(!metadata_is_behind(), "pages were old at once");
	char *needed[PAGES / 2];
	for (unsigned i = 0; i < PAGES / 2; i++)
		needed[i] = metadata_alloc(PAGE_BYTES);
	for (unsigned i = 0; i < PAGES / 2; i++)
		metadata_free(needed[i], PAGE_BYTES);
	metadata_tick();
	CHECK(metadata_is_behind());
	while (metadata_is_behind())
		metadata_purge(false);
	CHECK(resident() >= PAGES / 2 && resident() <= PAGES / 2 + 2 * KEPT, "%zu pages stay", resident());
	metadata_tick();
	while (metadata_is_behind())
		metadata_purge(false);
	CHECK(resident() <= KEPT, "%zu pages stay", resident());
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
	/* Uses up the region, and blocks that the process has freed so far. */
	while (metadata_alloc(SMALL))
		;
	/* And the block that lasting blocks are cut from. */
	for (count = 0; metadata_alloc_lasting(SMALL, true); count++)
		CHECK(count < PAGE_BYTES / SMALL);
	CHECK(!metadata_alloc(LARGE) && !metadata_alloc(SMALL) && !metadata_alloc(1ul << 40));

	/* Lasting blocks come one by one where there is no room for more. */
	metadata_free(last, 2 * SMALL);
	for (unsigned i = 0; i < 2; i++)
		CHECK(metadata_alloc_lasting(SMALL, true), "lasting block %u", i);

	/* One freed block serves as many small requests as fit. */
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
	/* The heap itself lives on with its existing metadata. */
	free(malloc(100));
}

int main(int argc, char **argv)
{
	check_watchdog(60);
	free(malloc(1));
	if (argc > 1) {
		if (strcmp(argv[1], "full") == 0)
			be_full();
		else
			be_aged();
		return 0;
	}
	test_random();
	test_reuse();
	test_lasting();
	metadata_purge(true);
	test_partial();
	test_ebb();
	test_locked();
	test_fork_in_repair();
	test_fork_in_lasting();
	test_one_by_one();
	check_again("reserve:8M", "full");
	check_again("decay:0", "aged");
	return 0;
}
