/* SPDX-License-Identifier: MIT */
#include "inspect/bounds.h"
#include "inspect/target.h"
#include "inspect/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *command_name; /* NULL in a child, which prints nothing */
static void (*restore_all)(void);

/* ---- progress --------------------------------------------------------------------------------------- */

/* The reading thread. */
struct reader {
	clockid_t clock; /* its CPU-time clock */
	pid_t pid;
	struct timespec used;
	unsigned still; /* seconds without progress */
};

/* Called once a second.  Returns whether the reader has made no progress `still` times in a row. */
static bool is_kept(struct reader *reader, unsigned still)
{
	struct timespec used = reader->used;

	clock_gettime(reader->clock, &used);
	bool moves = used.tv_sec != reader->used.tv_sec || used.tv_nsec != reader->used.tv_nsec ||
		     target_state(reader->pid) == 'R';

	reader->used = used;
	reader->still = moves ? 0 : reader->still + 1;
	return reader->still >= still;
}

/* ---- a command that looks at one process ------------------------------------------------------------ */

static _Atomic(pid_t) looked_at; /* 0: none */
static atomic_uint seconds;

/*
 * When the watch thread calls this, the reading thread may be stuck for ever, perhaps with stdio's lock: so
 * it avoids stdio.
 */
noreturn static void end_by_bounds(const char *why)
{
	char line[256];
	int length = snprintf(line, sizeof(line), "%s: process %d: %s\n", command_name, (int)looked_at, why);

	/* If restore_all gets stuck like the reader, the alarm ends the process. */
	signal(SIGALRM, SIG_DFL);
	alarm(2);
	if (restore_all)
		restore_all();
	if (write(STDERR_FILENO, line, (size_t)length) < 0)
		_exit(1);
	_exit(1);
}

/*
 * Counts turns of a second, not clock time: while the command is stopped, by its user or with the machine,
 * its time does not run out.  A thread, not a signal handler: a thread that waits for another process's page
 * takes none but fatal signals.
 */
static void *watch(void *reader)
{
	for (;;) {
		sleep(1);
		if (!looked_at)
			seconds = 0;
		else if (is_kept(reader, BOUNDS_STILL) || ++seconds >= BOUNDS_SECONDS)
			end_by_bounds("it cannot be read within bounds of time");
	}
}

static void bound_memory(void)
{
	struct rlimit bytes;

	/*
	 * Not RLIMIT_AS: address space that is only reserved, by the command's own malloc for one, costs
	 * nothing.
	 */
	if (getrlimit(RLIMIT_DATA, &bytes) == 0 && bytes.rlim_cur > BOUNDS_BYTES) {
		bytes.rlim_cur = BOUNDS_BYTES;
		setrlimit(RLIMIT_DATA, &bytes);
	}
}

