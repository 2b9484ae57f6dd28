/* SPDX-License-Identifier: MIT */
/* A program with locks of cpuslab alone. */
#include <cpuslab/lock.h>

#include <pthread.h>
#include <stdio.h>

enum { ROUNDS = 100000, THREADS = 4 };

static struct cpuslab_spinlock spin = CPUSLAB_SPINLOCK_INITIALIZER;
static struct cpuslab_pagelock page = CPUSLAB_PAGELOCK_INITIALIZER;
static struct cpuslab_mcs mcs = CPUSLAB_MCS_INITIALIZER;
static unsigned long counts[3];

static void *work(void *unused)
{
	struct cpuslab_mcs_node node;

	for (int i = 0; i < ROUNDS; i++) {
		cpuslab_spin_lock(&spin);
		counts[0]++;
		cpuslab_spin_unlock(&spin);
		cpuslab_pagelock_lock(&page);
		counts[1]++;
		cpuslab_pagelock_unlock(&page);
		cpuslab_mcs_lock(&mcs, &node);
		counts[2]++;
		cpuslab_mcs_unlock(&mcs, &node);
	}
	return unused;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, NULL) != 0)
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 3; i++)
		if (counts[i] != (unsigned long)THREADS * ROUNDS)
			return 1;
	puts("each lock kept the others out");
	return 0;
}
