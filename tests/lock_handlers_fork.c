/* SPDX-License-Identifier: MIT */
/*
 * lock_handlers_fork: registering a fork handler with libc, which keeps a child from inheriting what its
 * parent's threads were in the middle of.  One thread is inside that registration; others contend meanwhile.
 * A child forked then has neither their waiters nor a held guard.  What libc allocates for the handler may
 * contend for a lock as well, and must not register again.
 *
 *   lock_handlers_fork queues    that of the pagelocks' queues, where the system does not wipe memory on fork
 *   lock_handlers_fork checks    that of the table of CPUSLAB_DEBUG_LOCKS
 *
 * In both cases the program has handlers of its own, registered before: in the child they come first.
 *
 *   lock_handlers_fork waiter    such a handler unlocks and locks what a thread of the parent waits for, and
 *                                starts threads that wait when the library's own handler runs
 */
#include "check.h"

#include <cpuslab/lock.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum { THREADS = 3, CHILD_THREADS = 2, PAGES = 8 };

static bool of_queues, asked, may_go_on, stop;
static unsigned running;
static __thread bool is_first; /* the thread that is asking */
static struct cpuslab_pagelock held, page[PAGES + THREADS];

int madvise(void *address, size_t bytes, int advice)
{
	if (advice == MADV_WIPEONFORK) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_madvise, address, bytes, advice);
}

static void try_held(void)
{
	struct timespec past = {0, 0};

	CHECK(cpuslab_pagelock_timedlock(&held, &past) == ETIMEDOUT);
}

/* The first thread that asks stays here until it may go on. */
static void stay(void)
{
	if (of_queues)
		try_held();
	__atomic_store_n(&asked, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&may_go_on, __ATOMIC_ACQUIRE))
		sched_yield();
}

extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object);

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object)
{
	static __thread bool asks;
	__typeof__(&__register_atfork) libcs =
		(__typeof__(&__register_atfork))dlsym(RTLD_NEXT, "__register_atfork");

	CHECK(libcs);
	CHECK(!asks, "what libc allocates asks for a handler again");
	asks = true;
	if (is_first)
		stay();
	int status = libcs(prepare, parent, child, object);

	asks = false;
	return status;
}

static void contend(unsigned number)
{
	uint64_t random = number + 1;

	for (int i = 0; i < 20; i++) {
		struct cpuslab_pagelock *lock = &page[check_below(&random, PAGES)];

		if (!of_queues) {
			cpuslab_debug_lock_taken(lock + number, CPUSLAB_LOCK_PAGE);
			cpuslab_debug_lock_forget(lock + number);
			continue;
		}
		cpuslab_pagelock_lock(lock);
		if (check_below(&random, 4) == 0)
			sched_yield();
		cpuslab_pagelock_unlock(lock);
	}
}

static void *ask(void *unused)
{
	is_first = true;
	if (of_queues)
		try_held();
	else
		contend(0);
	return unused;
}

static void *contend_on(void *number)
{
	__atomic_fetch_add(&running, 1, __ATOMIC_RELAXED);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		contend((unsigned)(uintptr_t)number);
	return NULL;
}

static void *contend_once(void *number)
{
	for (int i = 0; i < 5; i++)
		contend((unsigned)(uintptr_t)number);
	return NULL;
}

static void child(void)
{
	pthread_t threads[CHILD_THREADS];

	check_watchdog(20);
	for (int i = 0; i < PAGES; i++)
		cpuslab_pagelock_reset(&page[i]);
	for (uintptr_t i = 0; i < CHILD_THREADS; i++)
		threads[i] = check_thread(contend_once, (void *)i);
	contend_once(NULL);
	for (int i = 0; i < CHILD_THREADS; i++)
		check_join(threads[i]);
	if (of_queues)
		try_held();
	_exit(0);
}

/* Locks in the child before the library's own handler has run. */
static void first_in_child(void)
{
	check_watchdog(20);
	for (int i = 0; i < PAGES; i++)
		cpuslab_pagelock_reset(&page[i]);
	contend_once(NULL);
}

static struct cpuslab_pagelock waited_for;
static pthread_t child_waiter;
static bool waiting;

static void *wait_for_lock(void *unused)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += 60;
	__atomic_store_n(&waiting, true, __ATOMIC_RELEASE);
	CHECK(cpuslab_pagelock_timedlock(&waited_for, &end) == 0);
	cpuslab_pagelock_unlock(&waited_for);
	return unused;
}

/* Returns once that thread is in the queue. */
static pthread_t start_waiter(void)
{
	__atomic_store_n(&waiting, false, __ATOMIC_RELAXED);
	pthread_t thread = check_thread(wait_for_lock, NULL);

	while (!__atomic_load_n(&waiting, __ATOMIC_ACQUIRE) ||
	       !(__atomic_load_n(&waited_for.byte, __ATOMIC_RELAXED) & CPUSLAB_PAGELOCK_WAITERS))
		sched_yield();
	return thread;
}

static void unlock_in_child(void)
{
	check_watchdog(20);
	cpuslab_pagelock_unlock(&waited_for);
	CHECK(cpuslab_pagelock_trylock(&waited_for), "it was handed to a thread that is not here");
	child_waiter = start_waiter();
}

static int fork_beside_waiter(void)
{
	/* The next unlock hands the lock over. */
	cpuslab_pagelock_set_unfairness(0);
	CHECK(pthread_atfork(NULL, NULL, unlock_in_child) == 0);
	cpuslab_pagelock_lock(&waited_for);
	pthread_t thread = start_waiter();
	pid_t pid = fork();

	CHECK(pid >= 0);
	cpuslab_pagelock_unlock(&waited_for);
	if (pid == 0) {
		check_join(child_waiter);
		CHECK(cpuslab_pagelock_trylock(&waited_for));
		_exit(0);
	}
	CHECK_EXITED(check_wait(pid), 0);
	check_join(thread);
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS + 1];

	check_watchdog(100);
	if (argc > 1 && strcmp(argv[1], "waiter") == 0)
		return fork_beside_waiter();
	of_queues = argc <= 1 || strcmp(argv[1], "queues") == 0;
	CHECK(pthread_atfork(NULL, NULL, first_in_child) == 0);
	cpuslab_pagelock_lock(&held);
	threads[THREADS] = check_thread(ask, NULL);
	while (!__atomic_load_n(&asked, __ATOMIC_ACQUIRE))
		sched_yield();
	for (uintptr_t i = 0; i < THREADS; i++)
		threads[i] = check_thread(contend_on, (void *)i);
	while (__atomic_load_n(&running, __ATOMIC_RELAXED) < THREADS)
		sched_yield();
	unsigned long forks = check_rounds(100, 2000, 10);
	for (unsigned long i = 0; i < forks; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			child();
		CHECK_EXITED(check_wait(pid), 0);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	__atomic_store_n(&may_go_on, true, __ATOMIC_RELEASE);
	for (int i = 0; i <= THREADS; i++)
		check_join(threads[i]);
	return 0;
}
