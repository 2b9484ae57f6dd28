/* SPDX-License-Identifier: MIT */
/*
 * hardened_classes: what hardened mode promises of malloc's own classes while nothing is wrong yet: objects
 * of a new slab come in random order, a freed object waits until a magazine of others has been freed, and an
 * inaccessible page follows the last object of a slab.  All of this holds for objects aligned to more than a
 * page, too.
 */
#include "check.h"
#include "still_clock.h" /* nothing that waits is taken back by age */

enum {
	CANARY = 8,
	PAGE = 4096,
	SOME = 400,
	QUARANTINE = 8 << 10, /* bytes in a magazine, */
	FEWEST = 3,           /* objects in it */
	MOST = 123,
	FEW_IN_MAGAZINE = 448, /* object size from which on that minimum applies */
};

/* Sizes whose classes nobody has used before; with the canary each fills its slot. */
static const size_t slots[] = {48, 112, 160, 448, 896};

static void *objects[SOME];

/* How many of them are at most `slots_away` slots from the one before. */
static unsigned count_near(size_t slot, size_t slots_away)
{
	unsigned near = 0;

	for (int i = 1; i < SOME; i++)
		near += (uintptr_t)objects[i] - (uintptr_t)objects[i - 1] + slots_away * slot <=
			2 * slots_away * slot;
	return near;
}

static void test_new_order(size_t slot)
{
	unsigned ascending = 0;

	for (int i = 0; i < SOME; i++) {
		objects[i] = malloc(slot - CANARY);
		ascending += i > 0 && (char *)objects[i] > (char *)objects[i - 1];
	}
	/* Of 399 steps half lead upwards, give or take ten standard deviations. */
	CHECK(ascending > SOME / 4 && ascending < SOME * 3 / 4, "%zu bytes: %u of %d", slot, ascending, SOME);
	/* The objects of a small magazine do not come from one place of a large slab, either. */
	if (slot >= FEW_IN_MAGAZINE) {
		unsigned near = count_near(slot, QUARANTINE / slot / 2);

		CHECK(near < SOME / 2, "%zu bytes: %u of %d", slot, near, SOME);
	}
	for (int i = 0; i < SOME; i++)
		free(objects[i]);
}

static int by_address(const void *one, const void *two)
{
	uintptr_t first = *(const uintptr_t *)one, second = *(const uintptr_t *)two;

	return first < second ? -1 : first > second;
}

/* Objects freed in order of address are reallocated neither in that order nor in the reverse one. */
static void test_order_of_return(size_t slot)
{
	unsigned ascending = 0;

	for (int i = 0; i < SOME; i++)
		objects[i] = malloc(slot - CANARY);
	qsort(objects, SOME, sizeof *objects, by_address);
	for (int i = 0; i < SOME; i++)
		free(objects[i]);
	for (int i = 0; i < SOME; i++) {
		objects[i] = malloc(slot - CANARY);
		ascending += i > 0 && (char *)objects[i] > (char *)objects[i - 1];
	}
	CHECK(ascending > SOME / 4 && ascending < SOME * 3 / 4, "%zu bytes: %u of %d", slot, ascending, SOME);
	for (int i = 0; i < SOME; i++)
		free(objects[i]);
}

/* How many other objects are freed before a freed object is allocated again. */
static unsigned wait_for(void *object, size_t slot)
{
	unsigned others = 0;
	void *next;

	while ((next = malloc(slot - CANARY)) != object) {
		free(next);
		CHECK(++others < 100000);
	}
	free(next);
	return others;
}

static void test_quarantine(size_t slot)
{
	enum { ROUNDS = 60 };
	size_t magazine = QUARANTINE / slot;
	unsigned early = 0;

	magazine = magazine < FEWEST ? FEWEST : magazine > MOST ? MOST : magazine;
	for (int round = 0; round < ROUNDS; round++) {
		void *volatile object = malloc(slot - CANARY);
		free(object);

		early += wait_for(object, slot) < magazine;
	}
	CHECK(early == 0, "%zu bytes: %u of %d", slot, early, ROUNDS);
}

/* ---- the end of a slab ------------------------------------------------------------------------------- */

/* Asks the kernel whether the byte at an address can be read. */
static bool is_readable(const char *address)
{
	static int ends[2];

	if (!ends[1])
		CHECK(pipe2(ends, O_CLOEXEC) == 0);
	if (write(ends[1], address, 1) != 1) {
		CHECK(errno == EFAULT);
		return false;
	}
	char byte;

	CHECK(read(ends[0], &byte, 1) == 1);
	return true;
}

static void write_to(void *address)
{
	*(volatile char *)address = 1;
}

/* The first unreadable byte behind an address. */
static char *end_of_access(char *address)
{
	char *page = address - (uintptr_t)address % PAGE;

	while (is_readable(page))
		page += PAGE;
	return page;
}

