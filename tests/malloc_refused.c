/* SPDX-License-Identifier: MIT */
/*
 * malloc_refused: under a sandbox that refuses calls the library does all its work.  Each of rseq,
 * membarrier, madvise, process_madvise, mincore, mprotect and getrandom is refused alone, and all at once, by
 * a seccomp filter that is there before the program starts; and all but rseq by one that comes when the
 * library is at work already.
 */
#include "load.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif

enum { CALLS = 7, ALL = CALLS, ALL_BUT_RSEQ, VARIANTS };
static const long calls[CALLS] = {SYS_rseq,     SYS_membarrier, SYS_madvise,        SYS_mincore,
				  SYS_mprotect, SYS_getrandom,  SYS_process_madvise};
static const char *const names[VARIANTS] = {"rseq",        "membarrier", "madvise",         "mincore",
					    "mprotect",    "getrandom",  "process_madvise", "all",
					    "all but rseq"};

static bool refuses(unsigned variant, unsigned call)
{
	return variant == ALL || variant == call || (variant == ALL_BUT_RSEQ && calls[call] != SYS_rseq);
}

/* Refuses what a variant says with EPERM, from now on and in all programs that this one starts. */
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

/* More than the first step of the heap, and so much that it would grow by huge pages; several threads, and a
 * child, whatever of it is refused. */
static void work(void)
{
	enum { BLOCKS = 8000 };
	static void *blocks[BLOCKS];
	pthread_t threads[3];

	for (unsigned i = 0; i < BLOCKS; i++) {
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
		for (unsigned i = 0; i < BLOCKS; i++)
			free(blocks[i]);
		use_heap(NULL);
		_exit(0);
	}
	for (unsigned i = 0; i < 3; i++)
		check_join(threads[i]);
	CHECK_EXITED(check_wait(child), 0);
	malloc_trim(0);
	for (unsigned i = 0; i < BLOCKS; i++) {
		CHECK_STAMP(blocks[i], 5000, i);
		free(blocks[i]);
	}
}

static void late(void *unused)
{
	(void)unused;
	work();
	refuse(ALL_BUT_RSEQ);
	work();
}

/* What refuses mprotect comes when the program has been loaded, which needs it. */
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
		work();
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
