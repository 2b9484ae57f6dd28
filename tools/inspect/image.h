/* SPDX-License-Identifier: MIT */
/* inspect/image: what the code in an ELF file is: its symbol table and, where it has any, debug information.
 */
#ifndef CPUSLAB_TOOLS_IMAGE_H
#define CPUSLAB_TOOLS_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect/lines.h"

struct image;

/* Reads an open file, whose name is `path`; returns NULL if it is no ELF file of 64 bits. */
struct image *image_open(int file, const char *path);
void image_close(struct image *image);

/*
 * An address below is one as in the program headers.  Finds that of a place in the file, if `bytes` of the
 * file from `mapped` on were mapped to be executed.
 */
bool image_address(const struct image *image, uint64_t place, uint64_t mapped, uint64_t bytes,
		   uint64_t *address);

/* Returns the function that contains an address, as the symbol table has it, and where in it; else NULL. */
const char *image_function(const struct image *image, uint64_t address, uint64_t *offset);

/*
 * Finds the functions at an address, as lines_find() does.  The one that contains it has the name of the
 * symbol table, if that has one.  Opens the debug information when it is first called.
 */
size_t image_frames(struct image *image, uint64_t address, struct lines_frame frames[static LINES_FRAMES]);

#endif
