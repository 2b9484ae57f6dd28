/* SPDX-License-Identifier: MIT */
/*
 * startup_errno: a first malloc that succeeds, and a first free, leave errno alone, also where the system
 * refuses what the library asks of it: most of its system calls fail here.
 */
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { NONE_OF_THEIRS = 77 };

static void refuse(void)
{
	static const long calls[] = {SYS_madvise, SYS_membarrier, SYS_sched_getaffinity, SYS_prlimit64,
				     SYS_getrusage};
	enum { CALLS = sizeof calls / sizeof *calls };
	struct sock_filter filter[2 * CALLS + 2] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	unsigned short length = 1;

	for (unsigned i = 0; i < CALLS; i++) {
		filter[length++] =
			(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
		filter[length++] = (struct sock_filter)BPF_STMT(
			BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (EPERM & SECCOMP_RET_DATA));
	}
	filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {length, filter};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		check_skip("no seccomp here");
}

static void *first_free(void *object)
{
	errno = NONE_OF_THEIRS;
	free(object);
	CHECK(errno == NONE_OF_THEIRS, "errno is %d", errno);
	return NULL;
}

int main(void)
{
	pthread_t thread;
	refuse();
	errno = NONE_OF_THEIRS;
	void *object = malloc(100);
	int after = errno;
	CHECK(object && after == NONE_OF_THEIRS, "errno is %d", after);
	CHECK(pthread_create(&thread, NULL, first_free, object) == 0 && pthread_join(thread, NULL) == 0);
	return 0;
}
