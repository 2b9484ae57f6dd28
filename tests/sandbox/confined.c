/* SPDX-License-Identifier: MIT */
/*
 * confined MODE [NUMBER...]: a program that puts itself into a sandbox which kills for these system calls,
 * and then uses its heap for a while.  Knows nothing of the library, which is preloaded or not.
 *
 *   single   one thread, which has allocated before
 *   early    one thread, which has not
 *   threads  three threads that have allocated before, and one that begins in the sandbox
 *   forked   a child of a process with one thread
 *   orphan   a child of a process with threads
 *
 * Exits with 77 where there is no such sandbox, and by SIGSYS where it kills.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NUMBERS = 64, OBJECTS = 36000, BESIDE = 2000, ROUNDS = 2, TICK = 120000 };

static void confine(char **numbers)
{
	struct sock_filter filter[2 * NUMBERS + 2] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	unsigned short length = 1;

	for (; *numbers && length < 2 * NUMBERS; numbers++) {
		filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
								(unsigned)atoi(*numbers), 0, 1);
		filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	}
	filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {length, filter};

	/* For all threads. */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
		_exit(77);
}

static void *touched(void *object, size_t bytes)
{
	if (!object)
		_exit(9);
	return memset(object, 1, bytes);
}

/* Objects of many sizes: what the system gives and takes for them. */
static void use_sizes(void)
{
	static const size_t sizes[] = {100, 5000, 40000, 300000, 1 << 20, 5 << 20};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		void *aligned = aligned_alloc(1 << 16, 1 << 16);
		char *object = touched(malloc(sizes[i]), sizes[i]), *zeroed = calloc(1, sizes[i]);

		if (!zeroed || zeroed[sizes[i] - 1])
			_exit(9);
		object = touched(realloc(object, 2 * sizes[i]), 2 * sizes[i]);
		free(touched(aligned, 1 << 16));
		free(zeroed);
		free(object);
	}
	free(malloc(SIZE_MAX / 4));
}

static void *use_heap(void *objects_here)
{
	size_t count = objects_here ? BESIDE : OBJECTS;
	void **objects = touched(malloc(count * sizeof *objects), 1);

	for (int round = 0; round < ROUNDS; round++) {
		for (size_t i = 0; i < count; i++)
			objects[i] = touched(malloc(16 + i * 7 % 2000), 16);
		use_sizes();
		for (size_t i = 0; i < count; i++)
			free(objects[i]);
		usleep(TICK);
		free(malloc(3000));
	}
	free(objects);
	return NULL;
}

static pthread_barrier_t confined;

static void *wait_and_use(void *unused)
{
	(void)unused;
	free(malloc(100));
	pthread_barrier_wait(&confined);
	pthread_barrier_wait(&confined);
	return use_heap(&confined);
}

static void in_threads(char **numbers)
{
	pthread_t threads[3];

	pthread_barrier_init(&confined, NULL, 3);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, wait_and_use, NULL);
	pthread_barrier_wait(&confined);
	confine(numbers);
	pthread_barrier_wait(&confined);
	if (pthread_create(&threads[2], NULL, use_heap, &confined) != 0)
		_exit(9);
	use_heap(NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
}

/* Exits as the child did. */
static void in_child(char **numbers)
{
	int status;

	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		confine(numbers);
		use_heap(NULL);
		exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		_exit(9);
	if (WIFSIGNALED(status)) {
		signal(WTERMSIG(status), SIG_DFL);
		raise(WTERMSIG(status));
	}
	_exit(WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	const char *options = getenv("CPUSLAB_OPTIONS");
	char **numbers = argv + 2;
	pid_t self = getpid();

	if (strcmp(mode, "early") != 0)
		free(malloc(100));
	if (strcmp(mode, "threads") == 0) {
		in_threads(numbers);
	} else if (strcmp(mode, "orphan") == 0) {
		pthread_t threads[2];

		pthread_barrier_init(&confined, NULL, 3);
		for (int i = 0; i < 2; i++)
			pthread_create(&threads[i], NULL, wait_and_use, NULL);
		pthread_barrier_wait(&confined);
		in_child(numbers);
	} else if (strcmp(mode, "forked") == 0) {
		in_child(numbers);
	} else {
		confine(numbers);
		use_heap(NULL);
	}
	/* What the option profile_signal waits for. */
	if (options && strstr(options, "profile_signal"))
		kill(self, SIGUSR2);
	exit(0);
}
