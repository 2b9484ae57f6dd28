/* SPDX-License-Identifier: MIT */
/*
 * magazine_lulls: what a program freed last goes back by age though it makes no calls afterwards but a few
 * that magazines would serve, after blocks, after such as stand by, and after a mapping; what is freed twice
 * meanwhile is found; and who goes on with many calls has its magazines, as often as large blocks come and
 * go.
 *
 * Time stands still but where the test moves it.
 */
#include "check.h"

#include <time.h>

#include "heap.h"
#include "page/page.h"

enum { MIB = 1 << 20, FALLS = 6, LEARN = 64, SMALL = 100, CALLS = 1000, STEP = 10, REST = 2000 };

static uint64_t milliseconds = 100000;

int clock_gettime(clockid_t clock, struct timespec *now)
{
	(void)clock;
	*now = (struct timespec){.tv_sec = (time_t)(milliseconds / 1000),
				 .tv_nsec = (long)(milliseconds % 1000) * 1000000};
	return 0;
}

/* Bytes that wait to go back. */
static size_t waiting(void)
{
	struct page_statistics now;
	page_statistics(&now);
	return (now.dirty_pages << PAGE_SHIFT) + now.huge_cached_bytes;
}

static char *block(size_t bytes)
{
	char *made = malloc(bytes);
	CHECK(made);
	memset(made, 1, bytes);
	return made;
}

/* Falls that come back at once: the next ones stay. */
static void blocks(unsigned lengths)
{
	for (unsigned i = 0; i < FALLS * lengths; i++) {
		char *made[3];
		for (size_t k = 0; k < 3; k++)
			made[k] = block((8 + k) * MIB + i % lengths * PAGE_BYTES);
		for (unsigned k = 0; k < 3; k++)
			free(made[k]);
	}
}

/* Each of these returns what is freed last. */
static void *many_lengths(void)
{
	blocks(FALLS);
	return block(20 * MIB);
}

/* It stands by then. */
static void *one_length(void)
{
	for (unsigned i = 0; i < LEARN; i++)
		free(block(24 * MIB));
	return block(24 * MIB);
}

/* A mapping, when nothing of the heap waits: what could not grow for the block behind it. */
static void *vector(void)
{
	char *one = block(40 * MIB), *other = block(40 * MIB);
	char *low = one < other ? one : other, *high = one < other ? other : one;
	char *moved = realloc(low, 64 * MIB);
	CHECK(moved && !page_is_heap(moved));
	free(high);
	malloc_trim(0);
	return moved;
}

static void small_calls(unsigned pairs)
{
	for (unsigned i = 0; i < pairs; i++) {
		void *volatile object = malloc(SMALL);
		CHECK(object);
		free(object);
	}
}

static void test_rest(void *(*work)(void))
{
	void *last = work();
	small_calls(CALLS);
	milliseconds += STEP;
	free(last);
	size_t before = waiting();
	CHECK(before >= 16 * MIB, "%zu bytes", before);
	for (unsigned i = 0; i < REST / STEP; i++) {
		milliseconds += STEP;
		small_calls(1);
	}
	CHECK(waiting() <= 2 * MIB, "%zu of %zu bytes", waiting(), before);
	heap_walk();
}

static uint64_t misses(void)
{
	struct cpuslab_counters now = check_counters();
	return now.alloc_misses + now.free_misses;
}

/* Many calls at one time. */
static void test_goes_on(void)
{
	free(many_lengths());
	milliseconds += STEP;
	uint64_t before = misses();
	small_calls(CALLS);
	CHECK(misses() - before <= 64, "%llu", (unsigned long long)(misses() - before));

	/* As often as words become void at one time, and no oftener. */
	before = misses();
	for (unsigned i = 0; i < CALLS; i++) {
		char *large = malloc(16 * MIB + i % FALLS * PAGE_BYTES);
		CHECK(large);
		free(large);
		small_calls(10);
	}
	uint64_t then = misses() - before - 2 * CALLS;
	/* Idle ones do so, too, as pages are taken: not at each block. */
	CHECK(then <= CALLS / 2, "%llu", (unsigned long long)then);
}

static void free_twice(void *argument)
{
	(void)argument;
	small_calls(CALLS);
	free(many_lengths());
	milliseconds += STEP;
	void *volatile object = malloc(SMALL);
	free(object);
	free(object);
}

static void test_second_free(void)
{
	char text[2048];
	int status = check_child(free_twice, NULL, text, sizeof text);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %d", status);
	CHECK(strstr(text, "freed just before"), "%s", text);
}

int main(void)
{
	cpu_set_t one;
	check_watchdog(60);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
	test_rest(many_lengths);
	test_rest(one_length);
	test_rest(vector);
	test_goes_on();
	test_second_free();
	printf("few calls after large blocks\n");
	return 0;
}
