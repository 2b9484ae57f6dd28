/* SPDX-License-Identifier: MIT */
/*
 * magazine_portions: a program that frees all that it has pays for what goes back in portions.  However much
 * its depots hold, no single free gives more than some of it to the slabs, nor makes more than a few system
 * calls; most do neither; and when the last one is done everything has gone back.
 *
 * The system calls are counted here: madvise and syscall are this program's.
 */
#include "check.h"

#include <sys/mman.h>

#include "counted_calls.h"
#include "depot/depot.h"
#include "depot/ebb.h"
#include "magazine/magazine.h"
#include "page/page.h"

enum { MIB = 1 << 20, OBJECTS = 200000, LARGEST = 512 };

static unsigned calls;

int madvise(void *address, size_t bytes, int advice)
{
	calls++;
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

/* In random order.  What the costliest call did, and how many did anything. */
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
	/* A portion, with a 64th of what leaves, and a magazine; what gathered before; and what the call
	 * itself brought. */
	CHECK(most <= 2 * DEPOT_PORTION + OBJECTS / 64 + 4 * DEPOT_CAPACITY_MAX, "%llu objects",
	      (unsigned long long)most);
	/* Where the system does not take several stretches at once, they are as many calls. */
	CHECK(most_calls <= (os_purges_several() ? 6 : 6 + PAGE_PURGE_MOST / PAGE_PURGE_RUN),
	      "%u system calls", most_calls);
	CHECK(costly <= OBJECTS / 200, "%u calls did much", costly);
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
		/* The next fall would be taken for one in vain. */
		for (int i = 0; i < 20 * 64; i++)
			ebb_forget();
	}
	return 0;
}
