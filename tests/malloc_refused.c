/* SPDX-License-Identifier: MIT */
/*
 * malloc_refused: in a sandbox that refuses calls the library still works completely. rseq, membarrier,
 * madvise, mprotect and getrandom are refused, each alone and all at once, by a seccomp filter installed
 * before the program starts; and all but rseq by one installed when the library is already at work.  The
 * refused calls are counted, to prove that the library made them: its madvise, mprotect and syscall are this
 * program's.
 */
#include "load.h"

#include <cpuslab/cache.h>

#include <dlfcn.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

enum { CALLS = 5, ALL = CALLS, ALL_BUT_RSEQ, VARIANTS };
static const long calls[CALLS] = {SYS_rseq, SYS_membarrier, SYS_madvise, SYS_mprotect, SYS_getrandom};
static const char *const names[VARIANTS] = {"rseq",      "membarrier", "madvise",     "mprotect",
					    "getrandom", "all",        "all but rseq"};

static unsigned long refused[CALLS];

/* Like libc's, but counts what the system refuses. */
long syscall(long number, ...)
{
	static long (*libc_syscall)(long, ...);
	long argument[6];
	va_list arguments;

	va_start(arguments, number);
	for (unsigned i = 0; i < 6; i++)
		argument[i] = va_arg(arguments, long);
	va_end(arguments);
	if (!libc_syscall)
		libc_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	long result = libc_syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4],
				   argument[5]);

	for (unsigned call = 0; call < CALLS; call++)
		if (calls[call] == number && result == -1 && errno == EPERM)
			__atomic_fetch_add(&refused[call], 1, __ATOMIC_RELAXED);
	return result;
}

int madvise(void *address, size_t bytes, int advice)
{
	return (int)syscall(SYS_madvise, address, bytes, advice);
}

int mprotect(void *address, size_t bytes, int protection)
{
	return (int)syscall(SYS_mprotect, address, bytes, protection);
}

static bool refuses(unsigned variant, unsigned call)
{
	return variant == ALL || variant == call || (variant == ALL_BUT_RSEQ && calls[call] != SYS_rseq);
}

/* Refuses a variant's calls with EPERM, from now on and in all programs started from here. */
static void refuse(unsigned variant)
{
	struct sock_filter filter[4 + 2 * CALLS + 1] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	unsigned short length = 4;

	for (unsigned call = 0; call < CALLS; call++)
		if (refuses(variant, call)) {
			filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
									(unsigned)calls[call], 0, 1);
			filter[length++] =
				(struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
		}
	filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {length, filter};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0)
		check_skip("no seccomp filters here");
	for (unsigned call = 0; call < CALLS; call++)
		if (refuses(variant, call))
			CHECK(syscall(calls[call], 0, 0, 0, 0, 0, 0) == -1 && errno == EPERM);
	memset(refused, 0, sizeof refused);
}

/*
 * Whether the library is sure to make the call: without restartable sequences it needs no fences except for
 * locks, and what the kernel itself refused before the filter came it does not ask for again.
 */
static bool is_asked(unsigned variant, unsigned call)
{
	const char *options = getenv("CPUSLAB_OPTIONS");
	bool slots = options && strstr(options, "vcpu:slot");

	if (calls[call] == SYS_membarrier)
		return !slots && variant != ALL && (variant >= CALLS || calls[variant] != SYS_rseq);
	/* At the start, where secrets are wanted. */
	if (calls[call] == SYS_getrandom)
		return variant != ALL_BUT_RSEQ && options && strstr(options, "hardened");
	return calls[call] != SYS_rseq || !slots;
}

static void expect_refusals(unsigned variant)
{
	for (unsigned call = 0; call < CALLS; call++) {
		if (getenv("CPUSLAB_TEST_VERBOSE"))
			dprintf(1, "%s refused: %lu times %s\n", names[variant], refused[call], names[call]);
		if (check_cpuslab() && refuses(variant, call) && is_asked(variant, call))
			CHECK(refused[call] > 0, "%s: %s was never asked for", names[variant], names[call]);
	}
}

