/* SPDX-License-Identifier: MIT */
/*
 * startup_threads: threads that come and go.
 *
 *   startup_threads keys    destructors of thread-specific data that allocate, in every order relative to the
 *                           allocator's own thread exit
 *   startup_threads exits   the process ends while other threads allocate, in each way that a process can end
 *   startup_threads short   thousands of short-lived threads that leave memory behind: nothing leaks
 */
#include "check.h"

/* ---- keys ------------------------------------------------------------------------------------------ */

enum { KEYS = 6 };

static pthread_key_t keys[KEYS];
static unsigned long destructor_runs;

struct value {
	unsigned key, rounds;
	void *objects[20];
};

/* As often as POSIX allows: each run frees what the last one allocated and asks for another. */
static void destroy(void *argument)
{
	struct value *value = argument;
	__atomic_fetch_add(&destructor_runs, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 20; i++) {
		CHECK_STAMP(value->objects[i], 20 + 50 * i, value->key);
		free(value->objects[i]);
	}
	if (++value->rounds >= 3) {
		free(value);
		return;
	}
	for (unsigned i = 0; i < 20; i++) {
		value->objects[i] = malloc(20 + 50 * i);
		CHECK(value->objects[i]);
		check_stamp(value->objects[i], 20 + 50 * i, value->key);
	}
	CHECK(pthread_setspecific(keys[value->key], value) == 0);
}

static void *with_keys(void *unused)
{
	for (unsigned key = 0; key < KEYS; key++) {
		struct value *value = malloc(sizeof *value);
		CHECK(value);
		value->key = key;
		value->rounds = 0;
		for (unsigned i = 0; i < 20; i++) {
			value->objects[i] = malloc(20 + 50 * i);
			check_stamp(value->objects[i], 20 + 50 * i, key);
		}
		CHECK(pthread_setspecific(keys[key], value) == 0);
	}
	return unused;
}

/* The first allocation of this thread happens in its destructors. */
static void allocate_first(void *argument)
{
	void *objects[50];
	(void)argument;
	__atomic_fetch_add(&destructor_runs, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 50; i++)
		objects[i] = malloc(100);
	for (int i = 0; i < 50; i++)
		free(objects[i]);
}

static pthread_key_t late_key;

static void *with_late_key(void *argument)
{
	CHECK(pthread_setspecific(late_key, argument) == 0);
	return NULL;
}

/*
 * A destructor that continues after the allocator's own thread exit, while another thread has taken over its
 * slot.
 */
static pthread_key_t lingering_key;
static unsigned lingering; /* 0 before, 1 while it goes on, 2 to end it */

static void churn(uint64_t seed)
{
	enum { OBJECTS = 8 };
	void *objects[OBJECTS];

	for (unsigned i = 0; i < OBJECTS; i++) {
		objects[i] = malloc(64);
		CHECK(objects[i]);
		check_stamp(objects[i], 64, seed + i);
	}
	for (unsigned i = 0; i < OBJECTS; i++) {
		CHECK_STAMP(objects[i], 64, seed + i);
		free(objects[i]);
	}
}

static void linger(void *argument)
{
	uintptr_t passes = (uintptr_t)argument;

	/* The allocator's own destructor has run by the second pass, wherever its key stands. */
	if (passes < 3) {
		CHECK(pthread_setspecific(lingering_key, (void *)(passes + 1)) == 0);
		return;
	}
	__atomic_store_n(&lingering, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&lingering, __ATOMIC_ACQUIRE) == 1)
		churn(1000);
}

static void *with_lingering_key(void *unused)
{
	churn(10);
	CHECK(pthread_setspecific(lingering_key, (void *)1) == 0);
	return unused;
}

static void *churn_often(void *unused)
{
	for (unsigned i = 0; i < 20000; i++)
		churn(2000);
	return unused;
}

static void run_lingering(void)
{
	CHECK(pthread_key_create(&lingering_key, linger) == 0);
	pthread_t one = check_thread(with_lingering_key, NULL);

	while (!__atomic_load_n(&lingering, __ATOMIC_ACQUIRE))
		sched_yield();
	for (unsigned long round = check_rounds(5, 100, 2); round; round--)
		check_join(check_thread(churn_often, NULL));
	__atomic_store_n(&lingering, 2, __ATOMIC_RELEASE);
	check_join(one);
}

/* Before main, before the allocator may have created keys of its own. */
__attribute__((constructor(101))) static void early_keys(void)
{
	for (int key = 0; key < KEYS / 2; key++)
		CHECK(pthread_key_create(&keys[key], destroy) == 0);
}

static void run_keys(void)
{
	static char mark;
	free(malloc(10));
	for (int key = KEYS / 2; key < KEYS; key++)
		CHECK(pthread_key_create(&keys[key], destroy) == 0);
	CHECK(pthread_key_create(&late_key, allocate_first) == 0);
	unsigned long rounds = check_rounds(500, 20000, 20);
	size_t before = 0;
	for (unsigned long round = 0; round < rounds; round++) {
		pthread_t threads[4];
		for (int i = 0; i < 4; i++)
			threads[i] =
				i == 3 ? check_thread(with_late_key, &mark) : check_thread(with_keys, NULL);
		for (int i = 0; i < 4; i++)
			check_join(threads[i]);
		if (round == rounds / 4)
			before = check_resident();
	}
	CHECK(destructor_runs == rounds * (3 * KEYS * 3 + 1), "%lu destructors ran", destructor_runs);
	CHECK(check_resident() < before + (4 << 20),
	      "threads with destructors leak: %zu then %zu bytes resident", before, check_resident());
	run_lingering();
}

