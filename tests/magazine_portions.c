/* SPDX-License-Identifier: MIT */
/*
 * magazine_portions: a program that frees all its objects pays in portions for what goes back.  However much
 * its depots hold, no single free returns more than a part of it to the slabs, nor makes more than a few
 * system calls; most do neither; and after the last one everything has gone back.  A program that keeps a few
 * objects, far apart, and makes no further calls keeps the pages that these lie in, not all pages between
 * them.
 *
 * System calls are counted here: madvise and syscall are this program's.
 */
#include "check.h"

#include <sys/mman.h>

#include "counted_calls.h"
#include "depot/depot.h"
#include "depot/ebb.h"
#include "magazine/magazine.h"
#include "page/block.h"
#include "page/page.h"
#include "still_clock.h"

enum { MIB = 1 << 20, OBJECTS = 200000, LARGEST = 512 };

/* Volatile, since the compiler assumes that free does not change it. */
static volatile unsigned calls;
static volatile bool refuses; /* as the system refuses locked memory */

int madvise(void *address, size_t bytes, int advice)
{
	calls++;
	if (refuses && advice == MADV_DONTNEED) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_madvise, address, bytes, advice);
}

static long on_syscall(long number, const long argument[static 6])
{
	calls += number != SYS_madvise;
	return libc_syscall(number, argument);
}

/* Objects that the slabs have handed out. */
static uint64_t allocated(void)
{
	uint64_t sum = 0;
	for (unsigned number = 0; number < magazine_caches(); number++) {
		struct cache *cache = magazine_cache_number(number);
		if (cache)
			sum += __atomic_load_n(&cache->depot.slabs.allocated, __ATOMIC_RELAXED);
	}
	return sum;
}

/* Pages of live slabs that have gone back to the system. */
static uint64_t hollow(void)
{
	uint64_t sum = 0;
	for (unsigned number = 0; number < magazine_caches(); number++) {
		struct cache *cache = magazine_cache_number(number);
		if (cache)
			sum += __atomic_load_n(&cache->depot.slabs.hollow, __ATOMIC_RELAXED);
	}
	return sum;
}

static size_t pages_held(void)
{
	struct page_statistics now;
	page_statistics(&now);
	return now.used_pages + now.dirty_pages;
}

static void *objects[OBJECTS];

static void allocate(uint64_t *random, size_t largest)
{
	for (unsigned i = 0; i < OBJECTS; i++) {
		size_t size = 1 + check_below(random, largest);
		CHECK((objects[i] = malloc(size)));
		memset(objects[i], 1, size);
	}
}

/* Frees all in random order; finds the cost of the costliest call, and how many calls did any such work. */
static void free_all(uint64_t *random)
{
	enum { COSTLY = 16 };
	uint64_t before = allocated(), most = 0;
	unsigned most_calls = 0, costly = 0;
	for (unsigned left = OBJECTS; left; left--) {
		unsigned i = (unsigned)check_below(random, left);
		calls = 0;
		free(objects[i]);
		objects[i] = objects[left - 1];
		uint64_t now = allocated(), drained = now < before ? before - now : 0;
		before = now;
		most = drained > most ? drained : most;
		most_calls = calls > most_calls ? calls : most_calls;
		costly += drained > COSTLY || calls;
	}
	printf("at most %llu objects and %u system calls by one free; %u of %u did much\n",
	       (unsigned long long)most, most_calls, costly, (unsigned)OBJECTS);
	/* A portion, a 64th of what leaves (half of all objects at the first fall), and a magazine. */
	CHECK(most <= DEPOT_PORTION + OBJECTS / 2 / 64 + DEPOT_CAPACITY_MAX, "%llu objects",
	      (unsigned long long)most);
	/* Each range is a call.  And each huge page of the heap may be split, once. */
	CHECK(most_calls <= 10 + PAGE_PURGE_MOST / PAGE_PURGE_RUN + page_heap_pages() / BLOCK_PAGES,
	      "%u system calls", most_calls);
	CHECK(costly <= OBJECTS / 150, "%u calls did much", costly);
}

