/* SPDX-License-Identifier: MIT */
/*
 * inspect/target: another process, as far as this one may read it.
 *
 * Attaching finds the library's root record (src/report/root.h) through /proc/PID/maps and the ELF headers in
 * memory; from then on everything is read with process_vm_readv (or /proc/PID/mem where that call is
 * missing).  Nothing runs in the target, it is never stopped, and nothing is written to it but what
 * inspect/ask.h and tools/profile.c say.  So it may change, fork, execute another program or die at any
 * instant: every read can fail, and each user checks what it has read.  A stray write of the program may have
 * hit the record itself: attaching checks that members lie inside their structures.
 */
#ifndef CPUSLAB_TOOLS_TARGET_H
#define CPUSLAB_TOOLS_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "report/root.h"

enum target_status {
	TARGET_READY,
	TARGET_GONE,      /* no such process, or it ended */
	TARGET_FORBIDDEN, /* the system does not let us read it */
	TARGET_FOREIGN,   /* does not use cpuslab */
	TARGET_UNSTARTED, /* has cpuslab, but has not allocated from it yet */
	TARGET_VERSION,   /* its record is of another version, or lacks what this tool needs */
	TARGET_CHANGED,   /* it has executed another program */
};

/* What is looked up in the root record's table: a member for each line of fields.def. */
struct target_fields {
#define FIELD(member, name)             struct root_field member;
#define MEMBER(structure, member, name) struct root_field member;
#define OPTIONAL_FIELD(member, name)    struct root_field member;
#include "inspect/fields.def"
#undef FIELD
#undef MEMBER
#undef OPTIONAL_FIELD
};

struct target {
	pid_t pid;
	/* Through which the process is read: the first thread, or, where that has ended, one that has not. */
	pid_t thread;
	uint64_t start_time; /* of the process, in clock ticks since boot: pids are reused */
	uint64_t root_address;
	struct root root;
	struct target_fields at;
	char name[64];     /* the process's name from the kernel, made printable */
	char trouble[512]; /* after a status other than TARGET_READY: one sentence, without a full stop */
	int memory;        /* /proc/PID/mem where process_vm_readv is missing, else -1 */
};

enum target_status target_attach(struct target *target, pid_t pid);
void target_detach(struct target *target);
/* Returns whether it is still the program that was attached. */
enum target_status target_check(struct target *target);

/* Reads all bytes or none. */
bool target_read(const struct target *target, uint64_t address, void *buffer, size_t bytes);

/* Many small reads in few system calls.  `read` says for each whether all of it was read. */
struct target_piece {
	uint64_t address;
	void *buffer;
	size_t bytes;
	bool read;
};
void target_gather(const struct target *target, struct target_piece *pieces, size_t count);

/*
 * Names in another process may be any bytes, and the kernel truncates a process's name even inside a UTF-8
 * sequence: bytes that are not UTF-8, and terminal control characters, become '?'.
 */
void target_clean_name(char *name);

/* Returns the value of a variable, or of a member inside a copied structure, of 1, 2, 4 or 8 bytes. */
uint64_t target_member(const void *structure, const struct root_field *field);
bool target_variable(const struct target *target, const struct root_field *field, uint64_t *value);

/*
 * Finds the processes that `text` names: a pid, or a name as in /proc/PID/comm or of the executable file.
 * With NULL, all but this one.  Sorted by pid, in an array that the caller must free.  Returns false with
 * errno set when memory is short or there is no /proc.
 */
bool target_find(const char *text, pid_t **pids, size_t *count);
/*
 * Returns whether /proc shows the processes by the numbers that system calls take; says if it does not.
 * Reading by the one what was found by the other would read another process, and profile would write there.
 */
bool target_proc_is_ours(const char *command);
/* Finds when a process started, in clock ticks since boot. */
bool target_start_time(pid_t pid, uint64_t *start_time);
/* Returns the process's state letter in /proc/PID/stat; 0 if there is no such process. */
char target_state(pid_t pid);

/*
 * For a command line: attaches to the one process with cpuslab that `text` names, or, if it is NULL, to the
 * only one on the machine.  Returns false with a message on standard error if there is none, or more than
 * one.
 */
bool target_open(struct target *target, const char *command, const char *text);

#endif
