/* SPDX-License-Identifier: MIT */
/*
 * No waiter starves: a page lock is handed to a waiter that has lost the agreed number of races.
 *
 * A hog retakes the lock as soon as it has released it; one waiter wants it too.  Each unlock of the hog with
 * the waiters bit set owes somebody the lock or wakes somebody: between two turns of the waiter there may be
 * at most one more of them than races may be lost, whatever the scheduler does.  The figure printed is the
 * total number of times that the hog passed while the waiter waited.
 *
 * An MCS lock serves in order of arrival.
 */
#include "check.h"

#include <cpuslab/lock.h>

enum { CROWD = 8 };

static struct cpuslab_pagelock lock;
static bool stop;
static unsigned long waits; /* 1 while the waiter is in lock; only the waiter writes it */
static unsigned long unlocks_owed, unlocks_owed_most, passed, passed_most;

static void *hog(void *argument)
{
	(void)argument;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		cpuslab_pagelock_lock(&lock);
		/* Under the lock: only its owner can start an unlock that counts. */
		if (__atomic_load_n(&waits, __ATOMIC_RELAXED))
			passed++;
		if (__atomic_load_n(&lock.byte, __ATOMIC_RELAXED) & CPUSLAB_PAGELOCK_WAITERS)
			unlocks_owed++;
		cpuslab_pagelock_unlock(&lock);
	}
	return NULL;
}

static void against_a_hog(unsigned races)
{
	unsigned long turns = check_rounds(2000, 200000, 100);
	pthread_t thread;

	stop = false;
	unlocks_owed_most = passed_most = 0;
	cpuslab_pagelock_set_unfairness(races);
	thread = check_thread(hog, NULL);
	for (unsigned long turn = 0; turn < turns; turn++) {
		__atomic_store_n(&waits, 1, __ATOMIC_RELAXED);
		cpuslab_pagelock_lock(&lock);
		__atomic_store_n(&waits, 0, __ATOMIC_RELAXED);
		if (unlocks_owed > unlocks_owed_most)
			unlocks_owed_most = unlocks_owed;
		if (passed > passed_most)
			passed_most = passed;
		unlocks_owed = passed = 0;
		cpuslab_pagelock_unlock(&lock);
		if (turn % 8 == 0)
			usleep(50);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	check_join(thread);
	dprintf(STDOUT_FILENO,
		"%u races may be lost: %lu turns, at most %lu unlocks with the waiter queued, passed at most "
		"%lu times\n",
		races, turns, unlocks_owed_most, passed_most);
	CHECK(unlocks_owed_most <= races + 1, "%lu", unlocks_owed_most);
}

/* All threads make progress, even with more hogs than CPUs and nobody but hogs. */
static unsigned long target;

static void *crowd_member(void *argument)
{
	unsigned long *mine = argument;

	while (*mine < target) {
		cpuslab_pagelock_lock(&lock);
		++*mine;
		cpuslab_pagelock_unlock(&lock);
	}
	return NULL;
}

static void crowd(void)
{
	pthread_t threads[CROWD];
	unsigned long done[CROWD] = {0};

	target = check_rounds(20000, 2000000, 500);
	for (int i = 0; i < CROWD; i++)
		threads[i] = check_thread(crowd_member, &done[i]);
	for (int i = 0; i < CROWD; i++)
		check_join(threads[i]);
	CHECK(lock.byte == 0);
}

/* ---- first come, first served ---------------------------------------------------------------------- */

static struct cpuslab_mcs mcs;
static unsigned served;

static void *stand_in_line(void *argument)
{
	unsigned place = (unsigned)(uintptr_t)argument;
	struct cpuslab_mcs_node node;

	cpuslab_mcs_lock(&mcs, &node);
	CHECK(served == place, "place %u served as %u", place, served);
	served++;
	cpuslab_mcs_unlock(&mcs, &node);
	return NULL;
}

static void in_order(void)
{
	unsigned long lines = check_rounds(50, 5000, 5);

	while (lines-- > 0) {
		struct cpuslab_mcs_node node;
		pthread_t threads[CROWD];

		served = 0;
		cpuslab_mcs_lock(&mcs, &node);
		struct cpuslab_mcs_node *last = &node;
		for (uintptr_t i = 0; i < CROWD; i++) {
			threads[i] = check_thread(stand_in_line, (void *)i);
			while (__atomic_load_n(&mcs.tail, __ATOMIC_ACQUIRE) == last)
				sched_yield();
			last = mcs.tail;
		}
		cpuslab_mcs_unlock(&mcs, &node);
		for (int i = 0; i < CROWD; i++)
			check_join(threads[i]);
		CHECK(served == CROWD && !cpuslab_mcs_is_locked(&mcs));
	}
}

/* If no race may be lost, page-lock waiters are served in the order in which they queued. */
static pid_t newest;

static void *stand_in_page_line(void *argument)
{
	unsigned place = (unsigned)(uintptr_t)argument;

	__atomic_store_n(&newest, gettid(), __ATOMIC_RELEASE);
	cpuslab_pagelock_lock(&lock);
	CHECK(served == place, "place %u served as %u", place, served);
	served++;
	cpuslab_pagelock_unlock(&lock);
	return NULL;
}

static void in_page_order(void)
{
	pthread_t threads[CROWD];

	cpuslab_pagelock_set_unfairness(0);
	served = 0;
	cpuslab_pagelock_lock(&lock);
	for (uintptr_t i = 0; i < CROWD; i++) {
		threads[i] = check_thread(stand_in_page_line, (void *)i);
		check_until_asleep(&newest); /* it has queued before */
	}
	cpuslab_pagelock_unlock(&lock);
	for (int i = 0; i < CROWD; i++)
		check_join(threads[i]);
}

int main(void)
{
	check_watchdog(100);
	against_a_hog(0);
	against_a_hog(1);
	against_a_hog(CPUSLAB_PAGELOCK_UNFAIRNESS);
	crowd();
	in_order();
	in_page_order();
	return 0;
}
