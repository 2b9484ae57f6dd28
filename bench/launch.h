/* SPDX-License-Identifier: MIT */
/* launch: processes under one allocator or another, and what the kernel says they used. */
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
	 * by name instead of left out, and the program is handed the library in BENCH_PRELOAD, not
	 * LD_PRELOAD.
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
 * The peak of a process that is started by fork counts the pages of the parent that it was copied from: the
 * command therefore stays far smaller than anything that it measures.
 */
pid_t launch_start(const struct launch *launch);
bool launch_wait(pid_t child, struct usage *usage);

/* Starts, waits and times.  False when it did not end with status 0. */
bool launch_run(const struct launch *launch, struct usage *usage);

/* Starts a worker that answers once, with so many bytes on its standard output, and then ends well. */
bool launch_report(struct launch launch, void *report, size_t size);

/*
 * The same in steps, for a worker that answers more than once or late: others may be started meanwhile.
 * reporter_end closes, waits, and is called whether or not the others went well; false when the worker did
 * not end with status 0.
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

/* The worker's side: 0 when the other end has gone. */
bool session_receive(void *request, size_t size);
bool session_reply(const void *reply, size_t size);

/* This command, to start workers with: the very file that runs, even when a build has replaced it since. */
extern char launch_program[];

/* Where this command lies, to find what was built or installed with it. */
const char *launch_self(void);

/* A file that was built or installed with this command.  False when it is not there. */
bool launch_beside(const char *name, char path[static PATH_MAX]);

/* Seconds of CPU time that this process has used. */
struct cpu_time {
	double user, system;
};
struct cpu_time cpu_time(void);

/*
 * Two seconds of a process that has little to do: a small allocation every 10 ms, as an idle server's timers
 * make them.  Allocators that give memory back on such occasions get them, those with a thread of their own
 * get the time.
 */
void rest(void);

/* Resident bytes of this process, exactly: summed over its page tables and not read from lazy counters. */
double resident_bytes(void);
/* Of these, what is no file's. */
double anonymous_bytes(void);

/* A folder of one's own for the time of a measurement, below TMPDIR; false, and told, when there is none. */
bool launch_make_folder(char folder[static PATH_MAX]);
void launch_remove_folder(const char *folder);

#endif