static void test_guard_page(size_t slot)
{
	enum { LONGEST = 1 << 20 };
	unsigned last_ones = 0;
	char text[256];

	CHECK(PAGE % slot == 0);
	for (int i = 0; i < SOME; i++)
		objects[i] = malloc(slot - CANARY);
	for (int i = 0; i < SOME; i++) {
		char *object = objects[i], *end = end_of_access(object);

		CHECK(end - object < LONGEST, "%zu bytes: a slab goes on and on", slot);
		if (object + slot != end)
			continue;
		int status = check_child(write_to, end, text, sizeof text);

		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "%#x", (unsigned)status);
		last_ones++;
	}
	CHECK(last_ones > 1, "%zu bytes: the last objects of %u slabs", slot, last_ones);
	for (int i = 0; i < SOME; i++)
		free(objects[i]);
}

/* ---- what realloc says of large objects ---------------------------------------------------------------- */

static void test_resized_large(void)
{
	/* Large by its alignment, but small enough to stay in place. */
	char *object = aligned_alloc(1 << 20, 1749);

	memset(object, 1, 1749);
	object = realloc(object, 1700);
	CHECK(object && malloc_usable_size(object) == 1700 && check_all_bytes(object, 1700, 1));
	free_sized(object, 1700);
}

/* ---- objects that are aligned to more than a page ------------------------------------------------------ */

struct aligned {
	size_t alignment, size;
};

static void write_behind(void *argument)
{
	const struct aligned *aligned = argument;
	volatile char *object = aligned_alloc(aligned->alignment, aligned->size);

	object[aligned->size] = 1;
	free((void *)object);
}

static void free_twice(void *argument)
{
	const struct aligned *aligned = argument;
	void *volatile object = aligned_alloc(aligned->alignment, aligned->size);

	free(object);
	free(object);
}

static void free_smaller(void *argument)
{
	const struct aligned *aligned = argument;

	free_aligned_sized(aligned_alloc(aligned->alignment, aligned->size), aligned->alignment,
			   aligned->size - 1);
}

/* The damaged object is reused once others have been freed after it. */
static void write_freed(void *argument)
{
	const struct aligned *aligned = argument;

	for (int i = 0; i < SOME; i++)
		objects[i] = aligned_alloc(aligned->alignment, aligned->size);
	volatile char *object = objects[0];

	free(objects[0]);
	object[100] = 1;
	for (int i = 1; i < SOME; i++)
		free(objects[i]);
	for (int i = 0; i < 2 * SOME; i++)
		objects[i % SOME] = aligned_alloc(aligned->alignment, aligned->size);
}

static void expect_stop(void (*wrong)(void *), struct aligned aligned, const char *what)
{
	char text[512];
	int status = check_child(wrong, &aligned, text, sizeof text);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%zu to %zu: %#x, not %s", aligned.size,
	      aligned.alignment, (unsigned)status, what);
	CHECK(strstr(text, "malloc-aligned-") && strstr(text, what), "%s", text);
}

/* A process may have 65530 mappings. */
static unsigned mappings(void)
{
	static char lines[1 << 16];
	int file = open("/proc/self/maps", O_RDONLY);
	unsigned count = 0;
	ssize_t got;

	CHECK(file >= 0);
	while ((got = read(file, lines, sizeof lines)) > 0)
		for (ssize_t i = 0; i < got; i++)
			count += lines[i] == '\n';
	close(file);
	return count;
}

static void test_aligned(struct aligned aligned)
{
	unsigned before = mappings();

	for (int i = 0; i < SOME; i++) {
		char *object = objects[i] = aligned_alloc(aligned.alignment, aligned.size);

		CHECK(object && (uintptr_t)object % aligned.alignment == 0);
		CHECK(malloc_usable_size(object) == aligned.size);
		CHECK(check_all_bytes(object, aligned.size, 0));
		check_stamp(object, aligned.size, (uint64_t)i);
	}
	/* Slabs of several objects end in an inaccessible page. */
	if (aligned.size <= 8192)
		CHECK(mappings() < before + SOME, "%u mappings more", mappings() - before);
	for (int i = 0; i < SOME; i++) {
		size_t smaller = aligned.size - 9;
		char *object = objects[i];

		CHECK_STAMP(object, aligned.size, (uint64_t)i);
		object = realloc(object, smaller);
		CHECK(object && malloc_usable_size(object) == smaller);
		CHECK_STAMP(object, smaller, (uint64_t)i);
		free_sized(object, smaller);
	}
	expect_stop(write_behind, aligned, "behind its end");
	expect_stop(free_twice, aligned, "already free");
	expect_stop(free_smaller, aligned, "a size that is not the object's");
	expect_stop(write_freed, aligned, "while it was free");
}

int main(void)
{
	if (!check_hardened()) {
		check_again("hardened:1", NULL);
		return 0;
	}
	check_watchdog(60);
	check_pin();
	for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
		test_new_order(slots[i]);
		test_order_of_return(slots[i]);
		test_quarantine(slots[i]);
	}
	test_quarantine(1 << 14);
	test_guard_page(1024);
	test_guard_page(2048);
	test_resized_large();
	test_aligned((struct aligned){8192, 8192});
	test_aligned((struct aligned){8192, 8000});
	test_aligned((struct aligned){16384, 200});
	test_aligned((struct aligned){32768, 32768});
	test_aligned((struct aligned){65536, 65528});
	return 0;
}
