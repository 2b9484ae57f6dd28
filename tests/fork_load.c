/* SPDX-License-Identifier: MIT */
/*
 * fork_load: fork() at any instant of other threads' allocations leaves a child with an intact heap.
 *
 *   fork_load fork      the child allocates, frees what it inherited, makes threads, forks again, exits
 *   fork_load nested    each child forks under an allocation load of its own
 *   fork_load threads   several threads fork at the same time
 *   fork_load storm     as many forks as possible, of children that allocate, make a thread and exit
 *   fork_load bare      _Fork and the clone system call: no fork handler runs at all
 *   fork_load stdio     streams are opened, read and closed by other threads meanwhile: libc takes its lock
 *                       on the list of streams after the fork handlers of libraries, and allocates while it
 *                       holds it
 *
 * A child that hangs is ended by its own watchdog, a fork that hangs by the parent's.
 */
#include "load.h"

#include <sys/syscall.h>

enum { CHILD_SECONDS = 20 };

static struct load_objects inherited;

static void *child_thread(void *unused)
{
	struct load_objects objects = {{NULL}, {0}};
	uint64_t random = 99;
	for (int i = 0; i < 150; i++)
		load_step(&objects, &random);
	load_release(&objects);
	return unused;
}

/* The first thing every child does: it exercises the fast paths, the depot, slabs, page runs and mappings. */
static void use_heap(void)
{
	struct load_objects objects = {{NULL}, {0}};
	uint64_t random = (uint64_t)getpid();
	load_release(&inherited);
	for (int i = 0; i < 400; i++)
		load_step(&objects, &random);
	void *large = malloc(3 << 20);
	CHECK(large);
	memset(large, 1, 3 << 20);
	large = realloc(large, 5 << 20);
	CHECK(large && check_all_bytes(large, 3 << 20, 1));
	free(large);
	load_release(&objects);
	malloc_trim(0);
}

static void use_threads(void)
{
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		threads[i] = check_thread(child_thread, NULL);
	child_thread(NULL);
	for (int i = 0; i < 3; i++)
		check_join(threads[i]);
}

static void use_streams(void)
{
	char *line = NULL;
	size_t capacity = 0;
	FILE *file = fopen("/proc/self/maps", "r");
	CHECK(file);
	unsigned lines = 0;
	while (getline(&line, &capacity, file) > 0)
		lines++;
	CHECK(lines > 3);
	CHECK(fclose(file) == 0);
	free(line);
}

static pid_t checked_fork(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		check_watchdog(CHILD_SECONDS);
	return child;
}

/* So that the child's first slow path runs in another thread than the one that forked. */
static void use_threads_first(void)
{
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		threads[i] = check_thread(child_thread, NULL);
	for (int i = 0; i < 20000; i++) {
		uint64_t *object = malloc(64);
		*object = (uint64_t)i;
		CHECK(*(volatile uint64_t *)object == (uint64_t)i);
		free(object);
	}
	for (int i = 0; i < 2; i++)
		check_join(threads[i]);
}

__attribute__((noreturn)) static void ordinary_child(bool threads_first)
{
	if (threads_first)
		use_threads_first();
	use_heap();
	use_threads();
	use_streams();
	pid_t grandchild = checked_fork();
	if (grandchild == 0) {
		use_heap();
		use_threads();
		exit(0);
	}
	use_heap();
	CHECK_EXITED(check_wait(grandchild), 0);
	exit(0); /* runs exit handlers and closes streams */
}

static void refill_inherited(uint64_t *random)
{
	for (int i = 0; i < 300; i++)
		load_step(&inherited, random);
}

static void run_fork(unsigned long forks)
{
	struct load load;
	uint64_t random = 12;
	load_start(&load, 3, load_run);
	for (; forks; forks--) {
		refill_inherited(&random);
		load_let_work(&load, &random);
		pid_t child = checked_fork();
		if (child == 0)
			ordinary_child(forks % 2);
		CHECK_EXITED(load_wait(&load, child), 0);
	}
	load_stop(&load);
}

static void run_nested(unsigned long forks)
{
	struct load load;
	uint64_t random = 14;
	load_start(&load, 2, load_run);
	for (; forks; forks--) {
		load_let_work(&load, &random);
		pid_t child = checked_fork();
		if (child == 0) {
			struct load own;
			load_start(&own, 3, load_run);
			for (int i = 0; i < 3; i++) {
				load_let_work(&own, &random);
				pid_t grandchild = checked_fork();
				if (grandchild == 0) {
					use_heap();
					use_threads();
					_exit(0);
				}
				CHECK_EXITED(load_wait(&own, grandchild), 0);
			}
			load_stop(&own);
			use_heap();
			exit(0);
		}
		CHECK_EXITED(load_wait(&load, child), 0);
	}
	load_stop(&load);
}

static unsigned long forks_each;

static void *fork_repeatedly(void *unused)
{
	struct load_objects objects = {{NULL}, {0}};
	uint64_t random = 7 + (uint64_t)pthread_self();
	for (unsigned long i = 0; i < forks_each; i++) {
		for (int j = 0; j < 100; j++)
			load_step(&objects, &random);
		pid_t child = checked_fork();
		if (child == 0) {
			for (int j = 0; j < 300; j++)
				load_step(&objects, &random);
			load_release(&objects);
			use_threads();
			malloc_trim(0);
			_exit(0);
		}
		CHECK_EXITED(check_wait(child), 0);
	}
	load_release(&objects);
	return unused;
}

