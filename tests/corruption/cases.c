/* SPDX-License-Identifier: MIT */
#include "cases.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	SMALL = 24,
	FULL = 32, /* a whole size class of most allocators */
	MEDIUM = 1000,
	PAGES = 5000,
	LARGEST = 200000, /* in a size class of cpuslab, a mapping for others */
	LARGE = 1 << 20,
	LARGE_ODD = LARGE + 100,
	HUGE = 64 << 20,
	OTHERS = 3000,
};

/* Hides a pointer from the compiler. */
static void *volatile hidden;
static volatile size_t sink, nothing;

static char *hide(void *object)
{
	hidden = object;
	return hidden;
}

static char *make(size_t size)
{
	char *object = hide(malloc(size));

	memset(object, 'a', size);
	return object;
}

#define WRONG(statement)                                                                                     \
	do {                                                                                                 \
		wrong_begins();                                                                              \
		statement;                                                                                   \
		wrong_ends();                                                                                \
	} while (0)

/* Allocates and frees objects of one size, as many as take up to 64 MiB. */
static void churn(size_t size)
{
	static void *others[OTHERS];
	size_t count = size > (64 << 20) / OTHERS ? (64 << 20) / size + 1 : OTHERS;

	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < count; i++)
			others[i] = malloc(size);
		for (size_t i = 0; i < count; i++)
			free(others[i]);
	}
}

/* ---- freed twice ----------------------------------------------------------------------------------- */

static void twice(size_t size)
{
	char *object = make(size);

	free(object);
	WRONG(free(hide(object)));
}

static void twice_apart(size_t size)
{
	char *object = make(size), *other = make(size);

	free(object);
	free(other);
	WRONG(free(hide(object)));
}

static void twice_delayed(size_t size)
{
	char *object = make(size);

	free(object);
	churn(size);
	WRONG(free(hide(object)));
}

static void double_free_small(void)
{
	twice(SMALL);
}

static void double_free_small_another_between(void)
{
	twice_apart(SMALL);
}

static void double_free_small_delayed(void)
{
	twice_delayed(SMALL);
}

static void double_free_small_after_reuse(void)
{
	char *object = make(SMALL), *next;

	free(object);
	next = make(SMALL);
	WRONG(free(hide(object)));
	hide(next);
}

static void double_free_medium(void)
{
	twice(MEDIUM);
}

static void double_free_medium_delayed(void)
{
	twice_delayed(MEDIUM);
}

static void double_free_pages(void)
{
	twice(PAGES);
}

static void double_free_largest_class(void)
{
	twice(LARGEST);
}

static void double_free_large(void)
{
	twice(LARGE);
}

static void double_free_large_another_between(void)
{
	twice_apart(LARGE);
}

static void double_free_large_delayed(void)
{
	twice_delayed(LARGE);
}

static void double_free_huge(void)
{
	twice(HUGE);
}

static void double_free_aligned(void)
{
	char *object = hide(aligned_alloc(256, 512));

	free(object);
	WRONG(free(hide(object)));
}

static void double_free_calloc(void)
{
	char *object = hide(calloc(5, 20));

	free(object);
	WRONG(free(hide(object)));
}

static void double_free_after_realloc(void)
{
	char *object = make(SMALL), *moved = hide(realloc(object, PAGES));

	WRONG(free(hide(object)));
	hide(moved);
}

static void double_free_after_realloc_to_nothing(void)
{
	char *object = make(SMALL);

	sink = realloc(object, nothing) == NULL;
	WRONG(free(hide(object)));
}

static void *release(void *object)
{
	free(object);
	return NULL;
}

static void double_free_by_two_threads(void)
{
	char *object = make(SMALL);
	pthread_t thread;

	pthread_create(&thread, NULL, release, object);
	pthread_join(thread, NULL);
	WRONG(free(hide(object)));
}

static void realloc_of_freed(void)
{
	char *object = make(SMALL);

	free(object);
	WRONG(hide(realloc(hide(object), 2 * SMALL)));
}

static void realloc_of_freed_large(void)
{
	char *object = make(LARGE);

	free(object);
	WRONG(hide(realloc(hide(object), 2 * LARGE)));
}

