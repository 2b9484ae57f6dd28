/* SPDX-License-Identifier: MIT */
/*
 * options: the one variable CPUSLAB_OPTIONS=key:value,key:value.
 *
 * Owns the table in options.def.  Read once, at start, before any other thread can be in the allocator, and
 * constant from then on, so that no caller needs a lock.
 */
#ifndef CPUSLAB_OPTIONS_H
#define CPUSLAB_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

enum option_vcpu { OPTION_VCPU_AUTO, OPTION_VCPU_MM_CID, OPTION_VCPU_CPU_ID, OPTION_VCPU_SLOT };
enum option_huge_pages { OPTION_HUGE_PAGES_AUTO, OPTION_HUGE_PAGES_ALWAYS, OPTION_HUGE_PAGES_NEVER };

#define OPTION_TYPE_FLAG         bool
#define OPTION_TYPE_COUNT        size_t
#define OPTION_TYPE_BYTES        size_t
#define OPTION_TYPE_MILLISECONDS size_t
#define OPTION_TYPE_SIGNAL       size_t
#define OPTION_TYPE_VCPU_MODE    enum option_vcpu
#define OPTION_TYPE_HUGE_PAGES   enum option_huge_pages

struct options {
#define OPTION(name, kind, initial, text) OPTION_TYPE_##kind name;
#include "options/options.def"
#undef OPTION
};

extern struct options options;

/* Parses an option string into `options`; reports each bad token in one line on stderr. */
void options_parse(const char *string);

/* Parses the environment's options, which a set-user-id program ignores. */
void options_init(void);

/* Describes the option numbered `index`; false past the last.  `value` receives its current value as text. */
struct option_description {
	const char *name, *kind, *text;
	char initial[32], value[32];
};
bool options_describe(unsigned index, struct option_description *description);

#endif
