/* SPDX-License-Identifier: MIT */
/*
 * profile_restarts: successive heap profiles alternate between two sets of tables, so that a program that is
 * profiled again and again does not grow; and no profile begins in tables in which a thread is still
 * recording for an earlier one.  Each profile's counts are its own, and right, whichever thread is held up.
 */
#include "check.h"

#include <cpuslab/profile.h>
#include <sys/mman.h>

#include "profile/profile.h"
#include "single_step.h"

enum { THREADS = 3, PROFILES = 200, OBJECTS = 64, SIZE = 64 };

static size_t address_space(void)
{
	char text[64] = "";
	int file = open("/proc/self/statm", O_RDONLY);

	CHECK(file >= 0 && read(file, text, sizeof(text) - 1) > 0);
	close(file);
	return strtoul(text, NULL, 10);
}

static void start(void)
{
	profile.wanted = 1; /* so that each object is a sample */
	CHECK(profile_settle());
}

/* Objects of which only the address matters. */
static void allocate(uintptr_t number)
{
	profile_allocated(profile_choice(), (const void *)(number * SIZE), SIZE);
}

static void release(uintptr_t number)
{
	profile_freed((const void *)(number * SIZE));
}

static void tables_take_turns(void)
{
	start();
	start();
	size_t before = address_space();

	for (unsigned i = 0; i < PROFILES; i++) {
		start();
		CHECK(profile.samples == 0 && profile.tables->bytes_in_use == 0);
		for (unsigned n = 1; n <= OBJECTS; n++)
			allocate(n);
		CHECK(profile.samples == OBJECTS && profile.lost == 0);
		CHECK(profile.tables->bytes_in_use == (size_t)OBJECTS * SIZE, "%lu bytes",
		      profile.tables->bytes_in_use);
		if (i % 2)
			for (unsigned n = 1; n <= OBJECTS; n++)
				release(n);
	}
	CHECK(address_space() == before, "%zu pages more", address_space() - before);
}

/* As with a thread that is held up for three profiles. */
static void tables_in_use_stay(void)
{
	start();
	struct profile_tables *tables = profile_enter_tables();

	CHECK(tables == profile.tables);
	allocate(1);
	start();
	CHECK(profile.tables != tables && tables->bytes_in_use == SIZE);
	start();
	CHECK(profile.tables != tables && tables->bytes_in_use == SIZE);
	profile_leave_tables(tables);

	/* As with one that is held up for one. */
	start();
	tables = profile_enter_tables();
	allocate(1);
	start();
	CHECK(tables->bytes_in_use == SIZE);
	profile_leave_tables(tables);
	start();
	CHECK(profile.tables == tables && tables->bytes_in_use == 0);
}

static void locked_tables_are_emptied(void)
{
	for (unsigned i = 0; i < 2; i++) {
		start();
		if (mlock(profile.tables, sizeof(*profile.tables)) != 0)
			return;
		allocate(1);
	}
	start();
	CHECK(profile.tables->bytes_in_use == 0 && !profile_has((const void *)SIZE));
	CHECK(munlock(profile.tables, sizeof(*profile.tables)) == 0);
	CHECK(munlock(profile.retired, sizeof(*profile.retired)) == 0);
}

static unsigned steps, start_step;

static void on_step(int signal)
{
	(void)signal;
	if (steps++ == start_step)
		start();
}

/*
 * A profile starts after each instruction of a thread's entry.  The thread enters the new tables; or the old
 * ones, if the start noticed it and left them alone.
 */
static void entries_are_known(void)
{
	CHECK(signal(SIGTRAP, on_step) != SIG_ERR);
	for (start_step = 0; !start_step || start_step < steps; start_step++) {
		start();
		steps = 0;
		profile.tables->bytes_in_use = 1;
		step_from_here();
		struct profile_tables *tables = profile_enter_tables();

		step_to_here();
		CHECK(tables == profile.tables || tables->bytes_in_use == 1, "at step %u of %u", start_step,
		      steps);
		profile_leave_tables(tables);
		CHECK(tables->users == 0);
	}
}

/*
 * Of two threads that start profiles one may end the other's at any moment, which must not look like lack of
 * memory.
 */
static void *start_and_end(void *argument)
{
	for (unsigned i = 0; i < 5 * PROFILES; i++) {
		CHECK(cpuslab_profile_start(0) == 0);
		cpuslab_profile_stop();
	}
	return argument;
}

static void starts_meet(void)
{
	pthread_t other = check_thread(start_and_end, NULL);

	start_and_end(NULL);
	check_join(other);
}

static struct profile_site *ready_site(void)
{
	for (unsigned i = 0; i < PROFILE_SITES; i++)
		if (profile.tables->sites[i].ready)
			return &profile.tables->sites[i];
	return NULL;
}

/* A thread that has claimed a site is held up before it has filled it in, or is lost to a fork. */
static void claimed_sites_are_filled(void)
{
	const volatile uintptr_t last = 3; /* from a single call, which no compiler duplicates */
	struct profile_site *site = NULL;

	start();
	for (uintptr_t number = 1; number <= last; number++) {
		if (site)
			*site = (struct profile_site){.hash = site->hash, .allocated = site->allocated};
		allocate(number);
		CHECK(profile.tables->bytes_in_use == number * SIZE, "%lu bytes",
		      profile.tables->bytes_in_use);
		site = ready_site();
		CHECK(site && site->allocated == number && site->size == SIZE && site->frame_count);
	}
	for (uintptr_t number = 1; number <= last; number++)
		release(number);
	CHECK(profile.tables->bytes_in_use == 0, "%lu bytes", profile.tables->bytes_in_use);
}

static bool done;

static void *come_and_go(void *argument)
{
	uintptr_t first = 1 + (uintptr_t)argument * OBJECTS;

	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		for (unsigned i = 0; i < OBJECTS; i++)
			allocate(first + i);
		for (unsigned i = 0; i < OBJECTS; i++)
			release(first + i);
	}
	return NULL;
}

/* All bytes of a profile come from its own samples: none is left when all objects are freed. */
static void counts_are_each_profiles_own(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, come_and_go, (void *)i) == 0);
	for (unsigned i = 0; i < PROFILES; i++) {
		start();
		uint64_t bytes = __atomic_load_n(&profile.tables->bytes_in_use, __ATOMIC_RELAXED);

		CHECK(bytes <= (uint64_t)THREADS * OBJECTS * SIZE, "%lu bytes in use", bytes);
		sched_yield();
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(profile.tables->bytes_in_use == 0, "%lu bytes in use", profile.tables->bytes_in_use);
	CHECK(profile.tables->users == 0 && profile.retired->users == 0);
}

int main(void)
{
	check_watchdog(300);
	tables_take_turns();
	tables_in_use_stay();
	locked_tables_are_emptied();
	entries_are_known();
	claimed_sites_are_filled();
	counts_are_each_profiles_own();
	starts_meet();
	return 0;
}
