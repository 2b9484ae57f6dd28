/* SPDX-License-Identifier: MIT */
/*
 * startup_no_keys: a program that has every key for thread-specific data before it first allocates.  The
 * library then does without one of its own, and leaves the program's alone; threads come and go as ever.
 */
#include "check.h"

enum { ROOM = 32, THREADS = 40 }; /* values of so many keys need no memory */
static pthread_key_t keys[ROOM];
static int mark;
static unsigned ended;

static void on_end(void *value)
{
	CHECK(value == &mark);
	__atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED);
}

/* Before main, and before the library has started. */
__attribute__((constructor(101))) static void take_all_keys(void)
{
	pthread_key_t key;
	for (unsigned i = 0; i < ROOM; i++)
		CHECK(pthread_key_create(&keys[i], on_end) == 0);
	while (pthread_key_create(&key, NULL) == 0)
		;
}

static void set_values(void)
{
	for (unsigned i = 0; i < ROOM; i++)
		CHECK(pthread_setspecific(keys[i], &mark) == 0);
}

static void check_values(void)
{
	for (unsigned i = 0; i < ROOM; i++)
		CHECK(pthread_getspecific(keys[i]) == &mark, "the value of key %u was changed", keys[i]);
}

static void allocate(void)
{
	for (size_t size = 1; size < 100000; size = size * 3 / 2 + 1) {
		void *object = malloc(size);
		CHECK(object);
		check_stamp(object, size, size);
		CHECK_STAMP(object, size, size);
		free(object);
	}
}

static void *use(void *unused)
{
	set_values();
	allocate();
	check_values();
	return unused;
}

int main(void)
{
	check_watchdog(60);
	use(NULL);
	for (int i = 0; i < THREADS; i++)
		check_join(check_thread(use, NULL));
	CHECK(ended == THREADS * ROOM, "%u of %u values were there at the end", ended, THREADS * ROOM);
	/* Misses are as few as with a key. */
	struct cpuslab_counters before = check_counters(), after;
	for (int i = 0; i < 1000; i++)
		free(malloc(48));
	after = check_counters();
	CHECK(after.alloc_misses - before.alloc_misses < 20, "%lu misses",
	      (unsigned long)(after.alloc_misses - before.alloc_misses));
	printf("%s\n", check_mode());
	return 0;
}
