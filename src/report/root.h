/* SPDX-License-Identifier: MIT */
/*
 * report/root: the one thing that a reader of another process's memory must find; everything else follows
 * from it.
 *
 * An ELF note of the owner "cpuslab" (arch/note.h) leads to a struct root, whose table names where the
 * library keeps things: addresses of variables, offsets of members, sizes of structures, under names that
 * stay when the code around them changes.  Readers look things up by name, so they need not be of the same
 * build as the library.  The library does nothing for them later: the table is written once, at start.
 *
 * The version covers the meaning of names.  A new name does not make a new version, since older readers do
 * not ask for it; a name that changes its meaning or disappears does.
 *
 * This header is shared with tools/inspect and needs no other of ours.  Everything is in the process's byte
 * order, with 64-bit addresses.
 */
#ifndef CPUSLAB_ROOT_H
#define CPUSLAB_ROOT_H

#include <stddef.h>
#include <stdint.h>

#define ROOT_NOTE_OWNER "cpuslab"
enum { ROOT_NOTE_TYPE = 1, ROOT_VERSION = 2, ROOT_FIELD_NAME = 24, ROOT_FIELDS_MAX = 152 };

static const char ROOT_MAGIC[8] = "cpuslab";

/*
 * The address of a variable, the offset of a member, or a plain number; and its size in bytes.  The name lies
 * among the library's constants, which take no memory per process, so the table is short.
 */
struct root_field {
	uint64_t value;
	uint32_t size;
	int32_t name; /* its offset in bytes from the record; it ends with a zero byte */
};

/* Names are shorter than ROOT_FIELD_NAME.  These members never move. */
struct root {
	char magic[8];
	uint32_t version;
	uint32_t bytes;       /* size of this record */
	uint32_t field_bytes; /* distance between fields */
	uint32_t field_count; /* only grows; 0: nothing has been allocated from the library yet */
	uint64_t fields;      /* address of the first */
	char release[32];     /* the library's, as cpuslab_version() tells */
};

/*
 * Adds a name, a constant of the library, to the table.  Only one thread at a time: the one that starts the
 * library; later, the holder of magazine_keep_caches(), for a room that comes into use only then.  A fork in
 * between leaves the table as it was, without that room's names.
 */
void root_show(const char *name, uintptr_t value, size_t size);

/* Adds what this room and those under it have to show, and opens the table to readers. */
void root_publish(void);

#endif