static void usable_size_of_freed(void)
{
	char *object = make(SMALL);

	free(object);
	WRONG(sink = malloc_usable_size(hide(object)));
}

/* ---- what was never allocated ---------------------------------------------------------------------- */

static void free_static(void)
{
	static char object[256] __attribute__((aligned(16)));

	WRONG(free(hide(object + 64)));
}

static void free_stack(void)
{
	char object[256] __attribute__((aligned(16))) = {0};

	WRONG(free(hide(object + 64)));
}

static void free_code(void)
{
	WRONG(free(hide((void *)((uintptr_t)free_code & -(uintptr_t)16))));
}

static void free_mapping(void)
{
	char *object = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	WRONG(free(hide(object + 4096 + 16)));
}

static void free_uninitialised(void)
{
	static char *object;

	memset((void *)&object, 0x41, sizeof object - 2);
	WRONG(free(hide(object)));
}

static void free_noncanonical(void)
{
	WRONG(free(hide((void *)0xdededededededed0)));
}

static void free_small_number(void)
{
	WRONG(free(hide((void *)32)));
}

static void inside(size_t size, ptrdiff_t offset)
{
	char *object = make(size);

	WRONG(free(hide(object + offset)));
}

static void free_inside_small(void)
{
	inside(64, 16);
}

static void free_inside_medium(void)
{
	inside(MEDIUM, 512);
}

static void free_inside_pages(void)
{
	inside(PAGES, 4096);
}

static void free_inside_largest_class(void)
{
	inside(LARGEST, 4096);
}

static void free_inside_large(void)
{
	inside(LARGE, 4096);
}

static void free_inside_large_near_end(void)
{
	inside(LARGE, LARGE - 64);
}

static void free_inside_huge(void)
{
	inside(HUGE, 1 << 20);
}

static void free_misaligned_small(void)
{
	inside(SMALL, 1);
}

static void free_misaligned_by_eight(void)
{
	inside(64, 8);
}

static void free_misaligned_large(void)
{
	inside(LARGE, 1);
}

static void free_before_small(void)
{
	inside(SMALL, -16);
}

static void free_before_large(void)
{
	inside(LARGE, -16);
}

static void realloc_of_static(void)
{
	static char object[256] __attribute__((aligned(16)));

	WRONG(hide(realloc(hide(object + 64), 20)));
}

static void realloc_inside(void)
{
	char *object = make(64);

	WRONG(hide(realloc(hide(object + 16), 200)));
}

static void usable_size_inside(void)
{
	char *object = make(64);

	WRONG(sink = malloc_usable_size(hide(object + 16)));
}

/* ---- written past the end -------------------------------------------------------------------------- */

static void past(size_t size, size_t offset, size_t bytes)
{
	char *object = make(size);

	WRONG(memset(hide(object) + offset, 'x', bytes));
	free(object);
}

static void overflow_small_by_1(void)
{
	past(SMALL, SMALL, 1);
}

static void overflow_small_by_8(void)
{
	past(SMALL, SMALL, 8);
}

static void overflow_full_by_1(void)
{
	past(FULL, FULL, 1);
}

static void overflow_full_by_8(void)
{
	past(FULL, FULL, 8);
}

static void overflow_medium_by_1(void)
{
	past(MEDIUM, MEDIUM, 1);
}

static void overflow_medium_by_8(void)
{
	past(MEDIUM, MEDIUM, 8);
}

static void overflow_pages_by_1(void)
{
	past(PAGES, PAGES, 1);
}

static void overflow_pages_by_8(void)
{
	past(PAGES, PAGES, 8);
}

static void overflow_largest_class_by_1(void)
{
	past(LARGEST, LARGEST, 1);
}

static void overflow_large_by_1(void)
{
	past(LARGE, LARGE, 1);
}

static void overflow_large_by_8(void)
{
	past(LARGE, LARGE, 8);
}

static void overflow_large_odd_by_1(void)
{
	past(LARGE_ODD, LARGE_ODD, 1);
}

static void overflow_large_odd_by_8(void)
{
	past(LARGE_ODD, LARGE_ODD, 8);
}

static void overflow_small_by_a_megabyte(void)
{
	past(SMALL, SMALL, 1 << 20);
}

static void overflow_calloc_by_1(void)
{
	char *object = hide(calloc(5, 20));

	WRONG(object[100] = 'x');
	free(object);
}