void bounds_begin(const char *command, void (*restore)(void))
{
	static struct reader reader;
	pthread_t thread;
	sigset_t all, before;

	command_name = command;
	restore_all = restore;
	bound_memory();
	/* Signals must go to the thread that waits for them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	reader.pid = getpid();
	int failed = pthread_getcpuclockid(pthread_self(), &reader.clock);

	if (!failed)
		failed = pthread_create(&thread, NULL, watch, &reader);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed) {
		fprintf(stderr, "%s: %s\n", command, strerror(failed));
		exit(1);
	}
}

void bounds_look(pid_t pid)
{
	seconds = 0;
	looked_at = pid;
}

void bounds_done(void)
{
	looked_at = 0;
}

noreturn void bounds_no_room(void)
{
	if (!command_name)
		_exit(1);
	end_by_bounds("it claims more than can be read within bounds of memory");
}

/* ---- a look at many --------------------------------------------------------------------------------- */

/* Processes that took too long. */
enum { OUTCASTS = 64, OUTCAST_SECONDS = 300 };
static struct outcast {
	pid_t pid;
	uint64_t start_time;
	double until;
} outcasts[OUTCASTS];

static bool is_outcast(pid_t pid)
{
	uint64_t start_time;

	for (size_t i = 0; i < OUTCASTS; i++)
		if (outcasts[i].pid == pid && wait_now() < outcasts[i].until &&
		    target_start_time(pid, &start_time) && start_time == outcasts[i].start_time)
			return true;
	return false;
}

/* Replaces the entry that expires first. */
static void cast_out(pid_t pid)
{
	struct outcast *first = &outcasts[0];

	for (size_t i = 1; i < OUTCASTS; i++)
		if (outcasts[i].until < first->until)
			first = &outcasts[i];
	*first = (struct outcast){.pid = pid, .until = wait_now() + OUTCAST_SECONDS};
	if (!target_start_time(pid, &first->start_time))
		first->pid = 0;
}

/* What a child reports: that it looks at a process, what it saw, or that its time is up for this one. */
struct message {
	enum { LOOKS, SAW, LATE } what;
	size_t index, bytes;
};

static bool tell(int to, const void *what, size_t bytes)
{
	for (const char *from = what; bytes;) {
		ssize_t written = write(to, from, bytes);

		if (written < 0 && errno != EINTR)
			return false;
		from += written > 0 ? written : 0;
		bytes -= written > 0 ? (size_t)written : 0;
	}
	return true;
}

/* Kills a child that makes no progress. */
static bool hear(int from, struct reader *child, void *what, size_t bytes)
{
	for (char *to = what; bytes;) {
		struct pollfd end = {.fd = from, .events = POLLIN};
		int ready = poll(&end, 1, 1000);

		if (ready == 0 && is_kept(child, SURVEY_STILL))
			kill(child->pid, SIGKILL);
		if (ready <= 0)
			continue;
		ssize_t got = read(from, to, bytes);

		if (got == 0 || (got < 0 && errno != EINTR))
			return false;
		to += got > 0 ? got : 0;
		bytes -= got > 0 ? (size_t)got : 0;
	}
	return true;
}

/* A signal that the command handles must end a child. */
static void drop_handlers(void)
{
	struct sigaction action;
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			signal(number, SIG_DFL);
	signal(SIGALRM, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

noreturn static void look_at_all(const struct bounds_survey *survey, const pid_t *pids, size_t index,
				 size_t count, double end, int to)
{
	command_name = NULL;
	bound_memory();
	drop_handlers();
	char *answer = malloc(survey->answer_bytes);

	for (; answer && index < count; index++) {
		struct message message = {.what = wait_now() < end ? LOOKS : LATE, .index = index};

		if (is_outcast(pids[index]))
			continue;
		if (!tell(to, &message, sizeof(message)) || message.what == LATE)
			_exit(1);
		/* Its parent may be gone by then. */
		alarm(SURVEY_EACH);
		message.bytes = survey->look(pids[index], answer, survey->answer_bytes);
		alarm(0);
		message.what = SAW;
		if (!tell(to, &message, sizeof(message)) || !tell(to, answer, message.bytes))
			_exit(1);
	}
	_exit(!answer);
}

/* Starts a child that continues at `index`; returns the read end of the pipe it reports to, or -1. */
static int start_child(const struct bounds_survey *survey, const pid_t *pids, size_t index, size_t count,
		       double end, struct reader *child)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0)
		return -1;
	*child = (struct reader){.pid = fork()};
	if (child->pid == 0) {
		close(ends[0]);
		look_at_all(survey, pids, index, count, end, ends[1]);
	}
	close(ends[1]);
	if (child->pid < 0) {
		close(ends[0]);
		return -1;
	}
	clock_getcpuclockid(child->pid, &child->clock);
	return ends[0];
}

/* Takes a child's reports until it ends; returns the last one, which tells where it ended. */
static struct message take_answers(const struct bounds_survey *survey, int from, struct reader *child,
				   void *answer)
{
	struct message message = {.what = SAW}, next;

	while (hear(from, child, &next, sizeof(next))) {
		message = next;
		if (message.what != SAW || !message.bytes)
			continue;
		if (message.bytes > survey->answer_bytes || !hear(from, child, answer, message.bytes)) {
			message.what = LOOKS;
			break;
		}
		survey->take(survey->context, message.index, answer, message.bytes);
	}
	return message;
}

static void leave_out(const struct bounds_survey *survey, pid_t pid, int status)
{
	if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGALRM))
		cast_out(pid);
	if (survey->command)
		fprintf(stderr, "%s: process %d cannot be read within bounds, left out\n", survey->command,
			(int)pid);
}

bool bounds_survey(const struct bounds_survey *survey, const pid_t *pids, size_t count)
{
	double end = wait_now() + SURVEY_ALL;
	void *answer = malloc(survey->answer_bytes);
	bool whole = answer;

	signal(SIGCHLD, SIG_DFL);
	for (size_t index = 0; whole && index < count;) {
		int status = 0;
		struct reader child;
		int from = start_child(survey, pids, index, count, end, &child);

		if (from < 0) {
			whole = false;
			break;
		}
		struct message last = take_answers(survey, from, &child, answer);

		close(from);
		while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR)
			;
		if (last.what == LATE && survey->command)
			fprintf(stderr, "%s: no time for process %d and those after it, left out\n",
				survey->command, (int)pids[last.index]);
		if (last.what != LOOKS) {
			whole = last.what == LATE || status == 0;
			break;
		}
		leave_out(survey, pids[last.index], status);
		index = last.index + 1;
	}
	free(answer);
	return whole;
}