static void *use_heap(void *unused)
{
	static struct load_objects objects[LOAD_THREADS];
	static unsigned users;
	struct load_objects *own = &objects[__atomic_fetch_add(&users, 1, __ATOMIC_RELAXED) % LOAD_THREADS];
	uint64_t random = (uint64_t)getpid();

	for (int i = 0; i < 3000; i++)
		load_step(own, &random);
	load_release(own);
	return unused;
}

/* Its links through free objects are encoded with a random secret. */
static void use_linked_cache(void)
{
	const struct cpuslab_cache_args args = {
		.name = "refused", .size = 100, .engine = CPUSLAB_ENGINE_LINKED};
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);
	void *objects[100];

	CHECK(cache);
	for (unsigned i = 0; i < 100; i++) {
		CHECK((objects[i] = cpuslab_cache_alloc(cache)));
		check_stamp(objects[i], 100, i);
	}
	for (unsigned i = 0; i < 100; i++) {
		CHECK_STAMP(objects[i], 100, i);
		cpuslab_cache_free(cache, objects[i]);
	}
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

/*
 * More than the first step of the heap, and enough for it to grow by huge pages; several threads, and a
 * child, whatever is refused.
 */
enum { BLOCKS = 8000 };

static void work(unsigned count)
{
	static void *blocks[BLOCKS];
	pthread_t threads[3];

	for (unsigned i = 0; i < count; i++) {
		blocks[i] = malloc(5000);
		CHECK(blocks[i]);
		check_stamp(blocks[i], 5000, i);
	}
	/* A thread's stack needs mprotect, unless the program brings its own. */
	static char stacks[3][256 << 10] __attribute__((aligned(4096)));
	for (unsigned i = 0; i < 3; i++) {
		pthread_attr_t attributes;
		CHECK(pthread_attr_init(&attributes) == 0);
		CHECK(pthread_attr_setstack(&attributes, stacks[i], sizeof stacks[i]) == 0);
		CHECK(pthread_create(&threads[i], &attributes, use_heap, NULL) == 0);
		CHECK(pthread_attr_destroy(&attributes) == 0);
	}
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		check_watchdog(60);
		for (unsigned i = 0; i < count; i++)
			free(blocks[i]);
		use_heap(NULL);
		_exit(0);
	}
	for (unsigned i = 0; i < 3; i++)
		check_join(threads[i]);
	CHECK_EXITED(check_wait(child), 0);
	malloc_trim(0);
	for (unsigned i = 0; i < count; i++) {
		CHECK_STAMP(blocks[i], 5000, i);
		free(blocks[i]);
	}
	malloc_trim(0);
	use_linked_cache();
}

static void late(void *unused)
{
	(void)unused;
	/* With a smaller heap, so that there is something left to ask for. */
	work(BLOCKS / 2);
	refuse(ALL_BUT_RSEQ);
	work(BLOCKS);
	expect_refusals(ALL_BUT_RSEQ);
}

/* A filter that refuses mprotect is installed after loading, which needs mprotect. */
static bool comes_late(unsigned variant)
{
	return variant == ALL || calls[variant] == SYS_mprotect;
}

static unsigned variant_of(const char *name)
{
	unsigned variant = 0;

	while (strcmp(names[variant], name) != 0)
		CHECK(++variant < VARIANTS);
	return variant;
}

int main(int argc, char **argv)
{
	check_watchdog(100);
	if (argc > 1) {
		if (comes_late(variant_of(argv[1])))
			refuse(variant_of(argv[1]));
		work(BLOCKS);
		expect_refusals(variant_of(argv[1]));
		return 0;
	}
	for (unsigned variant = 0; variant < ALL_BUT_RSEQ; variant++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			/* libc ends a process in which it could register one thread and not another. */
			if (comes_late(variant))
				setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
			else
				refuse(variant);
			execl("/proc/self/exe", "malloc_refused", names[variant], NULL);
			_exit(9);
		}
		int status = check_wait(child);
		if (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_SKIPPED)
			return CHECK_SKIPPED;
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s refused: wait status %#x",
		      names[variant], (unsigned)status);
	}
	char text[1024];
	int status = check_child(late, NULL, text, sizeof text);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s refused late: wait status %#x: %s",
	      names[ALL_BUT_RSEQ], (unsigned)status, text);
	printf("%s: refused one by one and together\n", check_mode());
	return 0;
}
