/* SPDX-License-Identifier: MIT */
/*
 * magazine_alone: once all but one of a program's threads have ended, what they left goes back even though
 * the remaining thread makes few calls, all of which magazines could serve, on whichever vCPU it runs.  This
 * includes what destructors of thread-specific data free, even if a thread makes its first calls in its last
 * destructors.  While two threads live nothing becomes void for this, and it seldom does where threads come
 * and go one after the other in a program that works on.
 */
#include "check.h"

#include "heap.h"
#include "magazine/magazine.h"
#include "moved_clock.h"
#include "page/page.h"

#include <pthread.h>

enum { THREADS = 4, OBJECTS = 1500, SIZES = 40, STEP = 10, REST = 2000, TURNS = 400 };

static cpu_set_t cpus;
static pthread_key_t key;
static pthread_key_t before_key, behind_key; /* destroyed before and after the library's own */
static pthread_barrier_t all_work;

/* Bytes in objects, magazines, depots and slabs, and those that wait to go back. */
static size_t held(void)
{
	struct page_statistics now;
	page_statistics(&now);
	return (now.dirty_pages + now.used_pages) << PAGE_SHIFT;
}

static uint64_t misses(void)
{
	struct cpuslab_counters now = check_counters();
	return now.alloc_misses + now.free_misses;
}

static uint64_t fences(void)
{
	return check_counters().fences;
}

