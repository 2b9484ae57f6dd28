/* SPDX-License-Identifier: MIT */
/*
 * report/root: the one thing that a reader of another process's memory must find; everything else follows.
 *
 * An ELF note of the owner "cpuslab" (arch/note.h) leads to a struct root.  It names, in a table, where the
 * library keeps what: addresses of variables, offsets of members, sizes of structures, each under a name that
 * stays when the code around it changes.  The reader asks for names, so that it need not be of the same build
 * as the library, and the library never does anything for it: the table is written once at start.
 *
 * The version belongs to the meaning of the names.  A name more is no new version: a reader that does not
 * know it does not ask.  A name whose meaning changes, or that goes away, is one.
 *
 * This header is shared with tools/inspect; it needs no other of ours.  Everything is in the byte order and
 * with the 64-bit addresses of the process.
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
 * with the library's constants, which take no memory of each process; so the table is short.
 */
struct root_field {
	uint64_t value;
	uint32_t size;
	int32_t name; /* where that is, counted in bytes from the record; it ends with a zero byte */
};

/* The longest name has one byte less than ROOT_FIELD_NAME.  These members keep their places for good. */
struct root {
	char magic[8];
	uint32_t version;
	uint32_t bytes;       /* of this record */
	uint32_t field_bytes; /* from one field to the next */
	uint32_t field_count; /* only grows; 0: nothing has been allocated from the library yet */
	uint64_t fields;      /* the address of the first */
	char release[32];     /* of the library, as cpuslab_version() says */
};

/*
 * Adds a name, a constant of the library, to the table.  One thread at a time: that which starts the library;
 * later, whoever has magazine_keep_caches(), for a room that comes into use only then.  A fork in between
 * leaves the table as it was, and then without that room's names.
 */
void root_show(const char *name, uintptr_t value, size_t size);

/* Adds what this room and those under it have to show, and opens the table to readers. */
void root_publish(void);

#endif
