/* SPDX-License-Identifier: MIT */
/*
 * The option leaks_at_exit: reports what is still allocated when the program ends, to the byte where a class
 * is debugged, summed up by allocation site, the largest first.
 */
#include "check.h"

#include <cpuslab/cache.h>

static char text[64 << 10];
static void *volatile kept;

static __attribute__((noinline)) void keep(size_t size, unsigned count)
{
	for (volatile unsigned i = 0; i < count; i++)
		CHECK(kept = malloc(size));
}

static void leave_some(void)
{
	struct cpuslab_cache_args args = {.name = "left over", .size = 40};
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);

	keep(1000, 10);
	keep(7000, 3);
	CHECK(kept = malloc(1 << 20));
	/* Mappings: one kept for reuse after its free is no leak. */
	CHECK(kept = aligned_alloc(16 << 20, 1 << 20));
	free(aligned_alloc(16 << 20, 20 << 20));
	CHECK((kept = cpuslab_cache_alloc(cache)));
	free(malloc(300));
}

/* Runs this program once more, to leave objects and end; its output is in `text`. */
static void run(const char *debug)
{
	int ends[2];
	size_t length = 0;

	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	pid_t child = fork();

	CHECK(child >= 0);
	if (!child) {
		char entry[64];
		char *environment[] = {(char *)"CPUSLAB_OPTIONS=leaks_at_exit:true", entry, NULL};
		char *arguments[] = {(char *)"debug_leaks", (char *)"leave", NULL};

		snprintf(entry, sizeof entry, "CPUSLAB_DEBUG=%s", debug);
		dup2(ends[1], STDERR_FILENO);
		execve("/proc/self/exe", arguments, environment);
		_exit(3);
	}
	close(ends[1]);
	for (ssize_t got; (got = read(ends[0], text + length, sizeof text - 1 - length)) > 0;)
		length += (size_t)got;
	text[length] = 0;
	close(ends[0]);
	int status = check_wait(child);

	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%#x, said: %s", (unsigned)status, text);
}

static const char *said(const char *expected)
{
	const char *place = strstr(text, expected);

	CHECK(place, "not said: %s\nbut: %s", expected, text);
	return place;
}

int main(int count, char **arguments)
{
	(void)arguments;
	check_watchdog(60);
	if (count > 1) {
		leave_some();
		return 0;
	}
	run("U");
	said("cpuslab: still allocated as the program ends (pid ");
	said("         10000         10  malloc-1024\n");
	said("         21000          3  malloc-7168\n");
	said("            40          1  left over\n");
	said("       1048576          1  large\n");
	said("       1048576          1  huge\n");
	CHECK(!strstr(text, "malloc-320"), "what was freed is no leak: %s", text);
	CHECK(said("\n21000 bytes in 3 objects, allocated in\n") <
	      said("\n10000 bytes in 10 objects, allocated in\n"));
	said("\n40 bytes in 1 object, allocated in\n");
	said("\n1048576 bytes in 1 object, allocated in\n"); /* each of the two */

	/* Debugging one class only: the others are counted by their slot size. */
	run("U,malloc-1024");
	said("         10000         10  malloc-1024\n");
	said("         21504          3  malloc-7168\n");
	said("\n10000 bytes in 10 objects, allocated in\n");
	CHECK(!strstr(text, "21000 bytes"));

	run("-");
	said("         10240         10  malloc-1024\n");
	said("CPUSLAB_DEBUG=U tells who allocated them\n");
	CHECK(!strstr(text, "allocated in"));
	return 0;
}
