/* SPDX-License-Identifier: MIT */
/*
 * malloc_full: when the heap's reserve has no room for another slab, requests of at least a page are served
 * by the system beside the heap, aligned or not; smaller ones are refused.
 */
#include "check.h"

enum { KIB = 1 << 10, SMALL = 2000, SOME = 48 };

struct block {
	struct block *next;
};

static struct block *blocks;

/* Allocates until nothing more fits. */
static void fill(void)
{
	for (struct block *block; (block = malloc(SMALL)); blocks = block)
		block->next = blocks;
	CHECK(errno == ENOMEM);
}

static void *by_malloc(size_t alignment, size_t size)
{
	(void)alignment;
	return malloc(size);
}

static void *by_calloc(size_t alignment, size_t size)
{
	(void)alignment;
	return calloc(1, size);
}

static void *by_posix_memalign(size_t alignment, size_t size)
{
	void *object;

	return posix_memalign(&object, alignment, size) == 0 ? object : NULL;
}

/* Starts from an object of the heap. */
static void *by_realloc(size_t alignment, size_t size)
{
	struct block *block = blocks;

	(void)alignment;
	blocks = block->next;
	check_stamp(block, SMALL, size);
	void *object = realloc(block, size);

	CHECK(object);
	CHECK_STAMP(object, SMALL, size);
	return object;
}

static void expect_some(void *(*obtain)(size_t, size_t), size_t alignment, size_t size)
{
	char *objects[SOME];

	for (unsigned i = 0; i < SOME; i++) {
		objects[i] = obtain(alignment, size);
		CHECK(objects[i], "%u of %zu bytes, aligned to %zu", i, size, alignment);
		CHECK((uintptr_t)objects[i] % alignment == 0 && malloc_usable_size(objects[i]) >= size);
		check_stamp(objects[i], size, i);
	}
	for (unsigned i = 0; i < SOME; i++) {
		CHECK_STAMP(objects[i], size, i);
		free(objects[i]);
	}
}

static void go_on(void)
{
	for (size_t size = 4 * KIB; size <= 256 * KIB; size *= 2) {
		expect_some(by_malloc, 1, size);
		expect_some(by_malloc, 1, size + size / 16);
		expect_some(by_calloc, 1, size);
		expect_some(aligned_alloc, size, size);
		expect_some(aligned_alloc, 64, size + size / 5);
		expect_some(by_posix_memalign, size, 100);
		expect_some(by_realloc, 1, size);
	}
}

int main(int argc, char **argv)
{
	(void)argv;
	check_watchdog(60);
	if (argc == 1) {
		check_again("reserve:8M", "full");
		check_again("reserve:8M,hardened:1", "full");
		check_again("reserve:8M,vcpu:slot", "full");
		return 0;
	}
	fill();
	go_on();
	fill();
	CHECK(!malloc(SMALL) && errno == ENOMEM && !aligned_alloc(512, SMALL));
	while (blocks) {
		struct block *block = blocks;

		blocks = block->next;
		free(block);
	}
	return 0;
}
