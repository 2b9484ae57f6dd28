/* SPDX-License-Identifier: MIT */
/*
 * os_random: without getrandom, numbers derive from the random bytes that the kernel gave the process at its
 * start, as libc's own secrets do.  All differ, also from those of the next process, and none reveals a
 * secret: the difference between a number and a secret varies from process to process.
 */
#include "check.h"

#include "os/os.h"

#include <sys/auxv.h>
#include <sys/syscall.h>

static bool asked;

/* The library's getrandom, and all other calls without a libc function, are refused. */
long syscall(long number, ...)
{
	asked |= number == SYS_getrandom;
	errno = EPERM;
	return -1;
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
	CHECK(asked);
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
	return 0;
}
