/* SPDX-License-Identifier: MIT */
/*
 * os_random: numbers derive from the random bytes that the kernel gave the process at its start, as libc's
 * own secrets do; where the start asked for secrets, also from getrandom.  All differ, also from those of the
 * next process, and in forked children; none reveals a secret of libc's: the difference between a number and
 * a secret varies from process to process.
 */
#include "check.h"

#include "moved_clock.h"
#include "os/os.h"

#include <stdarg.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

static unsigned asked;
static uint64_t given; /* by getrandom; 0 refuses it */

/* The library's getrandom; all other calls without a libc function are refused. */
long syscall(long number, ...)
{
	va_list arguments;

	errno = EPERM;
	if (number != SYS_getrandom)
		return -1;
	asked++;
	if (!given)
		return -1;
	va_start(arguments, number);
	void *bytes = va_arg(arguments, void *);
	size_t count = va_arg(arguments, size_t);
	va_end(arguments);
	memset(bytes, (int)given, count);
	return (long)count;
}

enum { NUMBERS = 4, SECRETS = 2 };

/* A process's report: its numbers, and the difference of each from both secrets. */
struct said {
	uint64_t numbers[NUMBERS], differences[NUMBERS][SECRETS];
};

static void say(void)
{
	struct said said;
	uint64_t secrets[SECRETS];
	memcpy(secrets, (const void *)getauxval(AT_RANDOM), sizeof secrets);
	for (int i = 0; i < NUMBERS; i++) {
		said.numbers[i] = os_random();
		for (int j = 0; j < SECRETS; j++)
			said.differences[i][j] = said.numbers[i] ^ secrets[j];
	}
	CHECK(asked == 0, "no number needs a system call");
	CHECK(write(STDOUT_FILENO, &said, sizeof said) == sizeof said);
}

static struct said ask(void)
{
	struct said said;
	FILE *process = popen("/proc/$PPID/exe say", "r");
	CHECK(process && fread(&said, sizeof said, 1, process) == 1);
	CHECK(pclose(process) == 0);
	return said;
}

static void all_differ(const uint64_t *one, const uint64_t *other, size_t count)
{
	for (size_t i = 0; i < count; i++)
		CHECK(one[i] != other[i], "number %zu: %#lx", i, one[i]);
}

/* What getrandom gives changes all numbers, though the next turn is the same; it is asked once. */
static uint64_t number_begun(uint64_t bytes)
{
	int ends[2];
	uint64_t number;

	CHECK(pipe(ends) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		given = bytes;
		asked = 0;
		os_random_begin(true);
		number = os_random();
		CHECK(asked == 1);
		CHECK(write(ends[1], &number, sizeof number) == sizeof number);
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
	CHECK(read(ends[0], &number, sizeof number) == sizeof number);
	close(ends[0]);
	close(ends[1]);
	return number;
}

static void test_begin(void)
{
	uint64_t one = number_begun(1), other = number_begun(2), none = number_begun(0);

	CHECK(one == number_begun(1));
	CHECK(one != other && one != none && other != none);
	milliseconds++;
	CHECK(one != number_begun(1), "children forked at different times get the same");
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
		say();
		return 0;
	}
	struct said one = ask(), other = ask();
	all_differ(one.numbers, &one.numbers[1], NUMBERS - 1);
	all_differ(one.numbers, other.numbers, NUMBERS);
	all_differ(one.differences[0], other.differences[0], (size_t)NUMBERS * SECRETS);
	test_begin();
	return 0;
}
