/* SPDX-License-Identifier: MIT */
/* CPUSLAB_DEBUG_LOCKS: a wrong use ends the process with a line that describes it; right uses pass. */
#define CPUSLAB_DEBUG_LOCKS
#include "check.h"

#include <cpuslab/lock.h>
#include <sys/time.h>

static struct cpuslab_spinlock spin, other_spin;
static struct cpuslab_pagelock page;
static struct cpuslab_mcs mcs;
static struct cpuslab_mcs_node node;

static void *lock_all(void *argument)
{
	(void)argument;
	cpuslab_mcs_lock(&mcs, &node);
	cpuslab_pagelock_lock(&page);
	cpuslab_spin_lock(&spin);
	return NULL;
}

static void wrong_spin_twice(void *argument)
{
	(void)argument;
	cpuslab_spin_lock(&spin);
	cpuslab_spin_lock(&spin);
}

static void wrong_page_twice(void *argument)
{
	(void)argument;
	cpuslab_pagelock_lock(&page);
	cpuslab_pagelock_lock(&page);
}

static void wrong_mcs_twice(void *argument)
{
	struct cpuslab_mcs_node second;

	(void)argument;
	cpuslab_mcs_lock(&mcs, &node);
	cpuslab_mcs_lock(&mcs, &second);
}

static void wrong_spin_unlock_twice(void *argument)
{
	(void)argument;
	cpuslab_spin_lock(&spin);
	cpuslab_spin_unlock(&spin);
	cpuslab_spin_unlock(&spin);
}

static void wrong_page_unlock_twice(void *argument)
{
	(void)argument;
	cpuslab_pagelock_lock(&page);
	cpuslab_pagelock_unlock(&page);
	cpuslab_pagelock_unlock_flip(&page, 2);
}

static void wrong_spin_of_another(void *argument)
{
	(void)argument;
	check_join(check_thread(lock_all, NULL));
	cpuslab_spin_unlock(&spin);
}

static void wrong_page_of_another(void *argument)
{
	(void)argument;
	check_join(check_thread(lock_all, NULL));
	cpuslab_pagelock_unlock(&page);
}

static void wrong_mcs_of_another(void *argument)
{
	(void)argument;
	check_join(check_thread(lock_all, NULL));
	cpuslab_mcs_unlock(&mcs, &node);
}

static void wrong_sleep(void *argument)
{
	(void)argument;
	cpuslab_spin_lock(&spin);
	cpuslab_pagelock_lock(&page);
}

static void wrong_timed_sleep(void *argument)
{
	struct timespec past = {0, 0};

	(void)argument;
	cpuslab_spin_lock(&spin);
	cpuslab_pagelock_timedlock(&page, &past);
}

static void wrong_user_sleep(void *argument)
{
	(void)argument;
	cpuslab_spin_lock(&spin);
	cpuslab_may_sleep("reading a file");
}

static void wrong_assert(void *argument)
{
	(void)argument;
	check_join(check_thread(lock_all, NULL));
	cpuslab_pagelock_assert_held(&page);
}

static const struct {
	void (*run)(void *);
	const char *said;
} wrongs[] = {
	{wrong_spin_twice, "spinlock 0x%lx: thread %d takes a lock that it holds already"},
	{wrong_page_twice, "pagelock 0x%lx: thread %d takes a lock that it holds already"},
	{wrong_mcs_twice, "mcs lock 0x%lx: thread %d takes a lock that it holds already"},
	{wrong_spin_unlock_twice, "spinlock 0x%lx: thread %d unlocks a lock that nobody holds"},
	{wrong_page_unlock_twice, "pagelock 0x%lx: thread %d unlocks a lock that nobody holds"},
	{wrong_spin_of_another, "spinlock 0x%lx: thread %d unlocks a lock held by thread %d"},
	{wrong_page_of_another, "pagelock 0x%lx: thread %d unlocks a lock held by thread %d"},
	{wrong_mcs_of_another, "mcs lock 0x%lx: thread %d unlocks a lock held by thread %d"},
	{wrong_sleep, "pagelock 0x%lx: thread %d may sleep for this lock while it holds a spinlock"},
	{wrong_timed_sleep, "pagelock 0x%lx: thread %d may sleep for this lock while it holds a spinlock"},
	{wrong_user_sleep, "reading a file: thread %d may sleep while it holds a spinlock"},
	{wrong_assert, "lock 0x%lx: thread %d needs a lock that is held by thread %d"},
};

/* Compares the output, allowing any number for each %lx and %d. */
static bool matches(const char *text, const char *pattern)
{
	if (strncmp(text, "cpuslab: ", 9) != 0)
		return false;
	text += 9;
	while (*pattern) {
		if (*pattern == '%') {
			char *end;
			strtoul(text, &end, pattern[1] == 'l' ? 16 : 10);
			if (end == text)
				return false;
			text = end;
			pattern += pattern[1] == 'l' ? 3 : 2;
		} else if (*text++ != *pattern++) {
			return false;
		}
	}
	return strcmp(text, "\n") == 0;
}

