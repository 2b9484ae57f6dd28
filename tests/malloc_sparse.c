/* SPDX-License-Identifier: MIT */
/*
 * malloc_sparse: large blocks of which the program has touched little stay small when realloc moves them, and
 * what was written to them is still there.
 *
 *   malloc_sparse grow      blocks of 128 KiB to 1 GiB that cannot grow where they are, three times in a row
 *   malloc_sparse shrink    from 1 GiB downwards
 *   malloc_sparse dense     every byte of blocks that were filled
 *   malloc_sparse many      hundreds of blocks that move, and mappings of the system
 */
#include "check.h"

#include <sys/prctl.h>

enum { KIB = 1 << 10, MIB = 1 << 20, MARKS = 64, SLACK = 10 * MIB };

static unsigned mappings(void)
{
	static char text[1 << 16];
	unsigned count = 0;
	int file = open("/proc/self/maps", O_RDONLY);
	CHECK(file >= 0);
	for (ssize_t length; (length = read(file, text, sizeof text)) > 0;)
		for (ssize_t i = 0; i < length; i++)
			count += text[i] == '\n';
	close(file);
	return count;
}

/* The i-th marked byte of a block: the first, the last, and others on both sides of pages. */
static size_t mark_at(size_t size, unsigned i)
{
	return i == 0 ? 0 : i == 1 ? size - 1 : (size / MARKS * i & ~(size_t)4095) + i % 3 - 1;
}

static void set_marks(unsigned char *block, size_t size)
{
	for (unsigned i = 0; i < MARKS; i++)
		block[mark_at(size, i)] = (unsigned char)(i + 1);
}

/* Those below `kept`. */
static void check_marks(const unsigned char *block, size_t size, size_t kept)
{
	for (unsigned i = 0; i < MARKS; i++)
		if (mark_at(size, i) < kept)
			CHECK(block[mark_at(size, i)] == i + 1, "mark %u of %zu bytes, %zu kept", i, size,
			      kept);
}

static void *allocate(size_t size, unsigned way)
{
	void *block = way == 0 ? malloc(size) : way == 1 ? calloc(1, size) : aligned_alloc(4096, size);
	CHECK(block, "%zu bytes", size);
	return block;
}

static void *resize(void *block, size_t size, unsigned way)
{
	block = way ? reallocarray(block, size / 4, 4) : realloc(block, size);
	CHECK(block, "%zu bytes", size);
	return block;
}

/* A block that ends where another begins grows again and again. */
static void grow(size_t size, unsigned way)
{
	unsigned char *block = allocate(size, way);
	size_t before = check_anonymous();
	set_marks(block, size);
	for (int step = 0; step < 3; step++) {
		void *behind = malloc(size);
		size_t more = size + size / 2;
		block = resize(block, more, way);
		check_marks(block, size, size);
		free(behind);
		size = more;
		set_marks(block, size);
	}
	size_t after = check_anonymous();
	/* Each step marked pages of its own; what others have left resident may be taken again. */
	size_t most = 4 * MARKS * 2 * 4096 + SLACK;
	if (!check_debugged())
		CHECK(after < before + most, "%zu bytes: %zu KiB more are resident", size,
		      (after - before) / KIB);
	free(block);
}

static void run_grow(void)
{
	for (size_t size = 128 * KIB; size <= 1024ul * MIB; size *= 2)
		for (unsigned way = 0; way < 3; way++)
			grow(size, way);
}

static void run_shrink(void)
{
	for (unsigned way = 0; way < 3; way++) {
		size_t size = 1024ul * MIB, before = check_anonymous();
		unsigned char *block = allocate(size, way);
		set_marks(block, size);
		for (size_t less = size / 2; less >= MIB; less /= 2) {
			block = resize(block, less, way);
			check_marks(block, size, less);
		}
		size_t after = check_anonymous();
		CHECK(after < before + SLACK, "%zu KiB more are resident", (after - before) / KIB);
		free(block);
	}
}

static void run_dense(void)
{
	static const size_t sizes[] = {128 * KIB, MIB + 8, 33 * MIB + 24, 40 * MIB};
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (unsigned way = 0; way < 3; way++) {
			size_t size = sizes[i];
			unsigned char *block = allocate(size, way);
			check_stamp(block, size, size);
			void *behind = malloc(size);
			block = resize(block, 2 * size, way);
			CHECK_STAMP(block, size, size);
			memset(block + size, 0xa5, size);
			CHECK_STAMP(block, size, size);
			block = resize(block, size / 2, way);
			CHECK_STAMP(block, size / 2, size);
			CHECK(malloc_usable_size(block) >= size / 2);
			free(block);
			free(behind);
		}
}

static void run_many(void)
{
	enum { BLOCKS = 64, ROUNDS = 4 };
	const size_t size = 33 * MIB;
	unsigned char *blocks[BLOCKS];
	unsigned before = mappings();
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < BLOCKS; i++) {
			blocks[i] = malloc(size);
			CHECK(blocks[i]);
			set_marks(blocks[i], size);
		}
		for (int i = 0; i < BLOCKS; i++) {
			blocks[i] = resize(blocks[i], 2 * size, 0);
			check_marks(blocks[i], size, size);
		}
		unsigned now = mappings();
		/* One each, a few where the heap had several; in hardened mode with pages on both sides. */
		CHECK(now < before + 4 * BLOCKS + 32 || check_hardened(), "%u mappings, %u before", now,
		      before);
		for (int i = 0; i < BLOCKS; i++)
			free(blocks[i]);
	}
	unsigned after = mappings();
	CHECK(after < before + 64 || check_hardened(), "%u mappings, %u before", after, before);
	/* Heap pages that have lost their contents to a mapping are free, and read as zero where calloc wants
	 * it. */
	unsigned char *block = calloc(1, size);
	CHECK(block);
	for (size_t i = 0; i < size; i += 509)
		CHECK(!block[i]);
	free(block);
	CHECK(check_anonymous() < 64 * MIB, "%zu KiB are resident", check_anonymous() / KIB);
}

int main(int argc, char **argv)
{
	const char *variant = argc > 1 ? argv[1] : "grow";
	check_watchdog(100);
	/* A huge page is resident as a whole. */
	CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
	if (strcmp(variant, "grow") == 0)
		run_grow();
	else if (strcmp(variant, "shrink") == 0)
		run_shrink();
	else if (strcmp(variant, "dense") == 0)
		run_dense();
	else
		run_many();
	printf("%s: %s\n", check_mode(), variant);
	return 0;
}