static void overflow_after_shrinking(void)
{
	char *object = hide(realloc(make(100), 90));

	WRONG(object[90] = 'x');
	free(object);
}

static void overflow_after_growing(void)
{
	char *object = hide(realloc(make(100), 104));

	WRONG(object[104] = 'x');
	free(object);
}

static void overflow_aligned_by_1(void)
{
	char *object = hide(aligned_alloc(64, 64));

	WRONG(object[64] = 'x');
	free(object);
}

static void string_too_long_by_its_zero(void)
{
	char *object = make(SMALL);

	WRONG(strcpy(hide(object), "twenty-four characters !"));
	free(object);
}

static void string_appended(void)
{
	char *object = make(SMALL);

	strcpy(object, "twenty characters ..");
	WRONG(strcat(hide(object), " and more"));
	free(object);
}

static void string_printed(void)
{
	char *object = make(SMALL);

	WRONG(sprintf(hide(object), "%030d", 7));
	free(object);
}

/* ---- written before the start ---------------------------------------------------------------------- */

/*
 * One of many neighbours, in the middle, writes before its start; then all are freed, and any free object
 * between them is reused.
 */
static void before(size_t size, size_t bytes)
{
	enum { NEIGHBOURS = 300 };
	static char *objects[NEIGHBOURS];

	for (int i = 0; i < NEIGHBOURS; i++)
		objects[i] = make(size);
	/* Flipped, since a canary's byte may be any that is stored there. */
	char *object = hide(objects[NEIGHBOURS / 2]);
	for (size_t i = 1; i <= bytes; i++)
		WRONG(object[-(ptrdiff_t)i] ^= 'x');
	for (int i = 0; i < NEIGHBOURS; i++)
		free(objects[i]);
	churn(size);
}

static void underflow_small_by_1(void)
{
	before(SMALL, 1);
}

static void underflow_small_by_8(void)
{
	before(SMALL, 8);
}

static void underflow_medium_by_1(void)
{
	before(MEDIUM, 1);
}

static void underflow_medium_by_8(void)
{
	before(MEDIUM, 8);
}

static void underflow_large_by(size_t bytes)
{
	char *object = make(LARGE);

	WRONG(memset(hide(object) - bytes, 'x', bytes));
	free(object);
}

static void underflow_large_by_1(void)
{
	underflow_large_by(1);
}

static void underflow_large_by_8(void)
{
	underflow_large_by(8);
}

/* ---- used after it was freed ----------------------------------------------------------------------- */

static void write_after(size_t size, size_t offset)
{
	char *object = make(size);

	free(object);
	WRONG(hide(object)[offset] = 'x');
	churn(size);
}

static void write_after_free_small(void)
{
	write_after(SMALL, 0);
}

static void write_after_free_small_at_the_end(void)
{
	write_after(SMALL, SMALL - 1);
}

static void write_after_free_medium(void)
{
	write_after(MEDIUM, 500);
}

static void write_after_free_pages(void)
{
	write_after(PAGES, 2500);
}

static void write_after_free_largest_class(void)
{
	write_after(LARGEST, 100000);
}

static void write_after_free_large(void)
{
	write_after(LARGE, 4096);
}

static void write_after_free_huge(void)
{
	write_after(HUGE, 1 << 20);
}

static void write_after_free_delayed(void)
{
	char *object = make(SMALL);

	free(object);
	for (int i = 0; i < 50; i++)
		free(make(SMALL));
	WRONG(hide(object)[8] = 'x');
	churn(SMALL);
}

static void write_after_realloc(void)
{
	char *object = make(SMALL), *moved = hide(realloc(object, PAGES));

	WRONG(hide(object)[8] = 'x');
	churn(SMALL);
	free(moved);
}

static void read_after(size_t size, size_t offset)
{
	char *object = make(size), seen = 0;

	free(object);
	WRONG(seen = hide(object)[offset]);
	end_as(seen == 'a' ? ENDS_SILENTLY : ENDS_CLEARED);
}

static void read_after_free_small(void)
{
	read_after(SMALL, SMALL - 1);
}

static void read_after_free_medium(void)
{
	read_after(MEDIUM, 500);
}

