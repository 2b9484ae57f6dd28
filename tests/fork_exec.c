/* SPDX-License-Identifier: MIT */
/*
 * fork_exec: threaded programs that start others without fork().
 *
 *   fork_exec spawn         posix_spawn
 *   fork_exec vfork         vfork, then exec at once
 *   fork_exec vfork_alloc   vfork, and the child allocates and frees before it execs, in its parent's memory:
 *                           it has the parent's thread area but no restartable sequences of its own
 */
#include "load.h"

#include <spawn.h>

extern char **environ;

/* The program itself, run as the child: the start of a normal program, and no path to search. */
static char program[4096];
static char *const child_arguments[] = {program, (char *)"child", NULL};

static void run_spawn(void)
{
	posix_spawn_file_actions_t actions;
	pid_t child;
	CHECK(posix_spawn_file_actions_init(&actions) == 0);
	for (int file = 100; file < 120; file++)
		CHECK(posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, file) == 0);
	CHECK(posix_spawn(&child, program, &actions, NULL, child_arguments, environ) == 0);
	CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
	CHECK_EXITED(check_wait(child), 5);
	CHECK(posix_spawn(&child, "/nowhere/at/all", NULL, NULL, child_arguments, environ) == ENOENT);
}

static void run_vfork(void)
{
	pid_t child = vfork();
	if (child == 0) {
		execve(program, child_arguments, environ);
		_exit(127);
	}
	CHECK(child > 0);
	CHECK_EXITED(check_wait(child), 5);
}

enum { PASSED_ON = 200 };

/* The child changes the parent's memory: the parent verifies it and goes on using it. */
static void *passed_on[PASSED_ON];

__attribute__((noinline)) static void allocate_in_child(void)
{
	void *objects[64];
	for (int round = 0; round < 40; round++) {
		for (size_t i = 0; i < 64; i++) {
			objects[i] = malloc(8 + i * 9);
			CHECK(objects[i]);
			check_stamp(objects[i], 8 + i * 9, i);
		}
		for (size_t i = 0; i < 64; i++) {
			CHECK_STAMP(objects[i], 8 + i * 9, i);
			free(objects[i]);
		}
	}
	for (size_t i = 0; i < PASSED_ON; i++) {
		CHECK_STAMP(passed_on[i], 100 + i, i);
		free(passed_on[i]);
		passed_on[i] = malloc(50 + i);
		CHECK(passed_on[i]);
		check_stamp(passed_on[i], 50 + i, i);
	}
	free(malloc(400000));
	free(calloc(1, 4 << 20));
}

static void run_vfork_alloc(void)
{
	static unsigned rounds;
	for (size_t i = 0; i < PASSED_ON; i++) {
		passed_on[i] = malloc(100 + i);
		check_stamp(passed_on[i], 100 + i, i);
	}
	bool execs = rounds++ % 4 == 0;
	pid_t child = vfork();
	if (child == 0) {
		allocate_in_child();
		if (execs)
			execve(program, child_arguments, environ);
		_exit(5);
	}
	CHECK(child > 0);
	CHECK_EXITED(check_wait(child), 5);
	for (size_t i = 0; i < PASSED_ON; i++) {
		CHECK_STAMP(passed_on[i], 50 + i, i);
		free(passed_on[i]);
	}
}

static void *start_others(void *run)
{
	for (unsigned long i = check_rounds(100, 5000, 3); i; i--)
		((void (*)(void))(uintptr_t)run)();
	return NULL;
}

int main(int argc, char **argv)
{
	const char *variant = argc > 1 ? argv[1] : "spawn";
	if (strcmp(variant, "child") == 0) {
		free(malloc(100));
		_exit(5);
	}
	check_watchdog(100);
	ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
	CHECK(length > 0);
	void (*run)(void) = strcmp(variant, "spawn") == 0         ? run_spawn
			    : strcmp(variant, "vfork") == 0       ? run_vfork
			    : strcmp(variant, "vfork_alloc") == 0 ? run_vfork_alloc
								  : NULL;
	CHECK(run, "no variant '%s'", variant);
	struct load load;
	load_start(&load, 4, load_run);
	pthread_t second = 0;
	if (run != run_vfork_alloc) /* which passes one array on */
		second = check_thread(start_others, (void *)(uintptr_t)run);
	start_others((void *)(uintptr_t)run);
	if (second)
		check_join(second);
	load_stop(&load);
	printf("%s: %s\n", check_mode(), variant);
	return 0;
}
