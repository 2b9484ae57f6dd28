/* SPDX-License-Identifier: MIT */
/*
 * fork_registration: around each vfork of a threaded program the rseq registration changes hands, with the
 * length that libc registered.  Here libc claims more bytes than the first version of the structure has, as
 * with newer kernels; the kernel is given the length that really exists.  So does what libc asked for in
 * flags: here it claims to have asked for longer time slices (Linux 7.0).  This works at any depth: a child
 * may call vfork itself.
 */
#include "check.h"

#include "counted_calls.h"

#include <sys/auxv.h>

enum { FIRST_VERSION = 32, FEATURES = 40, UNREGISTER = 1, WITH_SLICES = 2, ROUNDS = 10, NESTED = 5 };
/* Of the area's fields `flags`, and of what the kernel shows there. */
enum { FLAGS_AT = 16, SLICES_ON = 1 << 5 };

/* Replaces libc's, which is 0 where it registers nothing. */
extern unsigned __rseq_size;
unsigned __rseq_size = FEATURES;

static unsigned given_up, taken, taken_with_slices;
static uint32_t *shown; /* the area's flags */

__attribute__((constructor(101))) static void ask_libc(void)
{
	const unsigned *size = (const unsigned *)dlsym(RTLD_NEXT, "__rseq_size");
	if (!size)
		check_skip("this C library registers nothing");
	if (*size == 0)
		__rseq_size = 0;
}

/* What the library registers itself: more than the first version wherever the kernel takes more. */
static unsigned own_bytes(void)
{
	unsigned long fields = getauxval(27 /* AT_RSEQ_FEATURE_SIZE */);

	return !fields ? FIRST_VERSION : fields > FIRST_VERSION ? (unsigned)fields : FIRST_VERSION + 1;
}

static long on_syscall(long number, const long argument[static 6])
{
	long as_made[6];
	unsigned bytes = __rseq_size ? __rseq_size : own_bytes();
	memcpy(as_made, argument, sizeof as_made);
	if (number == SYS_rseq) {
		CHECK(argument[1] == bytes, "a registration of %u bytes as if of %ld", bytes, argument[1]);
		as_made[1] = FIRST_VERSION;
		/* Also by this kernel, which knows no such flag and shows none. */
		shown = (uint32_t *)(argument[0] + FLAGS_AT);
		if (argument[2] & WITH_SLICES) {
			__atomic_fetch_add(&taken_with_slices, 1, __ATOMIC_RELAXED);
			as_made[2] = *shown = 0;
		}
		__atomic_fetch_add(argument[2] & UNREGISTER ? &given_up : &taken, 1, __ATOMIC_RELAXED);
	}
	return libc_syscall(number, as_made);
}

static void *wait_for_end(void *end)
{
	while (!__atomic_load_n((bool *)end, __ATOMIC_ACQUIRE))
		usleep(1000);
	return NULL;
}

__attribute__((noinline)) static void start_other(bool slices)
{
	if (slices)
		*shown = SLICES_ON;
	pid_t child = vfork();
	if (child == 0) {
		free(malloc(100));
		_exit(0);
	}
	CHECK(child > 0);
	CHECK_EXITED(check_wait(child), 0);
}

static void free_and_leave(void)
{
	free(malloc(100));
	_exit(0);
}

/* A child, which starts another, and so on. */
__attribute__((noinline)) static void start_nested(unsigned levels)
{
	pid_t child = vfork();
	if (child == 0) {
		if (levels > 1)
			start_nested(levels - 1);
		free_and_leave();
	}
	CHECK(child > 0);
	CHECK_EXITED(check_wait(child), 0);
}

/* A child that changes its signal mask, and has a child itself. */
__attribute__((noinline)) static void start_two(void)
{
	sigset_t none, before, after;
	sigemptyset(&none);
	CHECK(sigprocmask(SIG_BLOCK, &none, &before) == 0);
	pid_t child = vfork();
	if (child == 0) {
		sigset_t own;
		sigemptyset(&own);
		sigaddset(&own, SIGUSR1);
		sigprocmask(SIG_SETMASK, &own, NULL);
		pid_t second = vfork();
		if (second == 0) {
			free(malloc(100));
			_exit(0);
		}
		_exit(second < 0 || check_wait(second) != 0);
	}
	CHECK(child > 0);
	CHECK_EXITED(check_wait(child), 0);
	CHECK(sigprocmask(SIG_BLOCK, &none, &after) == 0);
	CHECK(memcmp(&before, &after, 8) == 0, "the mask is the child's");
}

int main(void)
{
	static bool end;
	check_watchdog(60);
	free(malloc(100));
	if (!check_rseq())
		check_skip("no restartable sequences (%s)", check_mode());
	pthread_t thread = check_thread(wait_for_end, &end);
	unsigned given_before = given_up, taken_before = taken;
	for (int i = 0; i < ROUNDS; i++)
		start_other(false);
	/* Given up once by the parent; taken by the child, and again by the parent. */
	unsigned given = given_up - given_before, got = taken - taken_before;
	CHECK(given == ROUNDS && got == 2 * ROUNDS, "%u times given up, %u taken", given, got);
	for (int i = 0; i < ROUNDS; i++)
		start_two();
	CHECK(given_up - given_before == 3 * ROUNDS && taken - taken_before == 6 * ROUNDS,
	      "%u times given up, %u taken", given_up - given_before, taken - taken_before);
	given_before = given_up, taken_before = taken;
	for (int i = 0; i < ROUNDS; i++)
		start_nested(NESTED);
	CHECK(given_up - given_before == NESTED * ROUNDS && taken - taken_before == 2 * NESTED * ROUNDS,
	      "nested: %u times given up, %u taken", given_up - given_before, taken - taken_before);
	CHECK(!taken_with_slices);
	start_other(true);
	CHECK(taken_with_slices == 2, "%u registrations with the flag", taken_with_slices);
	__atomic_store_n(&end, true, __ATOMIC_RELEASE);
	check_join(thread);
	printf("%s\n", check_mode());
	return 0;
}
