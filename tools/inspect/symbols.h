/* SPDX-License-Identifier: MIT */
/* inspect/symbols: names of functions, from the symbol tables of the files that a process has mapped. */
#ifndef CPUSLAB_TOOLS_SYMBOLS_H
#define CPUSLAB_TOOLS_SYMBOLS_H

#include <sys/types.h>

#include "profile/format.h"

struct symbols;

struct symbols *symbols_open(const struct profile_mapping *mappings, size_t count, pid_t pid);
void symbols_close(struct symbols *symbols);
/* The function that an address lies in; else "file+0x123", else the address; returns `name`. */
const char *symbols_name(struct symbols *symbols, uint64_t address, char *name, size_t bytes);
/*
 * How many of a sample's frames, from the innermost on, are the allocator's.  The library leaves out its own
 * where it is a file of its own (src/check/unwind.h): then none are, and a program may call its functions as
 * it likes. Linked into the program they are known by their names.
 */
unsigned symbols_own_frames(struct symbols *symbols, const uint64_t *frames, unsigned count);

#endif
