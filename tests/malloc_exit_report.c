/* SPDX-License-Identifier: MIT */
/*
 * malloc_exit_report: the report at exit goes to the file that standard error was at the start, or nowhere,
 * but never into a file of the program's own, whatever it has closed and opened since.
 */
#include "check.h"

#include <sys/mman.h>

enum { FILES = 200 };

static const struct way {
	const char *name;
	int from, to;    /* descriptors that the program closes, and reopens for its own data */
	bool is_written; /* whether the report arrives where standard error was */
} ways[] = {
	{"nothing", 0, 0, true},
	{"error", STDERR_FILENO, STDERR_FILENO + 1, true},
	{"others", STDERR_FILENO + 1, FILES, true},
	{"all", STDERR_FILENO, FILES, false},
};
enum { WAYS = sizeof ways / sizeof *ways, DATA = 250 };

static int run(const char *name)
{
	const struct way *way = ways;

	while (strcmp(way->name, name) != 0)
		CHECK(++way < ways + WAYS);
	free(malloc(1000));
	for (int file = way->from; file < way->to; file++)
		CHECK(dup2(DATA, file) == file);
	return 0;
}

/* Reads a file from its start to its end. */
static size_t read_all(int file, char *text, size_t bytes)
{
	CHECK(lseek(file, 0, SEEK_SET) == 0);
	ssize_t length = read(file, text, bytes - 1);
	CHECK(length >= 0);
	text[length] = 0;
	return (size_t)length;
}

static void check_way(const struct way *way)
{
	static char text[1 << 16];
	int error = memfd_create("error", 0), data = memfd_create("data", 0);

	CHECK(error >= 0 && data >= 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		const char *given = getenv("CPUSLAB_OPTIONS");
		char options[256];

		snprintf(options, sizeof options, "%s%sstats_at_exit:true", given ? given : "",
			 given && *given ? "," : "");
		setenv("CPUSLAB_OPTIONS", options, 1);
		CHECK(dup2(data, DATA) == DATA && dup2(error, STDERR_FILENO) == STDERR_FILENO);
		execl("/proc/self/exe", "malloc_exit_report", way->name, NULL);
		_exit(127);
	}
	int status = check_wait(child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: wait status %#x", way->name,
	      (unsigned)status);
	CHECK(read_all(data, text, sizeof text) == 0, "%s: the data is now: %.100s", way->name, text);
	size_t length = read_all(error, text, sizeof text);
	CHECK(way->is_written ? length > 100 : length == 0, "%s: %zu bytes: %.100s", way->name, length, text);
	close(error);
	close(data);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return run(argv[1]);
	if (!check_cpuslab())
		check_skip("another malloc");
	for (const struct way *way = ways; way < ways + WAYS; way++)
		check_way(way);
	return 0;
}