static void pin(unsigned number)
{
	cpu_set_t one;
	int cpu = 0;
	for (number %= (unsigned)CPU_COUNT(&cpus); !CPU_ISSET(cpu, &cpus) || number-- > 0; cpu++)
		continue;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

static void **take(void)
{
	void **objects = malloc(OBJECTS * sizeof *objects);
	CHECK(objects);
	for (unsigned i = 0; i < OBJECTS; i++) {
		objects[i] = malloc(16 + 16 * (i % SIZES));
		CHECK(objects[i]);
	}
	return objects;
}

static void give(void *taken)
{
	void **objects = taken;
	for (unsigned i = 0; i < OBJECTS; i++)
		free(objects[i]);
	free(objects);
}

/* Each thread frees what it took, or leaves that to its value's destructor. */
static void *work(void *number)
{
	pin((unsigned)(uintptr_t)number);
	pthread_barrier_wait(&all_work);
	give(take());
	void **last = take();
	if ((uintptr_t)number % 2)
		CHECK(pthread_setspecific(key, last) == 0);
	else
		give(last);
	return NULL;
}

static void run_threads(void)
{
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

static void small_calls(unsigned pairs)
{
	for (unsigned i = 0; i < pairs; i++) {
		void *volatile object = malloc(100);
		CHECK(object);
		free(object);
	}
}

static void test_rest(unsigned cpu)
{
	milliseconds += REST;
	malloc_trim(0);
	size_t least = held();
	pin(cpu);
	run_threads();
	size_t before = held();
	CHECK(before - least >= 512 << 10, "%zu bytes", before - least);
	for (unsigned i = 0; i < REST / STEP; i++) {
		milliseconds += STEP;
		small_calls(1);
	}
	CHECK(held() <= least + (96 << 10), "on %u: %zu of %zu bytes", cpu, held() - least, before - least);
	heap_walk();
}

/* Ends normally, which allocates what that needs, so that a forked child's end need not. */
static void *serve(void *unused)
{
	give(take());
	pthread_exit(unused);
}

static void one_thread(void)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

static pthread_barrier_t two_live;

static void *live(void *unused)
{
	give(take());
	pthread_barrier_wait(&two_live);
	pthread_barrier_wait(&two_live);
	return unused;
}

/* A thread for each request, while others live; a forked child has none of those. */
static void test_others_live(void)
{
	pthread_t others[2];
	pthread_barrier_init(&two_live, NULL, 3);
	for (unsigned i = 0; i < 2; i++)
		CHECK(pthread_create(&others[i], NULL, live, NULL) == 0);
	pthread_barrier_wait(&two_live);
	one_thread();
	uint64_t before = fences();
	for (unsigned i = 0; i < TURNS; i++)
		one_thread();
	/*
	 * There may be one as pages are taken; with a clock that stands still, each of four ends could
	 * otherwise have had its own.
	 */
	CHECK(fences() - before <= 2, "%llu", (unsigned long long)(fences() - before));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		test_rest(0);
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
	pthread_barrier_wait(&two_live);
	for (unsigned i = 0; i < 2; i++)
		CHECK(pthread_join(others[i], NULL) == 0);
}

static void *walk(void *unused)
{
	magazine_begin_census();
	pthread_barrier_wait(&two_live);
	pthread_barrier_wait(&two_live);
	magazine_end_census();
	return unused;
}

/* A fork during a walk: the child's only thread ends before it has reached a slow path. */
static void test_fork_in_walk(void)
{
	pthread_t walker;
	pthread_barrier_init(&two_live, NULL, 2);
	CHECK(pthread_create(&walker, NULL, walk, NULL) == 0);
	give(take());
	pthread_barrier_wait(&two_live);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		check_watchdog(10);
		pthread_exit(NULL);
	}
	CHECK_EXITED(check_wait(child), 0);
	pthread_barrier_wait(&two_live);
	CHECK(pthread_join(walker, NULL) == 0);
}

/* Threads one after the other in a program that works on: words become void only now and then. */
static void test_goes_on(void)
{
	uint64_t before = fences(), missed = 0;
	for (unsigned i = 0; i < TURNS; i++) {
		milliseconds++;
		one_thread();
		uint64_t then = misses();
		small_calls(100);
		missed += misses() - then;
	}
	CHECK(fences() - before <= 20 + TURNS / 50, "%llu", (unsigned long long)(fences() - before));
	/* Few of these calls: two in a millisecond, and some at the end of each thread. */
	CHECK(missed <= 3 * TURNS, "%llu", (unsigned long long)missed);
}

/* A thread's values: it makes its only calls in a destructor of the given round. */
struct late {
	pthread_key_t key;
	unsigned round, rounds;
};

static void come_late(void *argument)
{
	struct late *late = argument;
	if (++late->round < late->rounds)
		CHECK(pthread_setspecific(late->key, late) == 0);
	else
		give(take());
}

static void *come_late_only(void *late)
{
	CHECK(pthread_setspecific(((struct late *)late)->key, late) == 0);
	return NULL;
}

/*
 * In the last round as well, as long as the library's own destructor is still to come; a slot that a thread
 * takes after that is lost, with what its magazines hold.
 */
static void test_late(void)
{
	struct late lates[] = {{before_key, 0, 3}, {behind_key, 0, 3}, {before_key, 0, 4}};
	for (unsigned i = 0; i < (check_rseq() ? 3 : 2); i++) {
		for (unsigned turn = 0; turn < 2; turn++) {
			pthread_t thread;
			lates[i].round = 0;
			CHECK(pthread_create(&thread, NULL, come_late_only, &lates[i]) == 0);
			CHECK(pthread_join(thread, NULL) == 0);
			CHECK(lates[i].round == lates[i].rounds);
		}
		test_rest(0);
	}
}

int main(void)
{
	check_watchdog(60);
	CHECK(pthread_key_create(&before_key, come_late) == 0);
	CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
	CHECK(pthread_key_create(&key, give) == 0);
	pthread_barrier_init(&all_work, NULL, THREADS);
	run_threads(); /* what running threads takes */
	CHECK(pthread_key_create(&behind_key, come_late) == 0);
	for (unsigned cpu = 0; cpu < 2; cpu++)
		test_rest(cpu);
	test_others_live();
	test_fork_in_walk();
	test_goes_on();
	test_late();
	printf("few calls after threads\n");
	return 0;
}
