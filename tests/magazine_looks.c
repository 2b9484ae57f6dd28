/* SPDX-License-Identifier: MIT */
/*
 * magazine_looks: how often the words of several vCPUs are looked at as the heap grows, each time behind a
 * fence: at each MiB while it is small, then at each fourth of the times that what is hoarded goes back.
 */
#include "check.h"

#include "os/os.h"
#include "page/page.h"
#include "vcpu/vcpu.h"

enum { MIB = 1 << 20, OBJECT = 2000, SIZES = 16, STEP = 128 << 10, TICK = 100 };

static bool stop;

static void *stay_on_a_vcpu(void *unused)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		free(malloc(100 + check_mode()[0] % 2));
	return unused;
}

/* Two threads at once are on two vCPUs, whichever way those are told. */
static void make_areas(void)
{
	pthread_t other = check_thread(stay_on_a_vcpu, NULL);

	for (int i = 0; i < 10000 && vcpu_areas() < 2; i++) {
		free(malloc(1000));
		usleep(100);
		for (int spin = 0; spin < 100000; spin++)
			free(malloc((size_t)(16 + spin % 1000)));
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	check_join(other);
}

/* Grows the heap to so many bytes; returns how many fences that took, less those of ticks. */
static uint64_t grow(uintptr_t bytes)
{
	static unsigned turn;
	uint64_t fences = vcpu_fences(), start = os_milliseconds();

	while (page_heap_pages() < bytes >> PAGE_SHIFT) {
		for (unsigned i = 0; i < STEP / OBJECT; i++)
			CHECK(malloc(OBJECT));
		/* A word that something is on, and that nobody comes to for a while. */
		free(malloc(200 + 100 * (size_t)(turn++ % SIZES)));
	}
	uint64_t ticks = (os_milliseconds() - start) / TICK + 1;

	fences = vcpu_fences() - fences;
	return fences > ticks ? fences - ticks : 0;
}

int main(void)
{
	check_watchdog(60);
	free(malloc(1));
	if (vcpu_mode() == CPUSLAB_VCPU_THREAD_SLOT)
		check_skip("slots of threads need no fences");
	make_areas();
	if (vcpu_areas() < 2)
		check_skip("one vCPU");
	uint64_t first = grow((uintptr_t)7 * MIB);
	/* Of some 31 times: eight by each MiB up to 16, then by each 16th. */
	(void)grow((uintptr_t)8 * MIB);
	uint64_t then = grow((uintptr_t)64 * MIB);

	printf("%llu fences to 7 MiB, %llu from 8 to 64 MiB\n", (unsigned long long)first,
	       (unsigned long long)then);
	CHECK(first >= 3);
	CHECK(then >= 4 && then <= 12);
	return 0;
}
