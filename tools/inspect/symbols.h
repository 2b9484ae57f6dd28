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
/* Whether the function is one by which programs allocate, rather than one that wanted memory. */
bool symbols_is_allocator(const char *name);

#endif
