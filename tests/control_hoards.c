/* SPDX-License-Identifier: MIT */
/*
 * decay and dirty at every level: after bursts of small objects, which return often enough for depots to keep
 * them, a tick leaves nothing free and resident with decay:0, be it in magazines, depots, slabs or pages, and
 * no more than N in depots with dirty:N.  Set from the start, or while the program runs.
 */
#include "check.h"

enum { OBJECTS = 60000, MIB = 1 << 20 };

static void *object[OBJECTS];

/* About 30 MiB. */
static void burst(size_t count)
{
	for (size_t i = 0; i < count; i++) {
		size_t size = 100 + i * 37 % 900;

		CHECK((object[i] = malloc(size)));
		memset(object[i], 1, size);
	}
	for (size_t i = 0; i < count; i++)
		free(object[i]);
}

/* Free and resident, but for what a slab that is in use has left over. */
static size_t hoarded(void)
{
	struct mallinfo2 information = mallinfo2();

	return information.fsmblks + information.keepcost;
}

/* One tick, and some calls that continue what it began. */
static void pass_time(void)
{
	usleep(110000);
	for (int i = 0; i < 16; i++)
		free(malloc(50000));
}

static void *in_thread(void *unused)
{
	burst(OBJECTS);
	return unused;
}

static void bursts(void)
{
	pthread_t thread;

	for (int i = 0; i < 5; i++)
		burst(OBJECTS);
	CHECK(!pthread_create(&thread, NULL, in_thread, NULL) && !pthread_join(thread, NULL));
}

int main(void)
{
	check_watchdog(60);
	if (!check_cpuslab())
		return CHECK_SKIPPED;
	CHECK(cpuslab_ctl("decay", "3600000") == 0 && cpuslab_ctl("dirty", "1G") == 0);
	bursts();
	CHECK(hoarded() > 8 * MIB, "%zu", hoarded());
	CHECK(cpuslab_ctl("dirty", "4M") == 0);
	bursts();
	pass_time();
	CHECK(hoarded() <= 5 * MIB, "dirty: %zu", hoarded());
	CHECK(cpuslab_ctl("dirty", "1G") == 0);
	bursts();
	CHECK(cpuslab_ctl("decay", "0") == 0);
	bursts();
	pass_time();
	CHECK(hoarded() <= MIB, "decay: %zu", hoarded());
	return 0;
}
