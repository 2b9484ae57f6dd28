/* SPDX-License-Identifier: MIT */
/*
 * No lost wakeup: two threads on one lock, the owner holding it for about as long as a waiter spins before it
 * parks, so that unlock meets every step of parking.  A lost wakeup is a hang, which the watchdog ends.
 *
 * Then the same in a process where membarrier is refused (seccomp), as in some sandboxes: the spinlock's
 * waiters have to poll.
 */
#include "check.h"

#include <cpuslab/lock.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum kind { SPIN, PAGE, MCS, KINDS };

static struct cpuslab_spinlock spin;
static struct cpuslab_pagelock page;
static struct cpuslab_mcs mcs;
static enum kind kind;
static unsigned long rounds, turns;

static void hold(uint64_t *random)
{
	/* From zero to slightly longer than a waiter spins (some 40 µs). */
	for (size_t i = check_below(random, check_below(random, 8) ? 6000 : 180000); i > 0; i--)
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static void *take_turns(void *argument)
{
	uint64_t random = (uintptr_t)argument + 1;

	for (unsigned long i = 0; i < rounds; i++) {
		struct cpuslab_mcs_node node;

		if (kind == SPIN)
			cpuslab_spin_lock(&spin);
		else if (kind == PAGE)
			cpuslab_pagelock_lock(&page);
		else
			cpuslab_mcs_lock(&mcs, &node);
		turns++;
		hold(&random);
		if (kind == SPIN)
			cpuslab_spin_unlock(&spin);
		else if (kind == PAGE)
			cpuslab_pagelock_unlock(&page);
		else
			cpuslab_mcs_unlock(&mcs, &node);
		/* Now and then nobody wants the lock, so that the last wakeup counts. */
		if (check_below(&random, 16) == 0)
			hold(&random);
	}
	return NULL;
}

static void every_kind(unsigned threads)
{
	pthread_t thread[8];

	for (kind = SPIN; kind < KINDS; kind++) {
		turns = 0;
		for (uintptr_t i = 0; i < threads; i++)
			thread[i] = check_thread(take_turns, (void *)i);
		for (unsigned i = 0; i < threads; i++)
			check_join(thread[i]);
		CHECK(turns == threads * rounds);
	}
	CHECK(!cpuslab_spin_is_locked(&spin) && page.byte == 0 && !cpuslab_mcs_is_locked(&mcs));
}

static void without_barrier(void *argument)
{
	(void)argument;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		_exit(CHECK_SKIPPED);
	CHECK(syscall(SYS_membarrier, 0, 0, 0) == -1 && errno == ENOSYS);
	rounds /= 4;
	every_kind(4);
}

int main(void)
{
	char text[1024];

	check_watchdog(100);
	rounds = check_rounds(10000, 1000000, 200);
	every_kind(2);
	rounds /= 4;
	every_kind(8);

	int status = check_child(without_barrier, NULL, text, sizeof text);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_SKIPPED)
		dprintf(STDOUT_FILENO, "no seccomp here: not shown without the barrier\n");
	else
		CHECK_EXITED(status, 0);
	return 0;
}
