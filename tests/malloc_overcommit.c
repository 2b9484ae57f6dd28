/* SPDX-License-Identifier: MIT */
/*
 * malloc_overcommit: with vm.overcommit_memory=2 (never), where reserved address space must not count as
 * memory, the library starts, serves every kind of allocation, answers requests beyond the limit with NULL
 * and ENOMEM, and goes on.
 *
 * The setting is system-wide.  So it is made only in `make soak`, by root, for a second, and with a limit so
 * high that nobody else comes near it; a process in a session of its own restores it, whatever happens to the
 * others.
 */
#include "check.h"

#include <sys/file.h>
#include <sys/sysinfo.h>

#define MODE  "/proc/sys/vm/overcommit_memory"
#define RATIO "/proc/sys/vm/overcommit_ratio"

enum { NEVER = 2, OBJECTS = 1000, WORK_SECONDS = 30 };
static const size_t LIMIT = 24ul << 40, REFUSED = 32ul << 40;

static long read_setting(const char *path)
{
	char text[32] = "";
	int file = open(path, O_RDONLY);

	CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0);
	close(file);
	return strtol(text, NULL, 10);
}

static bool write_setting(const char *path, long value)
{
	char text[32];
	int file = open(path, O_WRONLY), length = snprintf(text, sizeof text, "%ld\n", value);
	bool written = file >= 0 && write(file, text, (size_t)length) == length;

	if (file >= 0)
		close(file);
	return written;
}

/* Run by a process that starts under the setting. */
static int work(void)
{
	static const size_t sizes[] = {16, 100, 3000, 100000, 5 << 20, 300 << 20};
	static char *objects[OBJECTS];

	CHECK(read_setting(MODE) == NEVER);
	errno = 0;
	CHECK(!malloc(REFUSED) && errno == ENOMEM);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		unsigned count = sizes[i] > 10000 ? 3 : OBJECTS;

		for (unsigned n = 0; n < count; n++) {
			CHECK((objects[n] = malloc(sizes[i])), "%zu bytes", sizes[i]);
			check_stamp(objects[n], 16, n);
		}
		errno = 0;
		CHECK(!realloc(objects[0], REFUSED) && errno == ENOMEM);
		for (unsigned n = 0; n < count; n++) {
			CHECK_STAMP(objects[n], 16, n);
			free(objects[n]);
		}
	}
	return 0;
}

/* Makes the setting, runs the program under it, and restores it. */
static int guardian(void)
{
	struct sysinfo memory;
	int lock = open(MODE, O_RDONLY);

	/* Prevents restoring the setting of another guardian. */
	CHECK(lock >= 0 && flock(lock, LOCK_EX) == 0 && sysinfo(&memory) == 0);
	long mode = read_setting(MODE), ratio = read_setting(RATIO);
	size_t part = memory.totalram * memory.mem_unit / 100;
	pid_t child = -1;
	int status = 0;

	if (mode == NEVER || !write_setting(RATIO, (long)(LIMIT / part)))
		return CHECK_SKIPPED;
	if (write_setting(MODE, NEVER) && (child = fork()) == 0) {
		alarm(WORK_SECONDS);
		execl("/proc/self/exe", "malloc_overcommit", "work", (char *)NULL);
		_exit(127);
	}
	if (child > 0 && waitpid(child, &status, 0) != child)
		status = -1;
	bool restored = write_setting(MODE, mode), ratio_restored = write_setting(RATIO, ratio);

	CHECK(restored && ratio_restored);
	if (child < 0)
		return CHECK_SKIPPED;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "work") == 0)
		return work();
	if (!check_soak())
		check_skip("it changes a setting of the whole machine: only in `make soak`");
	if (access(MODE, W_OK) != 0 || access(RATIO, W_OK) != 0)
		check_skip("vm.overcommit_memory cannot be set here");
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		CHECK(setsid() > 0);
		_exit(guardian());
	}
	int status = check_wait(child);

	if (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_SKIPPED)
		check_skip("vm.overcommit_memory cannot be set here");
	CHECK_EXITED(status, 0);
	return 0;
}
