/* SPDX-License-Identifier: MIT */
/*
 * profile/dump: the own process's samples into a file, from any place: a slow path of the allocator, a signal
 * handler, an exit handler.  No lock, no allocation but a mapping for the time being.
 */
#ifndef CPUSLAB_PROFILE_DUMP_H
#define CPUSLAB_PROFILE_DUMP_H

#include <stdbool.h>

/* 0 or a positive errno: ENODATA without a profile, EBUSY while another thread writes one. */
int profile_dump(int file, bool proto);
/* To a new file of the name that cpuslab_profile_dump() tells. */
int profile_dump_new(void);
/* The same where an option asks for it, and nobody for what became of it: says so on stderr, once in a
 * process. */
void profile_dump_by_option(void);

/* What CPUSLAB_OPTIONS asks for: a profile from the start, and a signal's handler. */
void profile_begin(void);
/* After a sample: writes a file where growth or a new high asks for it. */
void profile_look(void);

#endif
