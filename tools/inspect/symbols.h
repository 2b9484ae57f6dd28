/* SPDX-License-Identifier: MIT */
/* inspect/symbols: function names, files and lines from the files that a process has mapped. */
#ifndef CPUSLAB_TOOLS_SYMBOLS_H
#define CPUSLAB_TOOLS_SYMBOLS_H

#include <sys/types.h>

#include "profile/format.h"

struct symbols;

struct symbols *symbols_open(const struct profile_mapping *mappings, size_t count, pid_t pid);
void symbols_close(struct symbols *symbols);
/* Returns `name`: the function that contains an address; else "file+0x123", else the address. */
const char *symbols_name(struct symbols *symbols, uint64_t address, char *name, size_t bytes);
/*
 * Finds what is shown of an address: "function at file:line", demangled, with as much as is known of it; one
 * text for each function inlined there, the innermost first, then that of the function that contains it.  At
 * least one; they stay until the symbols are closed.
 */
size_t symbols_texts(struct symbols *symbols, uint64_t address, char *const **texts);
/*
 * Returns how many of a sample's innermost frames are the allocator's.  As a shared library, the allocator
 * leaves out its own frames (src/check/unwind.h): then there are none, and the program may use the same
 * function names.  Linked into the program, they are known by their names.
 */
unsigned symbols_own_frames(struct symbols *symbols, const uint64_t *frames, unsigned count);

#endif
