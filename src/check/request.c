/* SPDX-License-Identifier: MIT */
#include "check/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options/options.h"
#include "os/os.h"
#include "page/page.h"

static const char *blocks = ""; /* the string; searched for each new cache */
static unsigned for_all;        /* flags of caches that no block names */
static bool keeps_order;

/* A block: its flags, and its list of names (NULL for none). */
struct block {
	unsigned flags;
	bool keeps_order;
	const char *names;
};

static unsigned flag_of(char letter)
{
	switch (letter | 0x20) { /* a capital as its small letter, whatever the locale */
	case 'f':
		return CHECK_CONSISTENCY;
	case 'z':
		return CHECK_RED_ZONE;
	case 'p':
		return CHECK_POISON;
	case 'u':
		return CHECK_OWNER;
	case 't':
		return CHECK_TRACE;
	case 'a':
		return CHECK_FAIL;
	default:
		return 0;
	}
}

/* Unknown characters, each once. */
struct unknown {
	char letters[16];
	size_t count;
};

static void note_unknown(struct unknown *unknown, char letter)
{
	char shown = (char)(letter > ' ' && letter < 0x7f ? letter : '?');

	if (unknown->count < sizeof unknown->letters && !memchr(unknown->letters, shown, unknown->count))
		unknown->letters[unknown->count++] = shown;
}

static void report_unknown(const struct unknown *unknown)
{
	char line[160];
	int length =
		snprintf(line, sizeof line,
			 "cpuslab: CPUSLAB_DEBUG: no flag is called '%.*s' (there are F Z P U T A O -); %s\n",
			 (int)unknown->count, unknown->letters,
			 options.abort_conf ? "stopping, as abort_conf asks" : "skipped");

	os_write_error(line, (size_t)length);
	if (options.abort_conf)
		abort();
}

/* Reads the block at `string` and returns where the next begins; NULL after the last. */
static const char *next_block(const char *string, struct block *block, struct unknown *unknown)
{
	*block = (struct block){0};
	string += strspn(string, ";");
	if (*string == ',')
		block->flags = CHECK_DEFAULT;
	for (; *string && *string != ',' && *string != ';'; string++) {
		unsigned flag = flag_of(*string);

		if (flag)
			block->flags |= flag;
		else if (*string == '-')
			block->flags = 0;
		else if (*string == 'o' || *string == 'O')
			block->keeps_order = true;
		else
			note_unknown(unknown, *string);
	}
	if (*string == ',')
		block->names = ++string;
	string += strcspn(string, ";");
	string += strspn(string, ";");
	return *string ? string : NULL;
}

void check_request_parse(const char *string)
{
	struct unknown unknown = {.count = 0};
	struct block block;

	blocks = string;
	for_all = 0;
	keeps_order = false;
	for (const char *rest = *string ? string : NULL; rest;) {
		rest = next_block(rest, &block, &unknown);
		keeps_order |= block.keeps_order;
		if (!block.names)
			for_all = block.flags;
	}
	if (unknown.count)
		report_unknown(&unknown);
}

void check_request_init(void)
{
	const char *string = os_environment("CPUSLAB_DEBUG");

	if (!string)
		return;
	/* Later caches are looked up in the copy: the program may overwrite its environment. */
	char *copy = metadata_alloc(strlen(string) + 1);

	if (copy)
		check_request_parse(strcpy(copy, string));
}

bool check_request_matches(const char *list, const char *name)
{
	for (;;) {
		size_t length = strcspn(list, ",;");
		const char *star = memchr(list, '*', length);

		if (star ? strncmp(name, list, (size_t)(star - list)) == 0
			 : strlen(name) == length && memcmp(name, list, length) == 0)
			return true;
		list += length;
		if (*list++ != ',')
			return false;
	}
}

unsigned check_request_flags(const char *name, unsigned asked)
{
	struct unknown unknown = {.count = 0};
	struct block block;

	for (const char *rest = *blocks ? blocks : NULL; rest;) {
		rest = next_block(rest, &block, &unknown);
		if (block.names && check_request_matches(block.names, name))
			return asked | block.flags;
	}
	return asked | for_all;
}

bool check_request_keeps_order(void)
{
	return keeps_order;
}
