/* SPDX-License-Identifier: MIT */
/*
 * debug_cancelled: malloc and free are no cancellation points, as POSIX requires, even where they write a
 * report or a profile: a thread with a pending cancellation gets through them, and leaves no lock held.
 *
 *   traced    each call is reported on standard error
 *   damaged   so is what was written behind an object, which is repaired
 *   profiled  a profile is written each time that the heap has grown a little
 */
#include "check.h"

#include <dirent.h>

enum { ROUNDS = 50, SIZE = 100 };
static bool damages, came_through;
static char folder[] = "/tmp/cpuslab_cancelled_XXXXXX";

static void allocate(void)
{
	void *objects[ROUNDS];
	for (int i = 0; i < ROUNDS; i++) {
		char *object = objects[i] = malloc(SIZE);
		CHECK(object);
		memset(object, 1, SIZE + damages);
	}
	for (int i = 0; i < ROUNDS; i++)
		free(objects[i]);
}

static void *be_cancelled(void *unused)
{
	CHECK(pthread_cancel(pthread_self()) == 0);
	allocate();
	came_through = true;
	pthread_testcancel();
	return unused;
}

/* Returns the number of files removed. */
static unsigned remove_folder(void)
{
	unsigned files = 0;
	DIR *directory = opendir(folder);
	CHECK(directory);
	for (struct dirent *entry; (entry = readdir(directory));)
		if (entry->d_name[0] != '.') {
			CHECK(unlinkat(dirfd(directory), entry->d_name, 0) == 0);
			files++;
		}
	closedir(directory);
	CHECK(rmdir(folder) == 0);
	return files;
}

static void test(const char *variant)
{
	damages = strcmp(variant, "damaged") == 0;
	check_watchdog(60);
	CHECK(check_join(check_thread(be_cancelled, NULL)) == PTHREAD_CANCELED);
	CHECK(came_through, "cancelled in malloc or free");
	/* No lock is still held. */
	allocate();
}

static void run(const char *variant, const char *debug, const char *options)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char *arguments[] = {"debug_cancelled", (char *)variant, NULL};
		char profile[64];
		int nowhere = open("/dev/null", O_WRONLY);
		CHECK(nowhere >= 0 && dup2(nowhere, STDERR_FILENO) >= 0);
		snprintf(profile, sizeof profile, "%s/profile", folder);
		CHECK(setenv("CPUSLAB_DEBUG", debug, 1) == 0 && setenv("CPUSLAB_OPTIONS", options, 1) == 0 &&
		      setenv("CPUSLAB_PROFILE", profile, 1) == 0);
		execv("/proc/self/exe", arguments);
		_exit(127);
	}
	int status = check_wait(child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: wait status %#x", variant,
	      (unsigned)status);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		test(argv[1]);
		return 0;
	}
	CHECK(mkdtemp(folder));
	run("traced", "T,malloc-112", "");
	run("damaged", "FZ,malloc-112", "debug_continue:true");
	run("profiled", "", "profile:1,profile_growth:1K");
	unsigned dumps = remove_folder();
	CHECK(dumps > 1, "%u profiles", dumps);
	return 0;
}
