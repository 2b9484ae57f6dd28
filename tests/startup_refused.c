/* SPDX-License-Identifier: MIT */
/*
 * startup_refused: where the system refuses what the library needs to start, that costs a call or two each
 * time that the program asks for memory, not a search for another place.  Once the limit is raised, the next
 * call gets its memory.  Counted by a tracer, for each limit on data and on addresses that is too small.
 */
#include "check.h"

#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

enum { ASKED = 40, MOST_EACH = 6, STEP = 64 << 10, LAST = 2 << 20 };

/* Each call of malloc lies between two such calls. */
static void mark(void)
{
	syscall(SYS_close, -4711);
}

/* Ends with 0 when all was refused, with 1 when nothing was. */
static void ask(int resource, rlim_t bytes)
{
	struct rlimit was, small;
	int got = 0;

	CHECK(getrlimit(resource, &was) == 0);
	small = was;
	small.rlim_cur = bytes;
	CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 && raise(SIGSTOP) == 0);
	CHECK(setrlimit(resource, &small) == 0);
	for (int i = 0; i < ASKED; i++) {
		errno = 0;
		mark();
		void *volatile object = malloc(100);
		int error = errno;

		got += object != NULL;
		if (!object && error != ENOMEM)
			_exit(2);
	}
	mark();
	CHECK(setrlimit(resource, &was) == 0);
	void *volatile object = malloc(100);

	_exit(!object ? 3 : got == 0 ? 0 : 1);
}

/* Runs the child to its next system call, or the return from one; false when it has ended with `*status`. */
static bool next_stop(pid_t child, int *status)
{
	CHECK(ptrace(PTRACE_SYSCALL, child, NULL, NULL) == 0);
	CHECK(waitpid(child, status, 0) == child);
	return WIFSTOPPED(*status);
}

static bool at_mark(pid_t child)
{
	struct __ptrace_syscall_info information;
	long bytes = ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof information, &information);

	CHECK(bytes > 0);
	return information.op == PTRACE_SYSCALL_INFO_ENTRY && information.entry.nr == SYS_close &&
	       (int)information.entry.args[0] == -4711;
}

/* Whether the limit was too small. */
static bool check_limit(int resource, rlim_t bytes)
{
	int status, stops = 0, asked = -1, after_first = 0;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0)
		ask(resource, bytes);
	CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
	CHECK(ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0);
	while (next_stop(child, &status)) {
		stops++;
		if (!at_mark(child))
			continue;
		if (asked > 0)
			after_first += stops / 2 - 1; /* a stop at each end of a call, one call is the mark */
		asked++;
		stops = 0;
	}
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) <= 1, "%llu bytes of limit %d: %#x",
	      (unsigned long long)bytes, resource, (unsigned)status);
	CHECK(asked == ASKED, "%d marks", asked);
	if (WEXITSTATUS(status) == 1)
		return false;
	CHECK(after_first <= (ASKED - 1) * MOST_EACH, "%llu bytes of limit %d: %d calls in %d mallocs",
	      (unsigned long long)bytes, resource, after_first, ASKED - 1);
	return true;
}

int main(void)
{
	static const int resources[] = {RLIMIT_DATA, RLIMIT_AS};

	if (!check_cpuslab())
		check_skip("another malloc");
	for (int i = 0; i < 2; i++) {
		int refused = 0;

		for (rlim_t bytes = STEP; bytes <= LAST; bytes += STEP)
			refused += check_limit(resources[i], bytes);
		if (!refused)
			check_skip("the library has started before main");
	}
	return 0;
}
