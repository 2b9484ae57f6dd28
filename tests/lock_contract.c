/* SPDX-License-Identifier: MIT */
/*
 * What each call promises, one after the other: results, deadlines, flags, errno; and mutual exclusion with
 * more threads than CPUs, while user flags are flipped.
 */
#include "check.h"

#include <cpuslab/lock.h>

#include <time.h>

#include "lock/lock.h"

enum { THREADS = 16, FLAG_A = 0x02, FLAG_B = 0x40 };

static struct timespec from_now(long milliseconds)
{
	struct timespec time;

	CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
	long nanoseconds = time.tv_nsec + milliseconds % 1000 * 1000000;
	time.tv_sec += milliseconds / 1000 + nanoseconds / 1000000000;
	time.tv_nsec = nanoseconds % 1000000000;
	return time;
}

static bool is_past(struct timespec deadline)
{
	struct timespec now = from_now(0);

	return now.tv_sec > deadline.tv_sec ||
	       (now.tv_sec == deadline.tv_sec && now.tv_nsec >= deadline.tv_nsec);
}

/* ---- one thread ------------------------------------------------------------------------------------ */

static void spinlock_alone(void)
{
	struct cpuslab_spinlock lock = CPUSLAB_SPINLOCK_INITIALIZER,
				demoting = CPUSLAB_SPINLOCK_INITIALIZER_DEMOTE;

	CHECK(!cpuslab_spin_is_locked(&lock));
	cpuslab_spin_lock(&lock);
	CHECK(cpuslab_spin_is_locked(&lock) && !cpuslab_spin_trylock(&lock));
	cpuslab_spin_assert_held(&lock);
	cpuslab_spin_unlock(&lock);
	CHECK(cpuslab_spin_trylock(&lock));
	cpuslab_spin_reset(&lock);
	CHECK(!cpuslab_spin_is_locked(&lock));

	cpuslab_spin_lock(&demoting);
	cpuslab_spin_unlock(&demoting);
	CHECK(!cpuslab_spin_is_locked(&demoting) && demoting.attention == CPUSLAB_SPIN_DEMOTE);
	cpuslab_spin_lock(&demoting);
	demoting.attention |= CPUSLAB_SPIN_PARKED;
	cpuslab_spin_reset(&demoting);
	CHECK(!cpuslab_spin_is_locked(&demoting) && demoting.attention == CPUSLAB_SPIN_DEMOTE);
}

static void mcs_alone(void)
{
	struct cpuslab_mcs lock = CPUSLAB_MCS_INITIALIZER;
	struct cpuslab_mcs_node node, other;

	cpuslab_mcs_lock(&lock, &node);
	CHECK(cpuslab_mcs_is_locked(&lock) && !cpuslab_mcs_trylock(&lock, &other));
	cpuslab_mcs_unlock(&lock, &node);
	CHECK(!cpuslab_mcs_is_locked(&lock) && cpuslab_mcs_trylock(&lock, &other));
	cpuslab_mcs_unlock(&lock, &other);
	CHECK(!cpuslab_mcs_is_locked(&lock));
}

