/* SPDX-License-Identifier: MIT */
/*
 * malloc_return: freed memory goes back to the system, at once with malloc_trim(0), and by itself after the
 * decay time with a little further activity.
 */
#include "check.h"

#include <sys/mman.h>

enum { MIB = 1 << 20, TOTAL = 200 * MIB, MARGIN = 12 * MIB };

/* Outside the heap, so that the bookkeeping is not measured. */
struct book {
	size_t count;
	void *objects[1 << 20];
};

static struct book *book;
static uint64_t random_state = 5;

static size_t mixed_size(void)
{
	size_t dice = check_below(&random_state, 1000);
	return 1 + check_below(&random_state, dice < 900   ? 1024
					      : dice < 990 ? 30000
					      : dice < 998 ? 500000
							   : 8 * MIB);
}

static void allocate(size_t total)
{
	for (size_t done = 0; done < total;) {
		size_t size = mixed_size();
		void *object = malloc(size);
		CHECK(object);
		memset(object, 1, size);
		CHECK(book->count < sizeof book->objects / sizeof *book->objects);
		book->objects[book->count++] = object;
		done += size;
	}
}

/* In random order, so that neighbours are freed far apart in time. */
static void free_all(void)
{
	while (book->count) {
		size_t i = check_below(&random_state, book->count);
		free(book->objects[i]);
		book->objects[i] = book->objects[--book->count];
	}
}

static void *allocate_elsewhere(void *unused)
{
	allocate(TOTAL / 4);
	return unused;
}

/* Like an idle server: a request now and then, some of which miss the fast path. */
static void little_activity(void)
{
	void *objects[300];
	for (size_t i = 0; i < 300; i++)
		CHECK((objects[i] = malloc(i * 8)));
	for (size_t i = 0; i < 300; i++)
		free(objects[i]);
	free(malloc(2 * MIB));
}

int main(void)
{
	if (check_valgrind())
		check_skip("valgrind keeps shadows resident");
	check_watchdog(100);
	book = mmap(NULL, sizeof *book, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(book != MAP_FAILED);
	memset(book, 0, sizeof *book);
	little_activity();
	malloc_trim(0);
	size_t start = check_resident();

	for (int round = 0; round < 3; round++) {
		if (round == 2) /* the last one's objects come from threads that are gone */
			for (int i = 0; i < 4; i++)
				check_join(check_thread(allocate_elsewhere, NULL));
		else
			allocate(TOTAL);
		size_t full = check_resident();
		CHECK(full >= start + TOTAL / 10 * 9, "%zu resident with everything allocated", full);
		CHECK(full <= start + TOTAL / 10 * 13, "%zu resident for %d bytes allocated", full, TOTAL);
		free_all();
		CHECK(malloc_trim(0) == 1);
		size_t trimmed = check_resident();
		CHECK(trimmed <= start + MARGIN,
		      "round %d: %zu bytes resident at the start, %zu when trimmed", round, start, trimmed);
	}

	if (check_cpuslab()) {
		allocate(TOTAL);
		free_all();
		/* Within the default decay time of a second; ten times that on a busy machine. */
		size_t resident = check_resident();
		for (int tenth = 0; tenth < 100 && resident > start + MARGIN; tenth++) {
			usleep(100000);
			little_activity();
			resident = check_resident();
		}
		CHECK(resident <= start + MARGIN, "%zu bytes resident at the start, %zu after the decay time",
		      start, resident);
		CHECK(check_counters().purged_bytes >= TOTAL / 2);
	}
	printf("%s: returned\n", check_mode());
	return 0;
}