static void run_threads(unsigned long forks)
{
	struct load load;
	pthread_t forkers[4];
	forks_each = forks / 4 + 1;
	load_start(&load, 2, load_run);
	for (int i = 0; i < 4; i++)
		forkers[i] = check_thread(fork_repeatedly, NULL);
	for (int i = 0; i < 4; i++)
		check_join(forkers[i]);
	load_stop(&load);
}

static void *small_child_thread(void *unused)
{
	struct load_objects objects = {{NULL}, {0}};
	uint64_t random = 99;
	for (int i = 0; i < 30; i++)
		load_step(&objects, &random);
	load_release(&objects);
	return unused;
}

/* The child does little before it exits, so that many children meet many instants. */
static void run_storm(unsigned long forks)
{
	struct load load;
	uint64_t random = 12;
	load_start(&load, 2, load_run);
	for (; forks; forks--) {
		for (int i = 0; i < 20; i++)
			load_step(&inherited, &random);
		pid_t child = checked_fork();
		if (child == 0) {
			pthread_t thread = check_thread(small_child_thread, NULL);
			load_release(&inherited);
			small_child_thread(NULL);
			check_join(thread);
			exit(0);
		}
		CHECK_EXITED(check_wait(child), 0);
	}
	load_stop(&load);
}

/* No handler ran in these children, so they may use only the heap: no stdio, no new threads. */
static void run_bare(unsigned long forks)
{
	if (!check_cpuslab())
		check_skip("only cpuslab promises a usable heap after a bare _Fork");
	struct load load;
	uint64_t random = 13;
	load_start(&load, 3, load_run);
	for (; forks; forks--) {
		refill_inherited(&random);
		load_let_work(&load, &random);
		pid_t child = forks % 2 ? _Fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		CHECK(child >= 0);
		if (child == 0) {
			check_watchdog(CHILD_SECONDS);
			use_heap();
			pid_t grandchild = _Fork();
			if (grandchild == 0) {
				check_watchdog(CHILD_SECONDS);
				use_heap();
				_exit(0);
			}
			use_heap();
			CHECK_EXITED(check_wait(grandchild), 0);
			_exit(0);
		}
		CHECK_EXITED(load_wait(&load, child), 0);
	}
	load_stop(&load);
}

static void *stream_load(void *argument)
{
	struct load *load = argument;
	while (!__atomic_load_n(&load->stop, __ATOMIC_RELAXED)) {
		char *text = NULL;
		size_t length;
		FILE *memory = open_memstream(&text, &length);
		CHECK(memory);
		fprintf(memory, "%s %d %s\n", "one", 2, "three");
		fclose(memory);
		free(text);
		use_streams();
		load_turn(load);
	}
	return NULL;
}

/* Holds the lock of one stream while it allocates a line. */
static void *line_load(void *argument)
{
	struct load *load = argument;
	FILE *file = fopen("/proc/self/maps", "r");
	CHECK(file);
	while (!__atomic_load_n(&load->stop, __ATOMIC_RELAXED)) {
		char *line = NULL;
		size_t capacity = 0;
		if (getline(&line, &capacity, file) < 0)
			rewind(file);
		free(line);
		load_turn(load);
	}
	fclose(file);
	return NULL;
}

/* Holds the lock on the list of streams while it waits for each stream's own. */
static void *flush_load(void *argument)
{
	struct load *load = argument;
	while (!__atomic_load_n(&load->stop, __ATOMIC_RELAXED)) {
		fflush(NULL);
		usleep(200); /* the lock on the list is not fair, and fork waits for it too */
		load_turn(load);
	}
	return NULL;
}

static void run_stdio(unsigned long forks)
{
	struct load load;
	uint64_t random = 15;
	load_start(&load, 1, stream_load);
	load_add(&load, 1, line_load);
	load_add(&load, 1, flush_load);
	load_add(&load, 1, load_run);
	for (; forks; forks--) {
		load_let_work(&load, &random);
		pid_t child = checked_fork();
		if (child == 0) {
			use_streams();
			fflush(NULL);
			use_heap();
			use_threads();
			FILE *pipe = forks % 8 == 0 ? popen("echo text", "r") : NULL;
			if (pipe) {
				char text[16];
				CHECK(fgets(text, sizeof text, pipe) && strcmp(text, "text\n") == 0);
				CHECK(pclose(pipe) == 0);
			}
			exit(0);
		}
		use_streams();
		CHECK_EXITED(load_wait(&load, child), 0);
	}
	load_stop(&load);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(unsigned long forks);
		unsigned everyday, soak;
	} variants[] = {
		{"fork", run_fork, 80, 6000},        {"nested", run_nested, 40, 1500},
		{"threads", run_threads, 200, 1500}, {"bare", run_bare, 100, 1500},
		{"stdio", run_stdio, 60, 1500},      {"storm", run_storm, 100, 100000},
	};
	const char *name = argc > 1 ? argv[1] : "fork";
	for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
		if (strcmp(name, variants[i].name) == 0) {
			unsigned long forks = check_rounds(variants[i].everyday, variants[i].soak, 5);
			check_watchdog(200);
			variants[i].run(forks);
			printf("%s: %lu forks\n", check_mode(), forks);
			return 0;
		}
	CHECK(false, "no variant '%s'", name);
}