static void pagelock_alone(void)
{
	struct cpuslab_pagelock lock = CPUSLAB_PAGELOCK_INITIALIZER;
	struct timespec past = {0, 0}, bad = {0, 1000000000}, negative = {0, -1}, before_time = {-1, 0};

	for (unsigned flags = 0; flags < 128; flags += 2) {
		cpuslab_pagelock_init(&lock, (uint8_t)flags);
		cpuslab_pagelock_lock(&lock);
		CHECK(lock.byte == (flags | 1) && !cpuslab_pagelock_trylock(&lock));
		cpuslab_pagelock_assert_held(&lock);
		cpuslab_pagelock_unlock(&lock);
		CHECK(lock.byte == flags);
		cpuslab_pagelock_lock_expecting(&lock, (uint8_t)flags);
		CHECK(lock.byte == (flags | 1));
		cpuslab_pagelock_unlock_flip(&lock, FLAG_A);
		CHECK(lock.byte == (flags ^ FLAG_A) && cpuslab_pagelock_trylock(&lock));
		cpuslab_pagelock_unlock(&lock);
	}
	/* Bits that are not the user's stay the lock's, whatever the user passes. */
	cpuslab_pagelock_init(&lock, 0xff);
	CHECK(lock.byte == CPUSLAB_PAGELOCK_FLAGS);
	cpuslab_pagelock_clear_flags(&lock, 0xff);
	cpuslab_pagelock_lock(&lock);
	cpuslab_pagelock_set_flags(&lock, 0xff);
	CHECK(lock.byte == (CPUSLAB_PAGELOCK_FLAGS | 1) &&
	      cpuslab_pagelock_flags(&lock) == CPUSLAB_PAGELOCK_FLAGS);
	cpuslab_pagelock_flip_flags(&lock, 0xff);
	CHECK(lock.byte == 1);
	cpuslab_pagelock_unlock_flip(&lock, 0xff);
	CHECK(lock.byte == CPUSLAB_PAGELOCK_FLAGS);
	cpuslab_pagelock_init(&lock, 0);

	/* A free lock is taken whatever the deadline; a held one is refused at once if it is past. */
	CHECK(cpuslab_pagelock_timedlock(&lock, &past) == 0);
	CHECK(cpuslab_pagelock_timedlock(&lock, &past) == ETIMEDOUT && lock.byte == 1);
	CHECK(cpuslab_pagelock_timedlock(&lock, &before_time) == ETIMEDOUT && lock.byte == 1);
	CHECK(cpuslab_pagelock_timedlock(&lock, &bad) == EINVAL);
	CHECK(cpuslab_pagelock_timedlock(&lock, &negative) == EINVAL);
	struct timespec soon = from_now(20);
	CHECK(cpuslab_pagelock_timedlock(&lock, &soon) == ETIMEDOUT && is_past(soon) && lock.byte == 1);
	soon = from_now(20);
	CHECK(cpuslab_pagelock_wait_unlocked(&lock, &soon) == ETIMEDOUT && is_past(soon) && lock.byte == 1);
	cpuslab_pagelock_unlock(&lock);
	CHECK(cpuslab_pagelock_wait_unlocked(&lock, NULL) == 0 && lock.byte == 0);
	CHECK(cpuslab_pagelock_wait(&lock, 0, 0, NULL) == EINVAL);
	CHECK(cpuslab_pagelock_wait(&lock, 0x80, 0, NULL) == EINVAL);
	CHECK(cpuslab_pagelock_wait(&lock, FLAG_A, 0, &bad) == EINVAL);
	soon = from_now(5);
	CHECK(cpuslab_pagelock_wait(&lock, FLAG_A, 0, &soon) == ETIMEDOUT && lock.byte == 0);
	CHECK(cpuslab_pagelock_wait(&lock, FLAG_A, FLAG_A, NULL) == 0);

	/*
	 * The holder of the waiters' guard may be about to take the lock: trylock fails rather than wait for
	 * it.
	 */
	lock.byte = CPUSLAB_PAGELOCK_WAITERS | FLAG_B;
	cpuslab_spin_lock(pagelock_guard(&lock.byte));
	CHECK(!cpuslab_pagelock_trylock(&lock) && lock.byte == (CPUSLAB_PAGELOCK_WAITERS | FLAG_B));
	cpuslab_spin_unlock(pagelock_guard(&lock.byte));

	/* A waiters bit without a waiter (a forked child's) is cleared by the next owner. */
	lock.byte = CPUSLAB_PAGELOCK_WAITERS | FLAG_B;
	CHECK(cpuslab_pagelock_trylock(&lock) && lock.byte == (FLAG_B | 1));
	cpuslab_pagelock_unlock(&lock);
	lock.byte = CPUSLAB_PAGELOCK_WAITERS | FLAG_B;
	cpuslab_pagelock_lock(&lock);
	CHECK(lock.byte == (FLAG_B | 1));
	lock.byte |= CPUSLAB_PAGELOCK_WAITERS;
	cpuslab_pagelock_unlock(&lock);
	CHECK(lock.byte == (CPUSLAB_PAGELOCK_WAITERS | FLAG_B), "a waker that found nobody touched the byte");
	cpuslab_pagelock_reset(&lock);
	CHECK(lock.byte == FLAG_B);
}

/* ---- watchers -------------------------------------------------------------------------------------- */

static struct cpuslab_pagelock watched;

struct watch {
	uint8_t mask, seen;
	pid_t id;
};

static void *watch(void *argument)
{
	struct watch *what = argument;

	__atomic_store_n(&what->id, gettid(), __ATOMIC_RELEASE);
	CHECK(cpuslab_pagelock_wait(&watched, what->mask, what->seen, NULL) == 0);
	return NULL;
}

