/* SPDX-License-Identifier: MIT */
/*
 * malloc_colours: large objects that lie in a row begin at different cache lines of their first page, and one
 * that takes another's place begins where that did.  What this leaves of their pages is the program's to the
 * last byte, alignment is what was asked for, and a pointer beside the object's start is not an object.
 */
#include "check.h"

enum {
	PAGE = 4096,
	LINE = 64,
	LEAST = 128 << 10, /* larger objects are large */
	ROW = 8,
};

static uintptr_t page_of(const void *object)
{
	return (uintptr_t)object / PAGE;
}

static unsigned line_of(const void *object)
{
	return (unsigned)((uintptr_t)object % PAGE / LINE);
}

static void *allocate(size_t size)
{
	char *object = malloc(size);
	CHECK(object, "%zu bytes", size);
	memset(object, (int)size, size);
	return object;
}

static int by_address(const void *a, const void *b)
{
	uintptr_t left = (uintptr_t) * (char *const *)a, right = (uintptr_t) * (char *const *)b;
	return left < right ? -1 : left > right;
}

static void test_row(size_t size)
{
	char *objects[ROW];
	unsigned adjacent = 0;
	for (unsigned i = 0; i < ROW; i++) {
		objects[i] = allocate(size);
		CHECK((uintptr_t)objects[i] % LINE == 0 && line_of(objects[i]) >= 2, "%p",
		      (void *)objects[i]);
	}
	qsort(objects, ROW, sizeof objects[0], by_address);
	for (unsigned i = 1; i < ROW; i++) {
		if (page_of(objects[i]) - page_of(objects[i - 1]) > size / PAGE + 2)
			continue;
		adjacent++;
		CHECK(line_of(objects[i]) != line_of(objects[i - 1]), "%zu bytes", size);
	}
	CHECK(adjacent >= ROW / 2, "%zu bytes: %u of %u lie in a row", size, adjacent, ROW - 1);

	/* A hole between two others that stay. */
	char *before = objects[3];
	free(objects[3]);
	objects[3] = allocate(size);
	CHECK(objects[3] == before, "%zu bytes", size);
	for (unsigned i = 0; i < ROW; i++)
		free(objects[i]);
}

/* Neighbours that are written to their last bytes do not touch each other. */
static void test_bytes(void)
{
	enum { SIZES = 40 };
	char *objects[SIZES];
	size_t usable[SIZES];
	for (unsigned i = 0; i < SIZES; i++) {
		size_t size = LEAST + 1 + (size_t)i * 257 + (i % 3 ? i * (size_t)PAGE / 2 : 0);
		CHECK((objects[i] = malloc(size)));
		usable[i] = malloc_usable_size(objects[i]);
		CHECK(usable[i] >= size && usable[i] < size + PAGE, "%zu for %zu", usable[i], size);
		CHECK(usable[i] == cpuslab_malloc_size(size), "%zu", size);
		memset(objects[i], (int)i, usable[i]);
	}
	for (unsigned i = 0; i < SIZES; i++) {
		for (size_t at = 0; at < usable[i]; at++)
			CHECK(objects[i][at] == (char)i, "object %u, byte %zu", i, at);
		free(objects[i]);
	}
}

static void test_alignment(void)
{
	for (size_t alignment = 16; alignment <= 1 << 20; alignment *= 2) {
		char *object = aligned_alloc(alignment, 300000);
		CHECK(object && (uintptr_t)object % alignment == 0, "%zu", alignment);
		/* No more is lost than where a page does not bring it anyway. */
		CHECK(malloc_usable_size(object) >= 300000 && malloc_usable_size(object) < 300000 + PAGE);
		memset(object, 1, malloc_usable_size(object));
		free(object);
	}
}

static void test_resized(void)
{
	size_t size = 200000;
	char *object = allocate(size);
	while (size < 3000000) {
		size_t larger = size + size / 3;
		CHECK((object = realloc(object, larger)));
		for (size_t at = 0; at < 200000; at += 1000)
			CHECK(object[at] == (char)200000, "%zu at %zu", larger, at);
		CHECK(malloc_usable_size(object) >= larger);
		memset(object + size, 7, malloc_usable_size(object) - size);
		size = larger;
	}
	while (size > 150000) {
		size -= size / 4;
		CHECK((object = realloc(object, size)));
		CHECK(object[0] == (char)200000 && malloc_usable_size(object) >= size);
	}
	free(object);
}

static void test_zeroed(void)
{
	for (unsigned i = 0; i < 100; i++) {
		char *object = calloc(1, 300000);
		CHECK(object);
		for (size_t at = 0; at < 300000; at += 64)
			CHECK(!object[at] && !object[at + 31], "%zu", at);
		memset(object, 0xff, malloc_usable_size(object));
		free(object);
	}
}

static void test_object_of(void)
{
	char *object = allocate(300000), *page = (char *)(page_of(object) * PAGE);
	CHECK(cpuslab_object_of(object) == object && cpuslab_object_of(object + 100) == object);
	CHECK(cpuslab_object_of(object + PAGE - 1) == object);
	CHECK(!cpuslab_object_of(page) && !cpuslab_object_of(object - 1));
	free(object);
	object = aligned_alloc(PAGE, 300000);
	CHECK(cpuslab_object_of(object) == object && cpuslab_object_of(object + 100) == object);
	free(object);
}

/* Whether the free of a pointer stops the process. */
static bool stops(char *pointer)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		struct rlimit none = {0, 0};
		setrlimit(RLIMIT_CORE, &none);
		close(STDERR_FILENO);
		free(pointer);
		_exit(0);
	}
	int status = check_wait(pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void test_wrong_pointers(void)
{
	char *coloured = allocate(300000), *plain = aligned_alloc(PAGE, 300000);
	char *page = (char *)(page_of(coloured) * PAGE);
	CHECK(plain && stops(page) && stops(coloured - LINE) && stops(coloured + LINE));
	for (unsigned line = 0; line < PAGE / LINE; line++) {
		CHECK(stops(page + line * LINE) == (page + line * LINE != coloured), "line %u", line);
		CHECK(stops(plain + line * LINE) == (line != 0), "line %u", line);
	}
	free(coloured);
	CHECK(stops(coloured));
	free(plain);
}

int main(void)
{
	/* Matrices of doubles with 160, 256, 320, 512 and 640 rows, and what is no multiple of a page. */
	static const size_t sizes[] = {204800, 524288, 819200, 2097152, 3276800, 135000, 400000, 1000000};

	if (!check_cpuslab())
		check_skip("the promise of this library alone");
	for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		test_row(sizes[i]);
	test_bytes();
	test_alignment();
	test_resized();
	test_zeroed();
	test_object_of();
	test_wrong_pointers();
	return 0;
}
