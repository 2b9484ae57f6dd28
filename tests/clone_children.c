/* SPDX-License-Identifier: MIT */
/*
 * clone_children: tasks that libc's clone() makes in their maker's memory allocate like any other, while
 * threads of the process do.
 *
 *   clone_children suspended   CLONE_VFORK, with SIGCHLD and without; the child returns, exits, execs, or
 * dies by a signal; afterwards its maker's fast path serves again clone_children nested      such children of
 * such children, and of vfork clone_children waited      no CLONE_VFORK, but the maker waits for the child
 *   clone_children mixed       both kinds by turns, and forks in them
 *   clone_children beside      several children run beside their maker, which allocates too
 *   clone_children alone       the same in a process without threads
 *   clone_children threads     threads made by hand, with a thread pointer of their own
 */
#include "load.h"

#include <dlfcn.h>
#include <sys/mman.h>

enum { STACK = 128 << 10, OBJECTS = 32, CHILDREN = 6, LEFT = 7 };

static char program[4096];

/* Objects of few sizes, which all tasks take from the same words. */
static void churn(unsigned long tag, int turns)
{
	unsigned long *objects[OBJECTS] = {0};
	for (int i = 0; i < turns; i++) {
		unsigned long k = ((unsigned long)i * 7 + tag) % OBJECTS;
		if (objects[k])
			CHECK(*objects[k] == (tag ^ k), "an object that has two owners");
		free(objects[k]);
		objects[k] = malloc(64);
		CHECK(objects[k]);
		*objects[k] = tag ^ k;
	}
	for (int k = 0; k < OBJECTS; k++)
		free(objects[k]);
}

static void *churn_on(void *argument)
{
	struct load *load = argument;
	while (!__atomic_load_n(&load->stop, __ATOMIC_RELAXED)) {
		churn((unsigned long)pthread_self(), 500);
		load_turn(load);
	}
	return NULL;
}

static char *new_stack(void)
{
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(stack != MAP_FAILED);
	return stack;
}

enum ending { RETURNS, EXITS, EXECS, DIES, ENDINGS };

static int work_and_end(void *argument)
{
	enum ending ending = (enum ending)(uintptr_t)argument;
	churn(1000 + ending, 3000);
	free(calloc(1, 3 << 20));
	char *const arguments[] = {program, (char *)"child", NULL};
	if (ending == EXITS)
		_exit(LEFT);
	if (ending == EXECS)
		execv(program, arguments);
	if (ending == DIES)
		raise(SIGKILL);
	return LEFT;
}

static int ended_with(pid_t child, int flags)
{
	int status;
	/* One without a signal at its end is waited for with __WALL alone. */
	CHECK(waitpid(child, &status, flags & SIGCHLD ? 0 : __WALL) == child);
	return status;
}

static void check_ending(int status, enum ending ending)
{
	if (ending == DIES)
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status 0x%x", status);
	else
		CHECK_EXITED(status, LEFT);
}

/* How many of a thousand pairs missed; the other threads rest. */
static unsigned long misses(struct load *load)
{
	__atomic_store_n(&load->rest, 1, __ATOMIC_RELAXED);
	usleep(20000);
	free(malloc(64));
	struct cpuslab_counters before = check_counters();
	for (int i = 0; i < 1000; i++)
		free(malloc(64));
	struct cpuslab_counters after = check_counters();
	load_go_on(load);
	return after.alloc_misses - before.alloc_misses;
}

static void run_suspended(struct load *load)
{
	char *stack = new_stack();
	sigset_t before, after;
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	for (unsigned long i = 0; i < check_rounds(60, 2000, 4); i++) {
		enum ending ending = i % ENDINGS;
		int flags = i / ENDINGS % 2 ? CLONE_VM | CLONE_VFORK : CLONE_VM | CLONE_VFORK | SIGCHLD;
		pid_t child = clone(work_and_end, stack + STACK, flags, (void *)(uintptr_t)ending);
		CHECK(child > 0);
		check_ending(ended_with(child, flags), ending);
		churn(i, 500);
	}
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	CHECK(memcmp(&before, &after, 8) == 0, "the mask is the child's");
	if (check_cpuslab() && !check_hardened())
		CHECK(misses(load) < 100, "%lu misses after the last child", misses(load));
}