static void watchers(void)
{
	struct watch unlocked = {.mask = CPUSLAB_PAGELOCK_LOCKED, .seen = CPUSLAB_PAGELOCK_LOCKED};
	struct watch either = {.mask = FLAG_B | CPUSLAB_PAGELOCK_LOCKED, .seen = CPUSLAB_PAGELOCK_LOCKED};
	struct watch flag = {.mask = FLAG_A};
	pthread_t threads[3];

	/* An unlock is noticed even if the lock is retaken at once. */
	cpuslab_pagelock_lock(&watched);
	threads[0] = check_thread(watch, &unlocked);
	threads[1] = check_thread(watch, &either);
	check_until_asleep(&unlocked.id);
	check_until_asleep(&either.id);
	cpuslab_pagelock_unlock(&watched);
	cpuslab_pagelock_lock(&watched);
	check_join(threads[0]);
	check_join(threads[1]);
	CHECK(watched.byte == 1);

	/* Flags: each way of changing them; another thread's unlock alone changes none. */
	for (int way = 0; way < 4; way++) {
		cpuslab_pagelock_init(&watched, way == 1 ? FLAG_A : 0);
		cpuslab_pagelock_lock(&watched);
		flag.seen = way == 1 ? FLAG_A : 0;
		threads[0] = check_thread(watch, &flag);
		check_until_asleep(&flag.id);
		if (way == 0)
			cpuslab_pagelock_set_flags(&watched, FLAG_A);
		else if (way == 1)
			cpuslab_pagelock_clear_flags(&watched, FLAG_A);
		else if (way == 2)
			cpuslab_pagelock_flip_flags(&watched, FLAG_A);
		else
			cpuslab_pagelock_unlock_flip(&watched, FLAG_A);
		check_join(threads[0]);
		if (way != 3)
			cpuslab_pagelock_unlock(&watched);
		CHECK(watched.byte == (way == 1 ? 0 : FLAG_A));
	}

	/* A watcher for a flag stays while others lock and unlock past it. */
	cpuslab_pagelock_init(&watched, 0);
	flag.seen = 0;
	threads[0] = check_thread(watch, &flag);
	check_until_asleep(&flag.id);
	for (int i = 0; i < 1000; i++) {
		cpuslab_pagelock_lock(&watched);
		CHECK(watched.byte & CPUSLAB_PAGELOCK_WAITERS);
		cpuslab_pagelock_unlock(&watched);
	}
	cpuslab_pagelock_set_flags(&watched, FLAG_A);
	check_join(threads[0]);
	CHECK(watched.byte == FLAG_A);

	/* One that waits for the lock to be taken. */
	cpuslab_pagelock_init(&watched, 0);
	struct watch taken = {.mask = CPUSLAB_PAGELOCK_LOCKED};
	threads[0] = check_thread(watch, &taken);
	check_until_asleep(&taken.id);
	cpuslab_pagelock_lock(&watched);
	check_join(threads[0]);
	cpuslab_pagelock_unlock(&watched);
	CHECK(watched.byte == 0);
}

/* ---- many threads ---------------------------------------------------------------------------------- */

static struct {
	struct cpuslab_spinlock spin;
	struct cpuslab_pagelock page;
	struct cpuslab_mcs mcs;
	unsigned long by_spin, by_page, by_mcs, page_failures;
} shared;

static unsigned long rounds;

static void *contend(void *argument)
{
	uint64_t random = (uintptr_t)argument * 2 + 1;

	errno = 4711;
	for (unsigned long i = 0; i < rounds; i++) {
		struct cpuslab_mcs_node node;
		bool yields = check_below(&random, 64) == 0;

		cpuslab_spin_lock(&shared.spin);
		shared.by_spin++;
		if (yields)
			sched_yield();
		cpuslab_spin_unlock(&shared.spin);

		struct timespec deadline = from_now((long)check_below(&random, 2));
		bool taken = true;
		switch (check_below(&random, 4)) {
		case 0:
			taken = cpuslab_pagelock_trylock(&shared.page);
			break;
		case 1:
			taken = cpuslab_pagelock_timedlock(&shared.page, &deadline) == 0;
			break;
		default:
			cpuslab_pagelock_lock(&shared.page);
		}
		if (taken) {
			shared.by_page++;
			if (yields)
				sched_yield();
			if (check_below(&random, 2))
				cpuslab_pagelock_unlock_flip(&shared.page, FLAG_A);
			else
				cpuslab_pagelock_unlock(&shared.page);
		} else {
			__atomic_fetch_add(&shared.page_failures, 1, __ATOMIC_RELAXED);
		}
		cpuslab_pagelock_flip_flags(&shared.page, FLAG_B);

		if (i % 16 == 0) {
			cpuslab_mcs_lock(&shared.mcs, &node);
			shared.by_mcs++;
			cpuslab_mcs_unlock(&shared.mcs, &node);
		}
	}
	CHECK(errno == 4711, "a lock changed errno");
	return NULL;
}

static void crowd(void)
{
	pthread_t threads[THREADS];

	rounds = check_rounds(2000, 400000, 100) / 2 * 2;
	for (uintptr_t i = 0; i < THREADS; i++)
		threads[i] = check_thread(contend, (void *)i);
	for (int i = 0; i < THREADS; i++)
		check_join(threads[i]);
	CHECK(shared.by_spin == THREADS * rounds, "%lu", shared.by_spin);
	CHECK(shared.by_page + shared.page_failures == THREADS * rounds, "%lu", shared.by_page);
	CHECK(shared.by_mcs == THREADS * ((rounds + 15) / 16), "%lu", shared.by_mcs);
	/* FLAG_B was flipped an even number of times, and nobody waits any more. */
	CHECK((shared.page.byte & ~FLAG_A) == 0, "%#x", shared.page.byte);
	CHECK(!cpuslab_spin_is_locked(&shared.spin) && !cpuslab_mcs_is_locked(&shared.mcs));
}

int main(void)
{
	check_watchdog(100);
	errno = 17;
	spinlock_alone();
	mcs_alone();
	pagelock_alone();
	CHECK(errno == 17, "a lock changed errno");
	watchers();
	crowd();
	for (unsigned races = 0; races < 3; races++) {
		memset(&shared, 0, sizeof shared);
		cpuslab_pagelock_set_unfairness(races);
		crowd();
	}
	return 0;
}
