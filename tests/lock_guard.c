/* SPDX-License-Identifier: MIT */
/*
 * A thread that holds a queue's guard, or a signal handler that has interrupted such a thread, may take and
 * release a page lock of that queue without waiting for anybody: WAITERS is set only under the guard, so that
 * the unlock finds nobody to wake, however many others have come for the lock meanwhile.  Those others get it
 * later.
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

/* Over all these turns some threads get as far as the guard, and some still look for a free lock. */
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
		/* If it had to wake somebody, it would wait for itself here. */
		cpuslab_pagelock_unlock(&page);
		cpuslab_spin_unlock(guard);
		for (unsigned i = 0; i < THREADS; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
	}
	CHECK(page.byte == 0, "%#x is left", page.byte);
	return 0;
}
