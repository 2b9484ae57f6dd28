/* SPDX-License-Identifier: MIT */
/*
 * inspect/lines: from code addresses to functions, inlined ones too, files and lines, by the debug
 * information of a file: in it, or in a file of its own that libdw finds by the build id or by
 * .gnu_debuglink.  Nothing is fetched from the network.
 *
 * Without libdw, or where a file has no debug information, nothing is found.
 */
#ifndef CPUSLAB_TOOLS_LINES_H
#define CPUSLAB_TOOLS_LINES_H

#include <stddef.h>
#include <stdint.h>

struct lines;

enum { LINES_FRAMES = 64 }; /* functions at an address; of more, the innermost are left out */

struct lines_frame {
	const char *function; /* as in the symbol table, or as in the source; NULL if unknown */
	const char *file;     /* NULL if unknown */
	int line;
};

/* Opens what `file`, a descriptor, has; returns NULL if that is nothing.  `path` is its name. */
struct lines *lines_open(int file, const char *path);
void lines_close(struct lines *lines);
/*
 * Finds the functions at an address as in the file's program headers, the innermost first: those inlined
 * there, then the one that contains it.  Returns how many; 0 if it is not known.  The text stays until the
 * file is closed.
 */
size_t lines_find(struct lines *lines, uint64_t address, struct lines_frame frames[static LINES_FRAMES]);
/* What this command lacks for it, or NULL. */
const char *lines_lacks(void);

#endif
