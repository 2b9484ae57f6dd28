/* SPDX-License-Identifier: MIT */
/*
 * Fork while threads contend: in the child, which has one thread, holders and waiters of locks do not exist.
 * After a reset the locks must work, with contending threads of the child's own; a page lock that merely had
 * waiters must work without a reset; and the queues of the parent's waiters must be empty, guards included.
 */
#include "check.h"

#include <cpuslab/lock.h>

enum { THREADS = 4, CHILD_THREADS = 2, PAGES = 64 };

static struct cpuslab_spinlock spin;
static struct cpuslab_mcs mcs;
/* Many, so that at a fork locks are in every state, and many queues are in use. */
static struct cpuslab_pagelock page[PAGES];
/* Only the forking thread ever owns this one. */
static struct cpuslab_pagelock mine;
static bool stop;
/*
 * Threads that have reached their own code.  No fork before all have: a thread that starts under
 * AddressSanitizer allocates from the sanitizer's heap, whose lock version 12 does not handle across a fork.
 * A child inherited it held and hung in the first thread that it started (seen in gdb, in
 * SizeClassAllocator64's mutex).
 */
static unsigned running;
static unsigned long spin_turns, mcs_turns, page_turns[PAGES];

static void turn(uint64_t *random)
{
	struct cpuslab_mcs_node node;
	size_t which = check_below(random, PAGES);

	cpuslab_pagelock_lock(&page[which]);
	page_turns[which]++;
	if (check_below(random, 4) == 0)
		sched_yield();
	cpuslab_pagelock_unlock(&page[which]);
	cpuslab_pagelock_lock(&page[0]);
	page_turns[0]++;
	cpuslab_pagelock_unlock(&page[0]);
	cpuslab_spin_lock(&spin);
	spin_turns++;
	if (check_below(random, 16) == 0)
		sched_yield();
	cpuslab_spin_unlock(&spin);
	cpuslab_mcs_lock(&mcs, &node);
	mcs_turns++;
	cpuslab_mcs_unlock(&mcs, &node);
}

static void *contend(void *argument)
{
	uint64_t random = (uintptr_t)argument + 1;
	struct timespec past = {0, 0};

	__atomic_fetch_add(&running, 1, __ATOMIC_RELAXED);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		turn(&random);
		cpuslab_pagelock_wait_unlocked(&mine, &past);
	}
	return NULL;
}

static void *wait_for_mine(void *argument)
{
	(void)argument;
	__atomic_fetch_add(&running, 1, __ATOMIC_RELAXED);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		CHECK(cpuslab_pagelock_wait_unlocked(&mine, NULL) == 0);
	return NULL;
}

static void *some_turns(void *argument)
{
	uint64_t random = (uintptr_t)argument + 7;

	for (int i = 0; i < 50; i++)
		turn(&random);
	return NULL;
}

static void child(void)
{
	pthread_t threads[CHILD_THREADS + 1];

	check_watchdog(60);
	/* Held by this thread across the fork, with waiters that do not exist here. */
	CHECK(cpuslab_pagelock_is_locked(&mine));
	cpuslab_pagelock_unlock(&mine);
	CHECK(cpuslab_pagelock_trylock(&mine));
	CHECK(!(mine.byte & CPUSLAB_PAGELOCK_WAITERS), "a stale waiters bit outlived its first owner");
	cpuslab_pagelock_unlock(&mine);
	CHECK(mine.byte == 0);

	cpuslab_spin_reset(&spin);
	cpuslab_mcs_reset(&mcs);
	for (int i = 0; i < PAGES; i++)
		cpuslab_pagelock_reset(&page[i]);
	for (int i = 0; i < CHILD_THREADS; i++)
		threads[i] = check_thread(some_turns, (void *)(intptr_t)i);
	some_turns(NULL);
	for (int i = 0; i < CHILD_THREADS; i++)
		check_join(threads[i]);
	CHECK(!cpuslab_spin_is_locked(&spin) && !cpuslab_mcs_is_locked(&mcs));
	for (int i = 0; i < PAGES; i++)
		CHECK(page[i].byte == 0, "%#x", page[i].byte);
	_exit(0);
}

int main(void)
{
	pthread_t threads[THREADS + 1];

	check_watchdog(100);
	for (uintptr_t i = 0; i < THREADS; i++)
		threads[i] = check_thread(contend, (void *)i);
	cpuslab_pagelock_lock(&mine);
	threads[THREADS] = check_thread(wait_for_mine, NULL);
	while (__atomic_load_n(&running, __ATOMIC_RELAXED) <= THREADS)
		sched_yield();
	unsigned long forks = check_rounds(150, 20000, 10);
	for (unsigned long i = 0; i < forks; i++) {
		while (i % 4 == 0 &&
		       !(__atomic_load_n(&mine.byte, __ATOMIC_RELAXED) & CPUSLAB_PAGELOCK_WAITERS))
			sched_yield();
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			child();
		CHECK_EXITED(check_wait(pid), 0);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	cpuslab_pagelock_unlock(&mine);
	for (int i = 0; i <= THREADS; i++)
		check_join(threads[i]);
	for (int i = 0; i < PAGES; i++)
		CHECK(page[i].byte == 0);
	return 0;
}