/* ---- right uses ---------------------------------------------------------------------------------------- */

static void *right(void *argument)
{
	uint64_t random = (uintptr_t)argument + 1;
	struct cpuslab_pagelock many[40];

	for (int i = 0; i < 2000; i++) {
		struct cpuslab_mcs_node mine;

		cpuslab_mcs_lock(&mcs, &mine);
		cpuslab_pagelock_lock(&page);
		cpuslab_pagelock_assert_held(&page);
		cpuslab_spin_lock(&spin);
		cpuslab_spin_lock(&other_spin);
		cpuslab_spin_assert_held(&spin);
		/* Not in the order of acquisition. */
		cpuslab_spin_unlock(&spin);
		cpuslab_spin_unlock(&other_spin);
		cpuslab_pagelock_unlock_flip(&page, 2);
		cpuslab_mcs_unlock(&mcs, &mine);
		if (cpuslab_spin_trylock(&spin)) {
			/* A trylock never sleeps. */
			if (cpuslab_pagelock_trylock(&page))
				cpuslab_pagelock_unlock(&page);
			cpuslab_spin_unlock(&spin);
		}
		cpuslab_may_sleep("anything");
		if (check_below(&random, 50) == 0) {
			for (int k = 0; k < 40; k++) {
				cpuslab_pagelock_init(&many[k], 0);
				cpuslab_pagelock_lock(&many[k]);
			}
			for (int k = 0; k < 40; k++)
				cpuslab_pagelock_unlock(&many[k]);
		}
	}
	return NULL;
}

static struct cpuslab_spinlock of_handlers;
static volatile sig_atomic_t handled;

static void lock_in_handler(int number)
{
	(void)number;
	cpuslab_spin_lock(&of_handlers);
	cpuslab_spin_assert_held(&of_handlers);
	cpuslab_spin_unlock(&of_handlers);
	handled++;
}

static void lock_and_leave(int number)
{
	lock_in_handler(number);
	cpuslab_pagelock_lock(&page);
	_exit(42);
}

/* Interrupts calls on other locks, sooner or later at every instruction. */
static void right_in_a_handler(void *argument)
{
	const struct itimerval often = {{0, 100}, {0, 100}};
	const struct sigaction action = {.sa_handler = lock_in_handler};

	(void)argument;
	CHECK(sigaction(SIGVTALRM, &action, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);
	while (handled < (check_valgrind() ? 10 : 60)) {
		cpuslab_spin_lock(&spin);
		cpuslab_spin_unlock(&spin);
	}
}

/* Neither the stopped thread nor another one finds the table locked. */
static void wrong_with_a_handler(void *argument)
{
	const struct sigaction action = {.sa_handler = lock_and_leave};

	CHECK(sigaction(SIGABRT, &action, NULL) == 0);
	cpuslab_spin_lock(&spin);
	cpuslab_spin_lock(&spin);
	(void)argument;
}

/* The last user of a lock may free it while holding it: the next lock there is another one. */
static void right_in_freed_memory(void *argument)
{
	void *memory = malloc(sizeof(struct cpuslab_pagelock));

	(void)argument;
	for (int i = 0; i < 3; i++) {
		struct cpuslab_pagelock *lock = memory;

		cpuslab_pagelock_init(lock, 0);
		cpuslab_pagelock_lock(lock);
		cpuslab_pagelock_assert_held(lock);
	}
	cpuslab_may_sleep("anything");
	free(memory);
}

static void right_after_fork(void *argument)
{
	/* Held by the forking thread: still its own in the child, under another thread id. */
	(void)argument;
	cpuslab_pagelock_assert_held(&page);
	cpuslab_spin_reset(&spin);
	cpuslab_pagelock_unlock(&page);
	cpuslab_pagelock_lock(&page);
	cpuslab_spin_lock(&spin);
	cpuslab_spin_unlock(&spin);
	cpuslab_may_sleep("anything");
}

int main(void)
{
	char text[1024];
	pthread_t threads[4];

	check_watchdog(100);
	for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
		int status = check_child(wrongs[i].run, NULL, text, sizeof text);

		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s: status %#x", wrongs[i].said,
		      (unsigned)status);
		CHECK(matches(text, wrongs[i].said), "said \"%s\", should be \"%s\"", text, wrongs[i].said);
	}
	CHECK_EXITED(check_child(right_in_a_handler, NULL, text, sizeof text), 0);
	CHECK_EXITED(check_child(wrong_with_a_handler, NULL, text, sizeof text), 42);
	CHECK_EXITED(check_child(right_in_freed_memory, NULL, text, sizeof text), 0);
	for (uintptr_t i = 0; i < 4; i++)
		threads[i] = check_thread(right, (void *)i);
	for (int i = 0; i < 4; i++)
		check_join(threads[i]);

	cpuslab_pagelock_lock(&page);
	cpuslab_spin_lock(&spin);
	CHECK_EXITED(check_child(right_after_fork, NULL, text, sizeof text), 0);
	cpuslab_spin_unlock(&spin);
	cpuslab_pagelock_unlock(&page);
	return 0;
}