static size_t resident(void)
{
	static unsigned char present[1 << 20];
	size_t pages = page_heap_pages(), count = 0;
	CHECK(pages <= sizeof present &&
	      mincore((void *)(page_front.heap_page << PAGE_SHIFT), pages << PAGE_SHIFT, present) == 0);
	for (size_t i = 0; i < pages; i++)
		count += present[i] & 1;
	return count;
}

/* Objects of which only a few stay. */
enum { LARGE = 4096, COUNT = OBJECTS / 10, KEPT = COUNT / 50 };

static void allocate_large(uint64_t *random, size_t least, size_t most)
{
	for (unsigned i = 0; i < COUNT; i++) {
		size_t size = least + check_below(random, most - least);
		CHECK((objects[i] = malloc(size)));
		memset(objects[i], 1, size);
	}
}

static void test_few_stay(uint64_t *random)
{
	enum { HOLLOWED = 144 };
	unsigned most = 0;
	uint64_t most_hollowed = 0;
	allocate_large(random, LARGE / 16, LARGE / 16 + LARGE);
	size_t full = resident();
	for (unsigned left = COUNT; left > KEPT; left--) {
		unsigned i = (unsigned)check_below(random, left);
		uint64_t before = hollow();
		calls = 0;
		free(objects[i]);
		objects[i] = objects[left - 1];
		most = calls > most ? calls : most;
		uint64_t now = hollow();
		if (now > before + most_hollowed)
			most_hollowed = now - before;
	}
	size_t rest = resident();
	printf("%zu pages resident of %zu, for %u objects; at most %u system calls and %u such pages by one "
	       "free\n",
	       rest, full, (unsigned)KEPT, most, (unsigned)most_hollowed);
	/* A portion, and the pages of one slab. */
	CHECK(most_hollowed <= HOLLOWED, "%u pages", (unsigned)most_hollowed);
	CHECK(rest < full / 4, "%zu pages of %zu stay for one object in fifty", rest, full);
	for (unsigned i = 0; i < KEPT; i++) {
		CHECK(check_all_bytes(objects[i], LARGE / 16, 1));
		free(objects[i]);
	}
}

/* Where the system takes no page back, a fall ends all the same. */
static void test_refused(uint64_t *random)
{
	enum { BURST = 6000, BURSTS = 20 };
	/* Of one class, so that the system is asked for more of its pages than a portion has. */
	allocate_large(random, 1000, 1001);
	for (int i = 0; i < 20 * 64; i++)
		ebb_tick();
	refuses = true;
	for (unsigned left = COUNT; left > KEPT; left--) {
		unsigned i = (unsigned)check_below(random, left);
		free(objects[i]);
		objects[i] = objects[left - 1];
	}
	CHECK(ebb_is_far());
	for (unsigned burst = 0; burst < BURSTS; burst++) {
		/* By the second half, the remaining work of the fall is done. */
		if (burst == BURSTS / 2)
			calls = 0;
		for (unsigned i = 0; i < BURST; i++)
			CHECK((objects[KEPT + i] = malloc(64)));
		for (unsigned i = 0; i < BURST; i++)
			free(objects[KEPT + i]);
	}
	CHECK(calls == 0, "%u system calls after it", calls);
	refuses = false;
	for (unsigned i = 0; i < KEPT; i++)
		free(objects[i]);
}

int main(void)
{
	uint64_t random = 1;
	check_watchdog(100);
	free(malloc(1));
	size_t start = pages_held();
	/* Of many sizes, and of few, which gather (see depot.h). */
	for (unsigned round = 0; round < 2; round++) {
		allocate(&random, round ? 48 : LARGEST);
		size_t full = pages_held();
		free_all(&random);
		size_t end = pages_held();
		CHECK(full > start + 6 * MIB / PAGE_BYTES && end < start + 2 * MIB / PAGE_BYTES,
		      "%zu pages at the start, %zu with everything allocated, %zu at the end", start, full,
		      end);
		/* Otherwise the next fall would count as one in vain. */
		for (int i = 0; i < 20 * 64; i++)
			ebb_tick();
	}
	test_few_stay(&random);
	test_refused(&random);
	return 0;
}