__attribute__((noinline)) static void vfork_to(int (*function)(void *), void *argument)
{
	pid_t child = vfork();
	if (child == 0)
		_exit(function(argument));
	CHECK(child > 0);
	CHECK_EXITED(check_wait(child), LEFT);
}

static int work_and_nest(void *levels)
{
	churn(40 + (uintptr_t)levels, 500);
	if (levels) {
		char *stack = new_stack();
		pid_t child = clone(work_and_nest, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD,
				    (char *)levels - 1);
		CHECK(child > 0);
		CHECK_EXITED(check_wait(child), LEFT);
		vfork_to(work_and_end, (void *)RETURNS);
		munmap(stack, STACK);
	}
	churn(50 + (uintptr_t)levels, 500);
	return LEFT;
}

static void run_nested(struct load *load)
{
	(void)load;
	for (unsigned long i = 0; i < check_rounds(15, 500, 2); i++) {
		CHECK(work_and_nest((void *)3) == LEFT);
		vfork_to(work_and_nest, (void *)2);
	}
}

static void run_waited(struct load *load)
{
	char *stack = new_stack();
	for (unsigned long i = 0; i < check_rounds(60, 2000, 4); i++) {
		enum ending ending = i % ENDINGS;
		int flags = i / ENDINGS % 2 ? CLONE_VM : CLONE_VM | SIGCHLD;
		pid_t child = clone(work_and_end, stack + STACK, flags, (void *)(uintptr_t)ending);
		CHECK(child > 0);
		check_ending(ended_with(child, flags), ending);
		churn(i, 500);
	}
	if (load->count && check_cpuslab() && !check_hardened())
		CHECK(misses(load) < 100, "%lu misses after the last child", misses(load));
}

static int fork_and_end(void *argument)
{
	(void)argument;
	churn(70, 200);
	pid_t child = fork();
	if (child == 0) {
		churn(71, 1000);
		_exit(LEFT);
	}
	CHECK(child > 0);
	CHECK_EXITED(check_wait(child), LEFT);
	return LEFT;
}

/* Each kind after each other, with forks in them, and with nothing allocated in between. */
static void run_mixed(struct load *load)
{
	char *stack = new_stack();
	for (unsigned long i = 0; i < check_rounds(30, 1000, 3); i++) {
		int flags = i % 3 ? CLONE_VM | SIGCHLD : CLONE_VM | CLONE_VFORK | SIGCHLD;
		pid_t child =
			clone(i % 2 ? fork_and_end : work_and_end, stack + STACK, flags, (void *)RETURNS);
		CHECK(child > 0);
		CHECK_EXITED(ended_with(child, flags), LEFT);
		if (i % 4 == 0)
			vfork_to(work_and_end, (void *)RETURNS);
	}
	if (check_cpuslab() && !check_hardened())
		CHECK(misses(load) < 100, "%lu misses after the last child", misses(load));
}

/*
 * Both sides use libc through one thread pointer, as libc's own malloc could not bear; ours must.  Nothing
 * else of libc is called meanwhile.
 */
static void run_beside(struct load *load)
{
	(void)load;
	char *stacks[CHILDREN];
	pid_t children[CHILDREN];
	for (int i = 0; i < CHILDREN; i++)
		stacks[i] = new_stack();
	for (unsigned long round = 0; round < check_rounds(12, 300, 2); round++) {
		for (int i = 0; i < CHILDREN; i++) {
			children[i] = clone(work_and_end, stacks[i] + STACK, CLONE_VM | SIGCHLD,
					    (void *)(uintptr_t)(i % 2 ? RETURNS : EXITS));
			CHECK(children[i] > 0);
			churn(100 + (unsigned)i, 1000);
		}
		for (int i = 0; i < CHILDREN; i++)
			CHECK_EXITED(ended_with(children[i], SIGCHLD), LEFT);
	}
}