static void read_after_free_largest_class(void)
{
	read_after(LARGEST, 100000);
}

static void read_after_free_large(void)
{
	read_after(LARGE, 5000);
}

static void read_of_another_ones_past(void)
{
	char *object, seen = 0;

	free(make(LARGEST));
	object = hide(malloc(LARGEST));
	WRONG(seen = object[100000]);
	end_as(seen == 'a' ? ENDS_SILENTLY : ENDS_CLEARED);
}

/* ---- freed with another size ----------------------------------------------------------------------- */

static void sized(const char *function, size_t size, size_t stated)
{
	void (*release_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, function);
	char *object = make(size);

	if (!release_sized)
		end_as(ENDS_ABSENT);
	WRONG(release_sized(hide(object), stated));
}

static void free_sized_too_small(void)
{
	sized("free_sized", 100, 99);
}

static void free_sized_too_large(void)
{
	sized("free_sized", 100, 101);
}

static void free_sized_large(void)
{
	sized("free_sized", LARGE, LARGE / 2);
}

static void sized_delete_too_small(void)
{
	sized("_ZdlPvm", 100, 8);
}

static void sized_delete_too_large(void)
{
	sized("_ZdlPvm", 8, 100);
}

static void sized_delete_of_an_array(void)
{
	sized("_ZdaPvm", 4096, 40);
}

