/* SPDX-License-Identifier: MIT */
/*
 * Whoever has a queue's guard, or has interrupted the thread that has it as a signal handler does, may take
 * and release a pagelock of that queue without waiting for anybody: WAITERS is set under the guard alone, so
 * that the unlock finds nobody to wake, however many others have come for the lock meanwhile.  Whoever came
 * gets it.
 */
#include "check.h"

#include "lock/lock.h"

enum { THREADS = 3, TURNS = 200 };

static struct cpuslab_pagelock page;
static unsigned come, inside;

static void *take(void *unused)
{
	(void)unused;
	__atomic_fetch_add(&come, 1, __ATOMIC_RELEASE);
	cpuslab_pagelock_lock(&page);
	CHECK(inside++ == 0);
	inside--;
	cpuslab_pagelock_unlock(&page);
	return NULL;
}

/* In all of these turns some come to the guard, and some still look for a free lock. */
static void let_others_come(unsigned turn)
{
	while (__atomic_load_n(&come, __ATOMIC_ACQUIRE) < THREADS)
		sched_yield();
	usleep(turn % 10 * 100);
}

int main(void)
{
	for (unsigned turn = 0; turn < TURNS; turn++) {
		pthread_t threads[THREADS];
		struct cpuslab_spinlock *guard = pagelock_guard(&page.byte);

		come = 0;
		cpuslab_spin_lock(guard);
		CHECK(cpuslab_pagelock_trylock(&page));
		inside++;
		for (unsigned i = 0; i < THREADS; i++)
			CHECK(pthread_create(&threads[i], NULL, take, NULL) == 0);
		let_others_come(turn);
		inside--;
		/* Here one that had to wake somebody would wait for itself. */
		cpuslab_pagelock_unlock(&page);
		cpuslab_spin_unlock(guard);
		for (unsigned i = 0; i < THREADS; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
	}
	CHECK(page.byte == 0, "%#x is left", page.byte);
	return 0;
}
