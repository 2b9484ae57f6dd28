/* SPDX-License-Identifier: MIT */
/* The locks as the tests in locks.cc use them: C, compiled with atomics.h in front, like the locks
 * themselves. */
#include <cpuslab/lock.h>

#include <string.h>

void subject_prepare(void);
void subject_page_lock(int timed_out_first);
void subject_page_unlock(int flip);
void subject_page_wait(void);
int subject_page_byte(void);
int subject_mcs_take(int index, int only_try);
void subject_mcs_release(int index);
void subject_spin_lock(void);
void subject_spin_unlock(void);

static struct cpuslab_pagelock page;
static struct cpuslab_spinlock spin;
static struct cpuslab_mcs mcs;
static struct cpuslab_mcs_node nodes[4];

/* What threads share must be known to the simulation before they start. */
void subject_prepare(void)
{
	memset(&page, 0, sizeof page);
	memset(&spin, 0, sizeof spin);
	memset(&mcs, 0, sizeof mcs);
	memset(nodes, 0, sizeof nodes);
	cpuslab_spin_init(&spin, 0);
	cpuslab_spin_lock(&spin);
	cpuslab_spin_unlock(&spin);
	cpuslab_mcs_reset(&mcs);
	for (int i = 0; i < 4; i++) {
		__atomic_store_n(&nodes[i].next, (struct cpuslab_mcs_node *)0, __ATOMIC_RELAXED);
		__atomic_store_n(&nodes[i].state, 0, __ATOMIC_RELAXED);
	}
	/* Every other execution hands the lock over at once. */
	static unsigned execution;
	cpuslab_pagelock_set_unfairness(execution++ % 2);
	/* A stale waiters bit leads through the queue's guard and past the statics. */
	__atomic_store_n(&page.byte, CPUSLAB_PAGELOCK_WAITERS, __ATOMIC_RELAXED);
	cpuslab_pagelock_lock(&page);
	cpuslab_pagelock_unlock(&page);
}

void subject_page_lock(int timed_out_first)
{
	struct timespec past = {0, 0};

	if (!timed_out_first || cpuslab_pagelock_timedlock(&page, &past) != 0)
		cpuslab_pagelock_lock(&page);
}

void subject_page_unlock(int flip)
{
	if (flip)
		cpuslab_pagelock_unlock_flip(&page, 2);
	else
		cpuslab_pagelock_unlock(&page);
}

void subject_page_wait(void)
{
	cpuslab_pagelock_wait_unlocked(&page, NULL);
}

int subject_page_byte(void)
{
	return page.byte;
}

int subject_mcs_take(int index, int only_try)
{
	/* The lock does this with plain stores, which the simulation does not see. */
	__atomic_store_n(&nodes[index].next, (struct cpuslab_mcs_node *)0, __ATOMIC_RELAXED);
	__atomic_store_n(&nodes[index].state, 0, __ATOMIC_RELAXED);
	if (only_try)
		return cpuslab_mcs_trylock(&mcs, &nodes[index]);
	cpuslab_mcs_lock(&mcs, &nodes[index]);
	return 1;
}

void subject_mcs_release(int index)
{
	cpuslab_mcs_unlock(&mcs, &nodes[index]);
}

void subject_spin_lock(void)
{
	cpuslab_spin_lock(&spin);
}

void subject_spin_unlock(void)
{
	cpuslab_spin_unlock(&spin);
}
