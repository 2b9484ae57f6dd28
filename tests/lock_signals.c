/* SPDX-License-Identifier: MIT */
/*
 * Signals without SA_RESTART rain on the waiters: no wait may end early, none may be forgotten, errno stays.
 */
#include "check.h"

#include <cpuslab/lock.h>

#include <time.h>

enum { THREADS = 6 };

static struct cpuslab_pagelock page;
static struct cpuslab_spinlock spin;
static struct cpuslab_mcs mcs;
static unsigned long signals_seen, in_page, in_spin, in_mcs, timeouts;
static bool stop;

static void count_signal(int number)
{
	(void)number;
	__atomic_fetch_add(&signals_seen, 1, __ATOMIC_RELAXED);
}

static struct timespec now(void)
{
	struct timespec time;

	CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
	return time;
}

static void *wait_and_hold(void *argument)
{
	uint64_t random = (uintptr_t)argument + 1;

	errno = 0;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct cpuslab_mcs_node node;

		cpuslab_spin_lock(&spin);
		CHECK(in_spin++ == 0);
		sched_yield();
		in_spin--;
		cpuslab_spin_unlock(&spin);

		cpuslab_mcs_lock(&mcs, &node);
		CHECK(in_mcs++ == 0);
		in_mcs--;
		cpuslab_mcs_unlock(&mcs, &node);

		struct timespec deadline = now();
		deadline.tv_nsec += (long)check_below(&random, 200000);
		if (deadline.tv_nsec >= 1000000000) {
			deadline.tv_nsec -= 1000000000;
			deadline.tv_sec++;
		}
		int status = cpuslab_pagelock_timedlock(&page, &deadline);
		if (status == 0) {
			CHECK(in_page++ == 0);
			if (check_below(&random, 4) == 0)
				sched_yield();
			in_page--;
			cpuslab_pagelock_unlock(&page);
		} else {
			struct timespec then = now();

			CHECK(status == ETIMEDOUT, "%d", status);
			CHECK(then.tv_sec > deadline.tv_sec ||
				      (then.tv_sec == deadline.tv_sec && then.tv_nsec >= deadline.tv_nsec),
			      "timed out early");
			__atomic_fetch_add(&timeouts, 1, __ATOMIC_RELAXED);
		}
		CHECK(cpuslab_pagelock_wait_unlocked(&page, NULL) == 0);
	}
	CHECK(errno == 0);
	return NULL;
}

int main(void)
{
	struct sigaction action = {.sa_handler = count_signal};
	pthread_t threads[THREADS];

	check_watchdog(100);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		threads[i] = check_thread(wait_and_hold, (void *)i);
	unsigned long storm = check_rounds(20000, 2000000, 500);
	for (unsigned long i = 0; i < storm; i++) {
		pthread_kill(threads[i % THREADS], SIGUSR1);
		if (i % 8 == 0)
			sched_yield();
	}

	/* One wait that can only end by its deadline, and one that can only end by an unlock. */
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		check_join(threads[i]);
	CHECK(page.byte == 0 && !cpuslab_spin_is_locked(&spin) && !cpuslab_mcs_is_locked(&mcs));
	CHECK(signals_seen > 0);
	dprintf(STDOUT_FILENO, "%lu signals seen, %lu timeouts\n", signals_seen, timeouts);
	return 0;
}
