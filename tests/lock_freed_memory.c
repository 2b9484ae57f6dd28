/* SPDX-License-Identifier: MIT */
/*
 * A page lock inside the memory that it protects: its last user frees the memory while holding the lock,
 * right after acquiring it, while previous owners may still be in unlock.  Unlock must not touch the byte
 * after releasing it.
 *
 * - unmapped: the memory is a page that is made inaccessible, and stays so for many lives: any touch is a
 *   fault;
 * - reused: the memory at once becomes another lock, with other waiters in the same queue: a late waker must
 *   neither wake them wrongly nor take away their waiters bit;
 * - freed: the memory goes back to malloc (where a sanitizer reports a late touch).
 */
#include "check.h"

#include <cpuslab/lock.h>

#include <sys/mman.h>

enum { THREADS = 4, PAGE = 4096, PAGES = 256, WATCHDOG_SECONDS = 100 };

struct object {
	struct cpuslab_pagelock lock;
	unsigned users;
};

enum way { UNMAPPED, REUSED, FREED };

static enum way way;
static struct object *object;
static char *pages;
static unsigned long rounds;
static pthread_barrier_t barrier;
static unsigned long deaths;

static void make(void)
{
	if (way == UNMAPPED) {
		char *page = pages + deaths % PAGES * PAGE;

		CHECK(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
		object = (struct object *)(void *)page;
	} else if (way == FREED) {
		object = malloc(sizeof *object);
		CHECK(object != NULL);
	}
	cpuslab_pagelock_init(&object->lock, 0);
	object->users = THREADS;
}

/* Each life waits for several threads to get a CPU: on a busy machine this is slow, but no hang. */
static void show_progress(unsigned long lives)
{
	if (lives % 100 == 0)
		check_watchdog(WATCHDOG_SECONDS);
}

static void destroy(struct object *dead)
{
	deaths++;
	show_progress(deaths);
	if (way == UNMAPPED)
		CHECK(mprotect(dead, PAGE, PROT_NONE) == 0);
	else if (way == FREED)
		free(dead);
}

static void *use(void *argument)
{
	uint64_t random = (uintptr_t)argument + 1;

	for (unsigned long round = 0; round < rounds; round++) {
		pthread_barrier_wait(&barrier);
		struct object *mine = object;
		for (size_t pause = check_below(&random, 200); pause > 0; pause--)
			__atomic_signal_fence(__ATOMIC_SEQ_CST);
		/* Deadlines that expire at once leave wakers that find nobody. */
		struct timespec past = {0, 0};
		while (cpuslab_pagelock_timedlock(&mine->lock, &past) != 0)
			if (check_below(&random, 4) == 0) {
				cpuslab_pagelock_lock(&mine->lock);
				break;
			}
		if (check_below(&random, 8) == 0)
			sched_yield(); /* while holding the lock, so that the others park */
		if (--mine->users > 0) {
			cpuslab_pagelock_unlock(&mine->lock);
			continue;
		}
		destroy(mine);
		make();
	}
	return NULL;
}

/*
 * Two locks take turns in one byte; each life has its own pair of threads, which overlaps with the last pair.
 */
static struct cpuslab_pagelock reused;
static unsigned long life, done_in_life, in_section;

static void *reuse(void *argument)
{
	unsigned long parity = (uintptr_t)argument;

	for (unsigned long mine = parity; mine < rounds; mine += 2) {
		for (unsigned spins = 0; __atomic_load_n(&life, __ATOMIC_ACQUIRE) != mine;)
			if (++spins > 100)
				sched_yield();
		cpuslab_pagelock_lock(&reused);
		CHECK(in_section++ == 0);
		if (mine % 16 < 2)
			sched_yield();
		in_section--;
		if (++done_in_life < 2) {
			cpuslab_pagelock_unlock(&reused);
			continue;
		}
		/* The last thread of its life frees the lock as owner; a new one takes its place. */
		done_in_life = 0;
		show_progress(mine);
		cpuslab_pagelock_init(&reused, 0);
		__atomic_store_n(&life, mine + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void reused_memory(void)
{
	pthread_t threads[4];

	rounds = check_rounds(4000, 2000000, 500);
	for (uintptr_t i = 0; i < 4; i++)
		threads[i] = check_thread(reuse, (void *)(i % 2));
	for (int i = 0; i < 4; i++)
		check_join(threads[i]);
	CHECK(life == rounds && reused.byte == 0);
}

/* What an unlock does after its releasing instruction, when the memory may already be gone. */
static void late_wakers(void)
{
	char *nothing = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(nothing != MAP_FAILED);
	for (int i = 0; i < PAGE; i++) {
		cpuslab_pagelock_wake_unlocked((uint8_t *)nothing + i);
		cpuslab_pagelock_wake_flags((uint8_t *)nothing + i);
	}
	munmap(nothing, PAGE);
}

int main(void)
{
	check_watchdog(WATCHDOG_SECONDS);
	late_wakers();
	rounds = check_rounds(1000, 500000, 200);
	pages = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED);
	CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
	for (way = UNMAPPED; way <= FREED; way += FREED - UNMAPPED) {
		pthread_t threads[THREADS];

		deaths = 0;
		make();
		for (uintptr_t i = 0; i < THREADS; i++)
			threads[i] = check_thread(use, (void *)i);
		for (int i = 0; i < THREADS; i++)
			check_join(threads[i]);
		CHECK(deaths == rounds, "%lu", deaths);
	}
	free(object);
	reused_memory();
	return 0;
}
