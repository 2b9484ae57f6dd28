/* SPDX-License-Identifier: MIT */
/* launch: runs processes under a chosen allocator, and reports what the kernel says they used. */
#ifndef CPUSLAB_BENCH_LAUNCH_H
#define CPUSLAB_BENCH_LAUNCH_H

#include "peers.h"

#include <stddef.h>
#include <sys/types.h>

struct launch {
	char *const *argv;
	const struct peer *peer; /* NULL: the environment as it is */
	const char *directory;   /* to run in; NULL: here */
	const char *output;      /* file for stdout; NULL: /dev/null */
	bool quiet;              /* stderr to /dev/null too */
	/*
	 * Debian links some programs against another allocator.  With this, the system's malloc is preloaded
	 * by name instead of left out, and the program gets the library in BENCH_PRELOAD, not LD_PRELOAD.
	 */
	bool indirect;
	int cpu;                 /* to pin to, or -1 */
	int input_fd, output_fd; /* when not 0: stdin and stdout */
};

struct usage {
	double wall, cpu;          /* seconds */
	double peak_bytes, faults; /* of the largest process; of all */
	double exit_status;        /* 0 for success */
};

/*
 * The peak of a forked process counts the pages of the parent that it was copied from: so the command stays
 * far smaller than anything it measures.
 */
pid_t launch_start(const struct launch *launch);
bool launch_wait(pid_t child, struct usage *usage);

/* Starts, waits and times.  Returns false unless the process ended with status 0. */
bool launch_run(const struct launch *launch, struct usage *usage);

/* Starts a worker that writes `size` bytes once to its standard output and then exits with status 0. */
bool launch_report(struct launch launch, void *report, size_t size);

/*
 * The same in steps, for a worker that answers more than once or late: others may be started meanwhile.
 * reporter_end closes and waits, and must be called whether or not the others succeeded; it returns false
 * unless the worker ended with status 0.
 */
struct reporter {
	pid_t child;
	int from;
};
bool reporter_start(struct reporter *reporter, struct launch launch);
bool reporter_read(struct reporter *reporter, void *report, size_t size);
bool reporter_end(struct reporter *reporter);

/* A worker of this command that answers requests one by one, under one allocator. */
struct session {
	pid_t child;
	int to, from;
	bool broken;
};
bool session_open(struct session *session, const struct peer *peer, const char *worker);
bool session_ask(struct session *session, const void *request, size_t request_size, void *reply,
		 size_t reply_size);
void session_close(struct session *session);

/* The worker's side: returns false when the other end has closed. */
bool session_receive(void *request, size_t size);
bool session_reply(const void *reply, size_t size);

/* This command, to start workers with: the very file that runs, even if a build has replaced it since. */
extern char launch_program[];

/* Returns where this command lies, to find what was built or installed with it. */
const char *launch_self(void);

/* Finds a file that was built or installed with this command; returns false if it is missing. */
bool launch_beside(const char *name, char path[static PATH_MAX]);

/* CPU time that this process has used, in seconds. */
struct cpu_time {
	double user, system;
};
struct cpu_time cpu_time(void);

/*
 * Two seconds of a nearly idle process: a small allocation every 10 ms, as an idle server's timers make them.
 * Allocators that give memory back on such occasions get them; those with a thread of their own get the time.
 */
void rest(void);

/*
 * Returns the exact resident bytes of this process: summed over its page tables, not read from lazy counters.
 */
double resident_bytes(void);
/* Returns those of them that are not file-backed. */
double anonymous_bytes(void);

/* Makes a temporary folder below TMPDIR; returns false, with a message, if there is none. */
bool launch_make_folder(char folder[static PATH_MAX]);
void launch_remove_folder(const char *folder);

#endif
