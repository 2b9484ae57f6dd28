/* SPDX-License-Identifier: MIT */
/*
 * magazine_looks: how often the words of several vCPUs are looked at as the heap grows, each time behind a
 * fence: at each MiB while the heap is small, then at every fourth occasion on which hoards go back.
 */
#include "two_vcpus.h"

#include "os/os.h"
#include "page/page.h"

enum { MIB = 1 << 20, OBJECT = 2000, SIZES = 16, STEP = 128 << 10, TICK = 100 };

struct fences {
	uint64_t all, beside_ticks; /* at least so many of them are not due to ticks */
};

/* Grows the heap to so many bytes; returns how many fences that took. */
static struct fences grow(uintptr_t bytes)
{
	static unsigned turn;
	uint64_t fences = vcpu_fences(), start = os_milliseconds();

	while (page_heap_pages() < bytes >> PAGE_SHIFT) {
		for (unsigned i = 0; i < STEP / OBJECT; i++)
			CHECK(malloc(OBJECT));
		/* A word that is loaded, and not used for a while. */
		free(malloc(200 + 100 * (size_t)(turn++ % SIZES)));
	}
	uint64_t ticks = (os_milliseconds() - start) / TICK + 1;

	fences = vcpu_fences() - fences;
	return (struct fences){fences, fences > ticks ? fences - ticks : 0};
}

int main(void)
{
	check_watchdog(60);
	free(malloc(1));
	if (vcpu_mode() == CPUSLAB_VCPU_THREAD_SLOT)
		check_skip("slots of threads need no fences");
	two_vcpus();
	if (vcpu_areas() < 2)
		check_skip("one vCPU");
	struct fences first = grow((uintptr_t)7 * MIB);
	/* Out of some 31: eight by each MiB up to 16, then by each 16th. */
	(void)grow((uintptr_t)8 * MIB);
	struct fences then = grow((uintptr_t)64 * MIB);

	printf("%llu fences to 7 MiB, %llu from 8 to 64 MiB\n", (unsigned long long)first.all,
	       (unsigned long long)then.all);
	/*
	 * A slow machine may have more, by ticks.  On a busy one this thread may stay on its vCPU: once the
	 * other one's words are empty, looks there need no fence.
	 */
	CHECK(first.all >= 1, "%llu", (unsigned long long)first.all);
	CHECK(then.all >= 1 && then.beside_ticks <= 12, "%llu, %llu beside ticks",
	      (unsigned long long)then.all, (unsigned long long)then.beside_ticks);
	return 0;
}
