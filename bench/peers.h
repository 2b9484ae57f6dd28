/* SPDX-License-Identifier: MIT */
/*
 * peers: the allocators found on this machine.
 *
 * Every allocator is measured as its users meet it: as the malloc of a process of its own, preloaded, and
 * called through the address that dlsym gives for "malloc".  An allocator that is opened beside another one
 * shares neither its process's start, nor its page faults, nor its threads' exits.
 */
#ifndef CPUSLAB_BENCH_PEERS_H
#define CPUSLAB_BENCH_PEERS_H

#include "results.h"

#include <limits.h>

struct peer {
	char name[RESULTS_NAME];
	char library[PATH_MAX];  /* for LD_PRELOAD; "" for the system's malloc */
	const char *environment; /* KEY=VALUE that it needs; NULL: nothing */
	bool bound;              /* not one of the allocators, and for programs of one thread */
};

enum { PEERS_MAX = 24 };

struct peers {
	struct peer list[PEERS_MAX];
	unsigned count;
};

/*
 * `selection` is "auto" (all that are here), "none" (cpuslab and the system's malloc), or a list of names,
 * where name=FILE adds an allocator that the table does not know.  Each one is started once and asked who
 * serves its malloc, so that a library which failed to load can never be measured under its name.  What is
 * found is named with version and file in the results; what is missing, in a note.  False when the selection
 * is wrong.
 */
bool peers_find(struct peers *peers, const char *selection, struct results *results);

/* Adds those of the group hardened that are here. */
void peers_add_hardened(struct peers *peers, struct results *results);

const struct peer *peers_named(const struct peers *peers, const char *name);

/* The process that answers: prints the file that malloc comes from, and its version. */
int worker_identify(int argc, char **argv);

#endif
