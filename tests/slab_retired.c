/* SPDX-License-Identifier: MIT */
/*
 * slab_retired: a fork while a hardened slab's addresses are being retired, after each change to the page
 * map: the thread single-steps, and the handler of the trap forks.  In the child either the slab is intact,
 * or none of its pages, the last of which is inaccessible, is ever used again.
 */
#include "check.h"

#include "heap.h"
#include "magazine/magazine.h"
#include "process/process.h"
#include "single_step.h"
#include "still_clock.h"

enum { SIZE = 1024, SOME = 300, LARGEST = 4 * SIZE };

static struct cache cache;
static uintptr_t first, pages; /* of its only slab */
static uintptr_t retired;      /* how many of them were retired at the last look */
static unsigned forks;

static uintptr_t count_retired(void)
{
	uintptr_t count = 0;

	for (uintptr_t page = first; page < first + pages; page++)
		count += page_front.map[page] == PAGE_RETIRED;
	return count;
}

static void survive(void)
{
	bool begun = page_front.map[first] == PAGE_RETIRED;

	check_watchdog(20);
	process_enter();
	CHECK(count_retired() == (begun ? pages : 0), "%zu of %zu pages are retired, of which %zu were",
	      (size_t)count_retired(), (size_t)pages, (size_t)retired);
	heap_walk();
	for (size_t size = SIZE; size <= LARGEST; size += SIZE / 2)
		for (int i = 0; i < SOME; i++) {
			char *memory = malloc(size);

			CHECK(memory);
			memset(memory, 1, size);
		}
	_exit(0);
}

static void on_step(int signal_number, siginfo_t *info, void *context)
{
	uintptr_t now = count_retired();
	int saved = errno;

	(void)signal_number, (void)info, (void)context;
	if (now == retired)
		return;
	retired = now;
	forks++;
	pid_t child = _Fork();

	CHECK(child >= 0);
	if (child == 0)
		survive();
	CHECK_EXITED(check_wait(child), 0);
	errno = saved;
}

static void retire(void)
{
	struct slab_cache *slabs = &cache.depot.slabs;
	struct slab_traits traits = {.name = "retired", .size = SIZE, .hardened = true};
	struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
	void *object;

	CHECK(magazine_create(&cache, &traits, 0, NULL));
	CHECK(slab_alloc_batch(slabs, &object, 1) == 1);
	first = page_of(object);
	while (page_front.map[first - 1] == page_id(object))
		first--;
	pages = slabs->pages;
	CHECK(pages > 2 && first + pages == page_front.heap_page + page_heap_pages());
	slab_free_batch(slabs, &object, 1);
	CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
	step_from_here();
	uint64_t allocated = slab_cache_close(slabs);

	step_to_here();
	CHECK(allocated == 0 && count_retired() == pages);
	CHECK(forks == pages, "%u forks for %zu pages", forks, (size_t)pages);
	heap_walk();
}

int main(void)
{
#ifndef __x86_64__
	check_skip("the trap flag is known here for x86-64 only");
#endif
	if (!check_hardened()) {
		/* Restartable sections cannot be stepped through. */
		check_again("hardened:1,vcpu:slot", NULL);
		return 0;
	}
	check_watchdog(60);
	free(malloc(1));
	retire();
	return 0;
}
