/* SPDX-License-Identifier: MIT */
/*
 * malloc_burst: threads fill tens of MiB with objects of all sizes, or with large ones, free them in random
 * order, and rest: the memory that stays resident is bounded, though nobody calls malloc again, or
 * malloc_trim.
 */
#include "check.h"

#include <sys/mman.h>

enum { MIB = 1 << 20, THREADS = 2, BYTES = 16 * MIB, MOST = 1 << 16, BOUND = 3 * MIB };

/* Outside the heap, so that the bookkeeping is not measured. */
static struct book {
	void *objects[MOST];
	size_t count, full;
} *books;

static pthread_barrier_t barrier;
static bool large;

static void *burst(void *argument)
{
	struct book *book = argument;
	uint64_t random = 1 + (uint64_t)(book - books);
	for (size_t bytes = 0; bytes < BYTES;) {
		/* From 16 bytes to 32 KiB, or from 256 KiB to 4 MiB, as many of each doubling. */
		size_t size = large ? (size_t)256 << 10 << check_below(&random, 4)
				    : (size_t)16 << check_below(&random, 11);
		size += check_below(&random, size);
		void *object = malloc(size);
		CHECK(object && book->count < MOST);
		memset(object, 1, size);
		book->objects[book->count++] = object;
		bytes += size;
	}
	pthread_barrier_wait(&barrier);
	book->full = check_resident();
	pthread_barrier_wait(&barrier);
	while (book->count) {
		size_t i = check_below(&random, book->count);
		free(book->objects[i]);
		book->objects[i] = book->objects[--book->count];
	}
	return NULL;
}

int main(int argc, char **argv)
{
	large = argc > 1 && strcmp(argv[1], "large") == 0;
	check_watchdog(60);
	books = mmap(NULL, THREADS * sizeof *books, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	CHECK(books != MAP_FAILED);
	memset(books, 0, THREADS * sizeof *books);
	pthread_barrier_init(&barrier, NULL, THREADS);
	pthread_t threads[THREADS];
	size_t start = check_resident();
	for (int i = 0; i < THREADS; i++)
		threads[i] = check_thread(burst, &books[i]);
	for (int i = 0; i < THREADS; i++)
		check_join(threads[i]);
	size_t rest = check_resident();
	CHECK(books->full >= start + THREADS * BYTES, "%zu bytes resident when full", books->full);
	CHECK(rest <= start + BOUND, "%zu bytes resident at the start, %zu when full, %zu at rest", start,
	      books->full, rest);
	printf("%s: %zu KiB more than at the start, of %zu\n", check_mode(), (rest - start) >> 10,
	       (books->full - start) >> 10);
	return 0;
}
