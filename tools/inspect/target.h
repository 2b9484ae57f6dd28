/* SPDX-License-Identifier: MIT */
/*
 * inspect/target: another process, as far as this one may read it.
 *
 * Attaching finds the library's root record (src/report/root.h) through /proc/PID/maps and the ELF headers in
 * memory; from then on everything is process_vm_readv (or /proc/PID/mem where that call is missing).  Nothing
 * is written to the target, nothing runs in it, and it is never stopped.  It may therefore change, fork,
 * execute another program or die at any instant: every read can fail, and what was read is checked by whoever
 * uses it.  A program that writes where it should not may have hit the record itself: attaching makes sure
 * that members lie inside of their structures.
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
	TARGET_FOREIGN,   /* no cpuslab in it */
	TARGET_UNSTARTED, /* cpuslab is there, but nothing has been allocated from it yet */
	TARGET_VERSION,   /* its record is of another version, or lacks what this tool needs */
	TARGET_CHANGED,   /* it executes another program now */
};

/* What the table of the root record is asked for: one member for each line of fields.def. */
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
	uint64_t start_time; /* of the process, in clock ticks since boot: a pid may come again */
	uint64_t root_address;
	struct root root;
	struct target_fields at;
	char name[64];     /* the kernel's name of the process, fit to print */
	char trouble[512]; /* after a status other than TARGET_READY: one sentence, without a full stop */
	int memory;        /* /proc/PID/mem where process_vm_readv is missing, else -1 */
};

enum target_status target_attach(struct target *target, pid_t pid);
void target_detach(struct target *target);
/* Whether it is still the program that was attached. */
enum target_status target_check(struct target *target);

/* All bytes or nothing. */
bool target_read(const struct target *target, uint64_t address, void *buffer, size_t bytes);

/* Many small reads in few system calls.  `read` tells for each whether all of it came. */
struct target_piece {
	uint64_t address;
	void *buffer;
	size_t bytes;
	bool read;
};
void target_gather(const struct target *target, struct target_piece *pieces, size_t count);

/*
 * Names in another process may be any bytes, and the kernel cuts a process's name off in the middle of a
 * letter: what is no UTF-8, and what would control a terminal, becomes '?'.
 */
void target_clean_name(char *name);

/* The number that a variable or, inside a copied structure, a member of 1, 2, 4 or 8 bytes holds. */
uint64_t target_member(const void *structure, const struct root_field *field);
bool target_variable(const struct target *target, const struct root_field *field, uint64_t *value);

/*
 * The processes that `text` names: a pid, or a name as in /proc/PID/comm or of the executable file.  With
 * NULL, all but this one.  By their pids, in an array that is the caller's to free; false with errno where
 * there is no memory, or no /proc.
 */
bool target_find(const char *text, pid_t **pids, size_t *count);
/* When a process started, in clock ticks since boot. */
bool target_start_time(pid_t pid, uint64_t *start_time);
/* The letter that /proc/PID/stat has for what it does; 0 where there is no such process. */
char target_state(pid_t pid);

/*
 * For a command line: attaches to the one process with cpuslab that `text` names, or to the only one on the
 * machine where it is NULL.  False with a message on standard error when there is none or more than one.
 */
bool target_open(struct target *target, const char *command, const char *text);

#endif
