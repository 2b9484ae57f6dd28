/* SPDX-License-Identifier: MIT */
/*
 * reader_stops: makes the cpuslab command lose its CPU in the middle of reading another process, while that
 * process does some of its work.  READER_ASK and READER_DONE are pipes: a byte into the first requests the
 * work, and a byte out of the second says that it is done.  READER_STOPS says where to stop:
 *
 *   table    once, behind the first non-zero page of a single read of more than a MiB
 *   every    in the middle of every call that reads several pieces
 *   NUMBER   once, before that many pieces
 *
 * READER_NEVER names processes whose memory never arrives, as if a page had to come from somebody who does
 * not send it; READER_NEVER_AFTER names a file from whose creation on this applies.  READER_SLOW: that many
 * calls take a second each, as on a busy machine.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, LARGE = 1 << 20 };

static void stop(void)
{
	int ask = open(getenv("READER_ASK"), O_WRONLY | O_CLOEXEC);
	int done = open(getenv("READER_DONE"), O_RDONLY | O_CLOEXEC);
	char byte = '.';

	if (write(ask, &byte, 1) != 1 || read(done, &byte, 1) != 1)
		abort();
	close(ask);
	close(done);
}

static ssize_t read_some(pid_t pid, const struct iovec *local, unsigned long local_count,
			 const struct iovec *remote, unsigned long remote_count)
{
	return syscall(SYS_process_vm_readv, pid, local, local_count, remote, remote_count, 0ul);
}

static bool is_zero(const char *bytes, size_t count)
{
	while (count && !*bytes)
		bytes++, count--;
	return !count;
}

static ssize_t read_by_pages(pid_t pid, struct iovec to, struct iovec from)
{
	static bool stopped;
	size_t done = 0;

	while (done < from.iov_len) {
		size_t page = from.iov_len - done < PAGE ? from.iov_len - done : PAGE;
		struct iovec local = {(char *)to.iov_base + done, page};
		struct iovec remote = {(char *)from.iov_base + done, page};

		if (read_some(pid, &local, 1, &remote, 1) != (ssize_t)page)
			return -1;
		if (!stopped && !is_zero(local.iov_base, page)) {
			stopped = true;
			stop();
		}
		done += page;
	}
	return (ssize_t)done;
}

/* Returns the total of both halves, if the first was read completely. */
static ssize_t read_halves(pid_t pid, const struct iovec *local, const struct iovec *remote,
			   unsigned long count, unsigned long first)
{
	ssize_t wanted = 0, got, rest;

	for (unsigned long i = 0; i < first; i++)
		wanted += (ssize_t)remote[i].iov_len;
	got = first ? read_some(pid, local, first, remote, first) : 0;
	if (got != wanted)
		return got;
	stop();
	rest = read_some(pid, local + first, count - first, remote + first, count - first);
	return rest < 0 ? (first ? got : -1) : got + rest;
}

/* As the kernel waits for such a page: only a signal that ends this process ends the wait. */
static void wait_for_ever(void)
{
	sigset_t handled;
	struct sigaction action;

	sigemptyset(&handled);
	for (int signal = 1; signal < NSIG; signal++)
		if (sigaction(signal, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
			sigaddset(&handled, signal);
	pthread_sigmask(SIG_BLOCK, &handled, NULL);
	for (;;)
		pause();
}

static bool never_comes(pid_t pid)
{
	const char *after = getenv("READER_NEVER_AFTER"), *pids = getenv("READER_NEVER");
	char wanted[32], all[1024];

	if (!pids || (after && access(after, F_OK) != 0))
		return false;
	snprintf(wanted, sizeof(wanted), " %d ", (int)pid);
	snprintf(all, sizeof(all), " %s ", pids);
	return strstr(all, wanted);
}

static bool takes_time(void)
{
	static unsigned long taken;
	const char *slow = getenv("READER_SLOW");

	return slow && taken++ < strtoul(slow, NULL, 10);
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
			 const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	static unsigned long pieces;
	const char *where = getenv("READER_STOPS");
	unsigned long before = pieces;

	(void)flags;
	if (never_comes(pid))
		wait_for_ever();
	if (takes_time())
		sleep(1);
	pieces += remote_count;
	if (where && strcmp(where, "table") == 0 && remote_count == 1 && remote->iov_len > LARGE)
		return read_by_pages(pid, *local, *remote);
	if (where && strcmp(where, "every") == 0 && remote_count > 1)
		return read_halves(pid, local, remote, remote_count, remote_count / 2);
	if (where && *where >= '0' && *where <= '9') {
		unsigned long at = strtoul(where, NULL, 10);

		if (at >= before && at < pieces)
			return read_halves(pid, local, remote, remote_count, at - before);
	}
	return read_some(pid, local, local_count, remote, remote_count);
}
