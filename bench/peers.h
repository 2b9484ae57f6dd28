/* SPDX-License-Identifier: MIT */
/*
 * peers: the allocators found on this machine.
 *
 * Every allocator is measured as its users meet it: preloaded as the malloc of a process of its own, and
 * called through the address that dlsym gives for "malloc".  Opening it beside another one would leave out
 * its share of the process's start, page faults and thread exits.
 */
#ifndef CPUSLAB_BENCH_PEERS_H
#define CPUSLAB_BENCH_PEERS_H

#include "results.h"

#include <limits.h>

struct peer {
	char name[RESULTS_NAME];
	char library[PATH_MAX];  /* for LD_PRELOAD; "" for the system's malloc */
	const char *environment; /* KEY=VALUE that it needs, or NULL */
	bool bound;              /* a yardstick, not an allocator; for programs of one thread */
};

enum { PEERS_MAX = 24 };

struct peers {
	struct peer list[PEERS_MAX];
	unsigned count;
};

/*
 * `selection` is "auto" (all that are here), "none" (cpuslab and the system's malloc), or a list of names,
 * where name=FILE adds an allocator that the table does not know.  Each one is started once and asked which
 * file serves its malloc, so that a library that failed to load can never be measured under its name.  The
 * results name what is found with version and file, and what is missing in a note.  Returns false if the
 * selection is invalid.
 */
bool peers_find(struct peers *peers, const char *selection, struct results *results);

/* Adds the available allocators of the group hardened. */
void peers_add_hardened(struct peers *peers, struct results *results);

const struct peer *peers_named(const struct peers *peers, const char *name);

/* The worker that answers: prints the file that malloc comes from, and its version. */
int worker_identify(int argc, char **argv);

#endif
