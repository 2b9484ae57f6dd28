/* SPDX-License-Identifier: MIT */
/*
 * options: the one variable CPUSLAB_OPTIONS=key:value,key:value.
 *
 * Owns the table in options.def.  Read once, at start, before any other thread can be in the allocator.  From
 * then on an OPTION is constant, and a SETTING changes by single stores of its whole value (options_change),
 * so that no caller needs a lock: one that must not see two values in a row copies it.
 */
#ifndef CPUSLAB_OPTIONS_H
#define CPUSLAB_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_vcpu { OPTION_VCPU_AUTO, OPTION_VCPU_MM_CID, OPTION_VCPU_CPU_ID, OPTION_VCPU_SLOT };
enum option_huge_pages { OPTION_HUGE_PAGES_AUTO, OPTION_HUGE_PAGES_ALWAYS, OPTION_HUGE_PAGES_NEVER };

#define OPTION_TYPE_FLAG         bool
#define OPTION_TYPE_COUNT        size_t
#define OPTION_TYPE_BYTES        size_t
#define OPTION_TYPE_MILLISECONDS size_t
#define OPTION_TYPE_SIGNAL       size_t
#define OPTION_TYPE_VCPU_MODE    enum option_vcpu
#define OPTION_TYPE_HUGE_PAGES   enum option_huge_pages
#define OPTION_TYPE_LIMIT        size_t

/* Of the kind LIMIT: what the file of that name says when the option is set. */
#define OPTION_LIMIT_HIGH SIZE_MAX       /* memory.high */
#define OPTION_LIMIT_MAX  (SIZE_MAX - 1) /* memory.max */

struct options {
#define OPTION(name, kind, initial, text) OPTION_TYPE_##kind name;
#include "options/options.def"
#undef OPTION
};

extern struct options options;

/* The options by number, in the table's order, and as bits of a set. */
enum option_number {
#define OPTION(name, kind, initial, text) OPTION_NUMBER_##name,
#include "options/options.def"
#undef OPTION
	OPTION_COUNT
};
#define OPTION_BIT(name) (UINT64_C(1) << OPTION_NUMBER_##name)

/*
 * The table as it lies in memory, also read from outside (tools/inspect/settings.c).  Kinds are only ever
 * appended.
 */
enum option_kind {
	OPTION_KIND_FLAG,
	OPTION_KIND_COUNT,
	OPTION_KIND_BYTES,
	OPTION_KIND_MILLISECONDS,
	OPTION_KIND_SIGNAL,
	OPTION_KIND_VCPU_MODE,
	OPTION_KIND_HUGE_PAGES,
	OPTION_KIND_LIMIT
};
enum { OPTION_NAME = 21, OPTION_TEXT = 32 };
struct option_entry {
	char name[OPTION_NAME];
	uint8_t kind;
	uint8_t offset;  /* of the value in struct options */
	uint8_t changes; /* while the program runs */
};
extern const struct option_entry option_table[OPTION_COUNT];

/* Parses an option string into `options`; reports each bad token in one line on stderr. */
void options_parse(const char *string);

/* Parses the environment's options, which a set-user-id program ignores. */
void options_init(void);

/*
 * Changes one option while the program runs.  Returns 0; EINVAL if there is no such option or it does not
 * take that value; EPERM if it is fixed at start.  `changed` gets the option's bit.
 */
int options_change(const char *name, const char *value, uint64_t *changed);
/*
 * The same for a text key:value,key:value, which need not be terminated: all of it, or nothing.  `token` gets
 * the number of the token at fault.
 */
int options_change_all(const char *text, size_t length, uint64_t *changed, unsigned *token);
/* Writes the present value of an option; returns false if there is none of that name. */
bool options_value(const char *name, char text[static OPTION_TEXT]);
/* Writes the value that an entry has in a copy of the options; both may be another process's, and anything.
 */
void options_print(char text[static OPTION_TEXT], const struct option_entry *entry, const void *from);

/* Describes the option numbered `index`; false past the last.  `value` receives its current value as text. */
struct option_description {
	const char *name, *kind, *text;
	char initial[OPTION_TEXT], value[OPTION_TEXT];
	bool changes;
};
bool options_describe(unsigned index, struct option_description *description);

#endif
