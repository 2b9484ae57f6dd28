/* SPDX-License-Identifier: MIT */
/*
 * startup_no_keys: a program that creates keys for thread-specific data before it first allocates.  The
 * library leaves these alone, and threads come and go as usual.
 *
 *   startup_no_keys all    every key there is: the library does without one of its own
 *   startup_no_keys many   so many that libc allocates memory for the value of the library's
 */
#include "check.h"

enum { ROOM = 32, MANY = 40, THREADS = 40 }; /* values of ROOM keys need no memory */
static pthread_key_t keys[ROOM];
static int mark;
static unsigned ended;

static void on_end(void *value)
{
	CHECK(value == &mark);
	__atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED);
}

/* Before main, and before the library has started. */
__attribute__((constructor(101))) static void take_keys(int argc, char **argv)
{
	bool all = argc < 2 || strcmp(argv[1], "many") != 0;
	pthread_key_t key;
	for (unsigned i = 0; i < ROOM; i++)
		CHECK(pthread_key_create(&keys[i], on_end) == 0);
	for (unsigned i = ROOM; (all || i < MANY) && pthread_key_create(&key, NULL) == 0; i++)
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
	/* Misses are as few as with a key, once what follows many threads' ends is over. */
	for (int i = 0; i < 5000; i++)
		free(malloc(48));
	struct cpuslab_counters before = check_counters(), after;
	for (int i = 0; i < 1000; i++)
		free(malloc(48));
	after = check_counters();
	CHECK(after.alloc_misses - before.alloc_misses < 20, "%lu misses",
	      (unsigned long)(after.alloc_misses - before.alloc_misses));
	printf("%s\n", check_mode());
	return 0;
}
