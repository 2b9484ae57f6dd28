/* SPDX-License-Identifier: MIT */
/*
 * replaced: allocates, and at SIGUSR1 execs a program without the library that has memory of its own at the
 * library's addresses; at the next signal it says whether anybody has written there.
 */
#include "check.h"

#include <signal.h>
#include <sys/mman.h>

static void await_signal(void)
{
	sigset_t set;
	int number;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(sigwait(&set, &number) == 0);
}

/* Address range of the library, from its first page to the end of the memory that it has written to. */
static bool find_library(unsigned long *start, unsigned long *end)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[4096 + 128];

	*start = *end = 0;
	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long from, to;

		if (sscanf(line, "%lx-%lx", &from, &to) != 2)
			continue;
		if (strstr(line, "libcpuslab.so") || from == *end) {
			*start = *start ? *start : from;
			*end = to;
		}
	}
	if (maps)
		fclose(maps);
	return *start;
}

static int become_another(char **argv)
{
	unsigned long start, end;
	char from[32], bytes[32];

	free(malloc(100));
	puts("begun");
	fflush(stdout);
	await_signal();
	CHECK(find_library(&start, &end));
	snprintf(from, sizeof(from), "%lu", start);
	snprintf(bytes, sizeof(bytes), "%lu", end - start);
	unsetenv("LD_PRELOAD");
	execv("/proc/self/exe", (char *[]){argv[0], from, bytes, NULL});
	return 1;
}

int main(int argc, char **argv)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	if (argc < 3)
		return become_another(argv);
	void *wanted = (void *)strtoul(argv[1], NULL, 10);
	size_t bytes = strtoul(argv[2], NULL, 10);
	unsigned char *memory = mmap(wanted, bytes, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	CHECK(memory == wanted);
	memset(memory, 0xa5, bytes);
	puts("another");
	fflush(stdout);
	await_signal();
	for (size_t i = 1; i < bytes; i++)
		if (memory[i] != memory[0]) {
			puts("written to");
			return 1;
		}
	puts("untouched");
	return 0;
}