static void free_aligned_sized_misaligned(void)
{
	void (*release_sized)(void *, size_t, size_t) =
		(void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
	char *first = hide(aligned_alloc(16, 48)), *object = hide(aligned_alloc(16, 48));

	if (!release_sized)
		end_as(ENDS_ABSENT);
	/* Of two neighbours at least one lies on no larger boundary. */
	if ((uintptr_t)object % 4096 == 0)
		object = first;
	WRONG(release_sized(hide(object), 4096, 48));
}

/* ---- objects without bytes ------------------------------------------------------------------------- */

static void write_to_zero_size(void)
{
	char *object = hide(malloc(nothing));

	WRONG(object[0] = 'x');
	free(object);
}

static void read_from_zero_size(void)
{
	const char *object = hide(malloc(nothing));

	WRONG(sink = (size_t)object[0]);
}

static void double_free_of_zero_size(void)
{
	char *object = hide(malloc(nothing));

	free(object);
	WRONG(free(hide(object)));
}

#define CASE(kind, function)                                                                                 \
	{                                                                                                    \
		#function, kind, function                                                                    \
	}
const struct corruption corruptions[] = {
	CASE(DOUBLE_FREE, double_free_small),
	CASE(DOUBLE_FREE, double_free_small_another_between),
	CASE(DOUBLE_FREE, double_free_small_delayed),
	CASE(DOUBLE_FREE, double_free_small_after_reuse),
	CASE(DOUBLE_FREE, double_free_medium),
	CASE(DOUBLE_FREE, double_free_medium_delayed),
	CASE(DOUBLE_FREE, double_free_pages),
	CASE(DOUBLE_FREE, double_free_largest_class),
	CASE(DOUBLE_FREE, double_free_large),
	CASE(DOUBLE_FREE, double_free_large_another_between),
	CASE(DOUBLE_FREE, double_free_large_delayed),
	CASE(DOUBLE_FREE, double_free_huge),
	CASE(DOUBLE_FREE, double_free_aligned),
	CASE(DOUBLE_FREE, double_free_calloc),
	CASE(DOUBLE_FREE, double_free_after_realloc),
	CASE(DOUBLE_FREE, double_free_after_realloc_to_nothing),
	CASE(DOUBLE_FREE, double_free_by_two_threads),
	CASE(DOUBLE_FREE, realloc_of_freed),
	CASE(DOUBLE_FREE, realloc_of_freed_large),
	CASE(DOUBLE_FREE, usable_size_of_freed),
	CASE(INVALID_FREE, free_static),
	CASE(INVALID_FREE, free_stack),
	CASE(INVALID_FREE, free_code),
	CASE(INVALID_FREE, free_mapping),
	CASE(INVALID_FREE, free_uninitialised),
	CASE(INVALID_FREE, free_noncanonical),
	CASE(INVALID_FREE, free_small_number),
	CASE(INVALID_FREE, free_inside_small),
	CASE(INVALID_FREE, free_inside_medium),
	CASE(INVALID_FREE, free_inside_pages),
	CASE(INVALID_FREE, free_inside_largest_class),
	CASE(INVALID_FREE, free_inside_large),
	CASE(INVALID_FREE, free_inside_large_near_end),
	CASE(INVALID_FREE, free_inside_huge),
	CASE(INVALID_FREE, free_misaligned_small),
	CASE(INVALID_FREE, free_misaligned_by_eight),
	CASE(INVALID_FREE, free_misaligned_large),
	CASE(INVALID_FREE, free_before_small),
	CASE(INVALID_FREE, free_before_large),
	CASE(INVALID_FREE, realloc_of_static),
	CASE(INVALID_FREE, realloc_inside),
	CASE(INVALID_FREE, usable_size_inside),
	CASE(OVERFLOW, overflow_small_by_1),
	CASE(OVERFLOW, overflow_small_by_8),
	CASE(OVERFLOW, overflow_full_by_1),
	CASE(OVERFLOW, overflow_full_by_8),
	CASE(OVERFLOW, overflow_medium_by_1),
	CASE(OVERFLOW, overflow_medium_by_8),
	CASE(OVERFLOW, overflow_pages_by_1),
	CASE(OVERFLOW, overflow_pages_by_8),
	CASE(OVERFLOW, overflow_largest_class_by_1),
	CASE(OVERFLOW, overflow_large_by_1),
	CASE(OVERFLOW, overflow_large_by_8),
	CASE(OVERFLOW, overflow_large_odd_by_1),
	CASE(OVERFLOW, overflow_large_odd_by_8),
	CASE(OVERFLOW, overflow_small_by_a_megabyte),
	CASE(OVERFLOW, overflow_calloc_by_1),
	CASE(OVERFLOW, overflow_after_shrinking),
	CASE(OVERFLOW, overflow_after_growing),
	CASE(OVERFLOW, overflow_aligned_by_1),
	CASE(OVERFLOW, string_too_long_by_its_zero),
	CASE(OVERFLOW, string_appended),
	CASE(OVERFLOW, string_printed),
	CASE(UNDERFLOW, underflow_small_by_1),
	CASE(UNDERFLOW, underflow_small_by_8),
	CASE(UNDERFLOW, underflow_medium_by_1),
	CASE(UNDERFLOW, underflow_medium_by_8),
	CASE(UNDERFLOW, underflow_large_by_1),
	CASE(UNDERFLOW, underflow_large_by_8),
	CASE(USE_AFTER_FREE, write_after_free_small),
	CASE(USE_AFTER_FREE, write_after_free_small_at_the_end),
	CASE(USE_AFTER_FREE, write_after_free_medium),
	CASE(USE_AFTER_FREE, write_after_free_pages),
	CASE(USE_AFTER_FREE, write_after_free_largest_class),
	CASE(USE_AFTER_FREE, write_after_free_large),
	CASE(USE_AFTER_FREE, write_after_free_huge),
	CASE(USE_AFTER_FREE, write_after_free_delayed),
	CASE(USE_AFTER_FREE, write_after_realloc),
	CASE(USE_AFTER_FREE, read_after_free_small),
	CASE(USE_AFTER_FREE, read_after_free_medium),
	CASE(USE_AFTER_FREE, read_after_free_largest_class),
	CASE(USE_AFTER_FREE, read_after_free_large),
	CASE(USE_AFTER_FREE, read_of_another_ones_past),
	CASE(WRONG_SIZE, free_sized_too_small),
	CASE(WRONG_SIZE, free_sized_too_large),
	CASE(WRONG_SIZE, free_sized_large),
	CASE(WRONG_SIZE, sized_delete_too_small),
	CASE(WRONG_SIZE, sized_delete_too_large),
	CASE(WRONG_SIZE, sized_delete_of_an_array),
	CASE(WRONG_SIZE, free_aligned_sized_misaligned),
	CASE(ZERO_SIZE, write_to_zero_size),
	CASE(ZERO_SIZE, read_from_zero_size),
	CASE(ZERO_SIZE, double_free_of_zero_size),
};
const unsigned corruption_count = sizeof corruptions / sizeof *corruptions;
