/* SPDX-License-Identifier: MIT */
/*
 * profile/dump: writes the process's own samples to a file, from any place: a slow path of the allocator, a
 * signal handler, an exit handler.  Takes no lock, and allocates nothing but a temporary mapping.
 */
#ifndef CPUSLAB_PROFILE_DUMP_H
#define CPUSLAB_PROFILE_DUMP_H

#include <stdbool.h>

/* Returns 0 or a positive errno: ENODATA without a profile, EBUSY while another thread writes one. */
int profile_dump(int file, bool proto);
/* The same, to a new file with the name that cpuslab_profile_dump() documents. */
int profile_dump_new(void);
/*
 * The same where an option asks for it, so that no caller sees an error: reports it on stderr, once per
 * process.
 */
void profile_dump_by_option(void);

/* Starts what CPUSLAB_OPTIONS asks for: a profile from the start, a signal's handler. */
void profile_begin(void);
/* After a sample: writes a file where growth or a new high asks for it. */
void profile_look(void);

#endif