/* ---- exits ----------------------------------------------------------------------------------------- */

static void *allocate_forever(void *argument)
{
	uint64_t random = 1 + (uint64_t)(uintptr_t)argument;
	void *objects[64] = {NULL};
	for (;;) {
		size_t i = check_below(&random, 64);
		free(objects[i]);
		size_t size =
			check_below(&random, 64) ? check_below(&random, 3000) : check_below(&random, 500000);
		objects[i] = malloc(size);
		CHECK(objects[i]);
		memset(objects[i], 1, size < 64 ? size : 64);
	}
	return NULL;
}

static void allocate_some(void)
{
	void *objects[200];
	for (int round = 0; round < 5; round++) {
		for (size_t i = 0; i < 200; i++)
			CHECK((objects[i] = malloc(i * 20)));
		for (size_t i = 0; i < 200; i++)
			free(objects[i]);
	}
}

static void *exit_here(void *unused)
{
	(void)unused;
	allocate_some();
	exit(7);
}

static void *end_soon(void *unused)
{
	allocate_some();
	usleep(2000);
	allocate_some();
	return unused;
}

static void end_process(void *way)
{
	for (uintptr_t i = 0; i < 3; i++)
		check_thread(allocate_forever, (void *)i);
	CHECK(atexit(allocate_some) == 0);
	CHECK(at_quick_exit(allocate_some) == 0);
	usleep(1000);
	switch ((uintptr_t)way) {
	case 0:
		exit(7);
	case 1:
		check_thread(exit_here, NULL);
		for (;;)
			allocate_some();
	case 2:
		quick_exit(7);
	case 3:
		_exit(7);
	}
}

/* The initial thread ends first; the process ends with its last thread, which runs the exit handlers. */
static void initial_thread_leaves(void *unused)
{
	CHECK(atexit(allocate_some) == 0);
	for (int i = 0; i < 3; i++)
		check_thread(end_soon, unused);
	pthread_exit(NULL);
}

static void *cancelled(void *unused)
{
	for (;;) {
		allocate_some();
		pthread_testcancel();
	}
	return unused;
}

static void run_exits(void)
{
	char text[2048];
	for (unsigned long round = check_rounds(40, 2000, 2); round; round--) {
		for (uintptr_t way = 0; way < 4; way++) {
			int status = check_child(end_process, (void *)way, text, sizeof text);
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7, "way %zu: status %#x, '%s'",
			      (size_t)way, (unsigned)status, text);
			CHECK(!*text, "way %zu printed '%s'", (size_t)way, text);
		}
		CHECK_EXITED(check_child(initial_thread_leaves, NULL, text, sizeof text), 0);
		pthread_t threads[4];
		for (int i = 0; i < 4; i++)
			threads[i] = check_thread(cancelled, NULL);
		for (int i = 0; i < 4; i++)
			CHECK(pthread_cancel(threads[i]) == 0);
		for (int i = 0; i < 4; i++)
			CHECK(check_join(threads[i]) == PTHREAD_CANCELED);
	}
}

/* ---- short ----------------------------------------------------------------------------------------- */

enum { LEFT = 60 };

struct leftovers {
	void *objects[LEFT];
	size_t sizes[LEFT];
	uint64_t seed;
};

static void *short_life(void *argument)
{
	struct leftovers *leftovers = argument;
	uint64_t random = leftovers->seed;
	for (int i = 0; i < LEFT; i++) {
		size_t size = leftovers->sizes[i] = 1 + check_below(&random, i % 10 ? 500 : 20000);
		void *gone = malloc(size);
		leftovers->objects[i] = malloc(size);
		CHECK(gone && leftovers->objects[i]);
		check_stamp(leftovers->objects[i], size, leftovers->seed);
		memset(gone, 1, size);
		free(gone);
	}
	return NULL;
}

static void run_short(void)
{
	enum { TOGETHER = 8 };
	static struct leftovers leftovers[TOGETHER];
	unsigned long rounds = check_rounds(1500, 100000, 30);
	size_t before = 0;
	for (unsigned long round = 0; round < rounds; round++) {
		pthread_t threads[TOGETHER];
		for (size_t i = 0; i < TOGETHER; i++) {
			leftovers[i].seed = 1 + round * TOGETHER + i;
			threads[i] = check_thread(short_life, &leftovers[i]);
		}
		for (size_t i = 0; i < TOGETHER; i++) {
			check_join(threads[i]);
			for (int j = 0; j < LEFT; j++) {
				CHECK_STAMP(leftovers[i].objects[j], leftovers[i].sizes[j],
					    leftovers[i].seed);
				free(leftovers[i].objects[j]);
			}
		}
		if (round == rounds / 2) /* the slots' magazines have filled by then */
			before = check_resident();
	}
	size_t after = check_resident();
	if (!check_valgrind())
		CHECK(after < before + (8 << 20) && after < 64 << 20,
		      "%lu threads leave memory resident: %zu bytes after half of them, %zu after all",
		      rounds * TOGETHER, before, after);
}

int main(int argc, char **argv)
{
	const char *variant = argc > 1 ? argv[1] : "keys";
	check_watchdog(100);
	if (strcmp(variant, "keys") == 0)
		run_keys();
	else if (strcmp(variant, "exits") == 0)
		run_exits();
	else if (strcmp(variant, "short") == 0)
		run_short();
	else
		CHECK(false, "no variant '%s'", variant);
	printf("%s: %s\n", check_mode(), variant);
	return 0;
}