/* A call that is refused changes nothing. */
static void run_refused(struct load *load)
{
	static char stack[4096] __attribute__((aligned(16)));
	CHECK(clone(work_and_end, NULL, CLONE_VM | SIGCHLD, NULL) == -1 && errno == EINVAL);
	CHECK(clone(NULL, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL) == -1 && errno == EINVAL);
	/* A thread that shares no handlers. */
	CHECK(clone(work_and_end, stack + sizeof stack, CLONE_VM | CLONE_THREAD, NULL) == -1 &&
	      errno == EINVAL);
	CHECK(clone(work_and_end, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_THREAD, NULL) == -1 &&
	      errno == EINVAL);
	if (load->count && check_cpuslab() && !check_hardened())
		CHECK(misses(load) < 100, "%lu misses after a refused call", misses(load));
}

struct made {
	char *stack;
	pid_t id;
	unsigned tag;
};

static int run_thread(void *argument)
{
	const struct made *made = argument;
	for (int i = 0; i < 20; i++) {
		churn(made->tag, 500);
		void *large = malloc(1 << 20);
		CHECK(large);
		free(large);
	}
	return 0;
}

static void run_threads(struct load *load)
{
	enum {
		FLAGS = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
			CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID
	};
	(void)load;
#ifdef __x86_64__
	void *(*allocate)(void *) = (void *(*)(void *))dlsym(RTLD_DEFAULT, "_dl_allocate_tls");
	void **own = __builtin_thread_pointer();
	if (!allocate)
		check_skip("this C library makes no thread pointers for others");
	struct made made[CHILDREN] = {{NULL, 0, 0}};
	for (unsigned long round = 0; round < check_rounds(10, 300, 2); round++) {
		for (unsigned i = 0; i < CHILDREN; i++) {
			void **pointer = allocate(NULL);
			pointer[0] = pointer[2] = pointer;
			pointer[5] = own[5], pointer[6] = own[6]; /* the guards of stack and pointers */
			if (!made[i].stack)
				made[i].stack = new_stack();
			made[i].tag = 900 + i;
			CHECK(clone(run_thread, made[i].stack + STACK, FLAGS, &made[i], &made[i].id, pointer,
				    &made[i].id) > 0);
		}
		for (unsigned i = 0; i < CHILDREN; i++)
			for (pid_t id; (id = __atomic_load_n(&made[i].id, __ATOMIC_ACQUIRE));)
				syscall(SYS_futex, &made[i].id, FUTEX_WAIT, id, NULL, NULL, 0);
	}
#else
	(void)run_thread;
	check_skip("thread pointers are known on x86-64 alone");
#endif
}

int main(int argc, char **argv)
{
	static const struct variant {
		const char *name;
		unsigned threads;
		void (*run)(struct load *);
	} variants[] = {{"suspended", 4, run_suspended}, {"mixed", 3, run_mixed},
			{"nested", 4, run_nested},       {"waited", 4, run_waited},
			{"beside", 3, run_beside},       {"alone", 0, run_beside},
			{"refused", 2, run_refused},     {"threads", 2, run_threads}};
	const char *wanted = argc > 1 ? argv[1] : "suspended";
	if (strcmp(wanted, "child") == 0) {
		free(malloc(100));
		_exit(LEFT);
	}
	check_watchdog(100);
	ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
	CHECK(length > 0);
	free(malloc(100));
	for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
		struct load load;
		if (strcmp(variants[i].name, wanted) != 0)
			continue;
		load_start(&load, variants[i].threads, churn_on);
		variants[i].run(&load);
		load_stop(&load);
		printf("%s: %s\n", check_mode(), wanted);
		return 0;
	}
	CHECK(false, "no variant '%s'", wanted);
}
