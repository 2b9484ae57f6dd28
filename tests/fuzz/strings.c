/* SPDX-License-Identifier: MIT */
/*
 * The strings of CPUSLAB_OPTIONS and CPUSLAB_DEBUG, and letters from other processes: the first byte of an
 * input chooses which, the rest is the string.  Each result is compared with that of a second parser, written
 * from docs/options.md and docs/debugging.md, which cuts the string into pieces, one after the other.
 */
#include "check.h"

#include "check/request.h"
#include "environment.h"
#include "magazine/control.h"
#include "magazine/magazine.h"
#include "options/options.h"
#include "profile/profile.h"

/* ---- options ------------------------------------------------------------------------------------------- */

enum { OPTIONS_MOST = 200, VALUE_MOST = 32, MAILBOXES = 0xf0 };
static char expected[OPTIONS_MOST][VALUE_MOST];
static struct options initial;

static unsigned find_option(const char *name)
{
	struct option_description option;
	unsigned i = 0;

	while (options_describe(i, &option) && strcmp(option.name, name) != 0)
		i++;
	return i;
}

/* A number as the option table prints it; false if it is not one. */
static bool read_number(const char *text, bool bytes, char *printed)
{
	unsigned __int128 number = 0;
	unsigned scale = 0;
	const char *suffixes = "kKmMgG", *suffix;

	if (*text < '0' || *text > '9')
		return false;
	for (; *text >= '0' && *text <= '9'; text++) {
		number = number * 10 + (unsigned)(*text - '0');
		if (number > SIZE_MAX)
			return false;
	}
	if (*text && bytes && (suffix = strchr(suffixes, *text))) {
		number <<= ((suffix - suffixes) / 2 + 1) * 10;
		text++;
	}
	if (*text || number > SIZE_MAX)
		return false;
	while (bytes && scale < 3 && number && number % 1024 == 0) {
		number /= 1024;
		scale++;
	}
	snprintf(printed, VALUE_MOST, "%llu%.1s", (unsigned long long)number, &"\0KMG"[scale]);
	return true;
}

/* The values that are words: of one option, or of all options of a kind. */
static const struct {
	const char *kind, *option, *said, *meant;
} words[] = {
	{"true or false", NULL, "true", "true"},
	{"true or false", NULL, "1", "true"},
	{"true or false", NULL, "false", "false"},
	{"true or false", NULL, "0", "false"},
	{"mode", "vcpu", "auto", "auto"},
	{"mode", "vcpu", "mm_cid", "mm_cid"},
	{"mode", "vcpu", "cpu_id", "cpu_id"},
	{"mode", "vcpu", "slot", "slot"},
	{"mode", "huge_pages", "auto", "auto"},
	{"mode", "huge_pages", "always", "always"},
	{"mode", "huge_pages", "never", "never"},
	{"bytes or file", NULL, "memory.high", "memory.high"},
	{"bytes or file", NULL, "memory.max", "memory.max"},
};

/* The system and libc tell which signals can be caught; fault signals are excluded too. */
static bool is_caught(const char *text)
{
	static const char *const faults[] = {"4", "5", "7", "8", "11", "31"};
	struct sigaction action;
	unsigned long number = strtoul(text, NULL, 10);

	for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++)
		if (strcmp(text, faults[i]) == 0)
			return false;
	return !number || (number < 65 && number != SIGKILL && number != SIGSTOP &&
			   sigaction((int)number, NULL, &action) == 0);
}

static bool set_expected(unsigned i, const char *value)
{
	struct option_description option;

	CHECK(options_describe(i, &option));
	for (unsigned word = 0; word < sizeof words / sizeof *words; word++)
		if (strcmp(option.kind, words[word].kind) == 0 &&
		    (!words[word].option || strcmp(option.name, words[word].option) == 0) &&
		    strcmp(value, words[word].said) == 0) {
			snprintf(expected[i], VALUE_MOST, "%s", words[word].meant);
			return true;
		}
	if (strcmp(option.kind, "true or false") == 0 || strcmp(option.kind, "mode") == 0)
		return false;
	char number[VALUE_MOST];

	if (!read_number(value, strncmp(option.kind, "bytes", 5) == 0, number))
		return false;
	if (strcmp(option.kind, "signal") == 0 && !is_caught(number))
		return false;
	memcpy(expected[i], number, sizeof(number));
	return true;
}

/* False when it aborted. */
static bool parse_options(const char *string)
{
	jmp_buf here;

	if (setjmp(here)) {
		environment_abort = NULL;
		return false;
	}
	environment_abort = &here;
	options_parse(string);
	environment_abort = NULL;
	return true;
}

static void fuzz_options(const char *string)
{
	struct option_description option;
	unsigned bad = 0, count = 0;
	char *copy = strdup(string), *token, *rest = copy;

	CHECK(copy);
	options = initial;
	for (; options_describe(count, &option); count++) {
		CHECK(count < OPTIONS_MOST);
		snprintf(expected[count], VALUE_MOST, "%s", option.initial);
	}
	while ((token = strsep(&rest, ","))) {
		if (!*token)
			continue;
		char *colon = strchr(token, ':');

		if (colon)
			*colon = 0;
		unsigned i = colon ? find_option(token) : count;

		bad += i == count || !set_expected(i, colon + 1);
	}
	free(copy);
	environment_lines = 0;
	bool stops = strcmp(expected[find_option("abort_conf")], "true") == 0;
	bool stopped = !parse_options(string);

	CHECK(stopped == (stops && bad), "%u bad tokens", bad);
	CHECK(environment_lines == (stopped ? 1 : bad), "%u lines about %u bad tokens", environment_lines,
	      bad);
	for (unsigned i = 0; i < count && !stopped; i++) {
		CHECK(options_describe(i, &option));
		CHECK(strcmp(option.value, expected[i]) == 0, "%s is %s, and not %s", option.name,
		      option.value, expected[i]);
	}
	options = initial;
}

/* ---- debugging ------------------------------------------------------------------------------------- */

static bool names_it(const char *pattern, const char *name)
{
	const char *star = strchr(pattern, '*');

	return star ? strncmp(pattern, name, (size_t)(star - pattern)) == 0 : strcmp(pattern, name) == 0;
}

static unsigned flags_of(const char *letters, bool named, bool *keeps_order)
{
	unsigned flags = named && !*letters ? CHECK_DEFAULT : 0;

	for (; *letters; letters++) {
		const char *known = "fFzZpPuUtTaA", *found = strchr(known, *letters);
		static const unsigned each[] = {CHECK_CONSISTENCY, CHECK_RED_ZONE, CHECK_POISON,
						CHECK_OWNER,       CHECK_TRACE,    CHECK_FAIL};

		if (found)
			flags |= each[(found - known) / 2];
		else if (*letters == '-')
			flags = 0;
		*keeps_order |= *letters == 'o' || *letters == 'O';
	}
	return flags;
}

static unsigned expected_flags(const char *string, const char *name, bool *keeps_order)
{
	char *copy = strdup(string), *block, *rest = copy;
	unsigned for_all = 0, for_name = 0;
	bool found = false;

	CHECK(copy);
	*keeps_order = false;
	while ((block = strsep(&rest, ";"))) {
		if (!*block)
			continue;
		char *letters = strsep(&block, ","), *pattern;
		unsigned flags = flags_of(letters, block != NULL, keeps_order);

		if (!block)
			for_all = flags;
		while (block && (pattern = strsep(&block, ",")))
			if (!found && names_it(pattern, name)) {
				found = true;
				for_name = flags;
			}
	}
	free(copy);
	return found ? for_name : for_all;
}

static void fuzz_debug(const char *string)
{
	static const char *const names[] = {"a", "ab", "malloc-112", "malloc-16", "dentry"};
	bool keeps_order;

	options = initial;
	check_request_parse(string);
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		unsigned flags = expected_flags(string, names[i], &keeps_order);

		CHECK(check_request_flags(names[i], 0) == flags, "%s: %#x, and not %#x", names[i],
		      check_request_flags(names[i], 0), flags);
		CHECK(check_request_flags(names[i], CHECK_POISON) == (flags | CHECK_POISON));
		CHECK(check_request_keeps_order() == keeps_order);
	}
	check_request_parse("");
}

/* ---- the mailbox ------------------------------------------------------------------------------------- */

/* What a whole letter is answered with; `expected` gets the values that are in force afterwards. */
static enum mailbox_result expected_result(const struct mailbox_letter *letter)
{
	static char values[OPTIONS_MOST][VALUE_MOST];
	char text[MAILBOX_TEXT + 1] = {0}, *token, *rest = text;
	enum mailbox_result result = MAILBOX_DONE;

	memcpy(text, letter->text, letter->length);
	if (strcmp(text, "trim") == 0 && letter->length == 4)
		return MAILBOX_DONE;
	bool cut = strlen(text) != letter->length;

	memcpy(values, expected, sizeof values);
	while (result == MAILBOX_DONE && rest && *rest && (token = strsep(&rest, ","))) {
		char *colon = strchr(token, ':');
		struct option_description option;

		if (colon)
			*colon = 0;
		bool known = colon && options_describe(find_option(token), &option);

		if (known && !option.changes)
			result = MAILBOX_FIXED;
		else if (!known || !set_expected(find_option(token), colon + 1) || (cut && (!rest || !*rest)))
			result = MAILBOX_INVALID;
	}
	if (cut && result == MAILBOX_DONE)
		result = MAILBOX_INVALID;
	if (result != MAILBOX_DONE)
		memcpy(expected, values, sizeof values);
	return result;
}

/*
 * Bytes go over the mailbox as they are: the first chooses whether length and check are made right; a letter
 * that is not whole changes nothing, and of one that is all or nothing is done.
 */
static void fuzz_mailbox(const uint8_t *data, size_t size)
{
	static uint32_t ticket;
	struct option_description option;
	struct mailbox_letter letter = {.length = 0};
	bool right = size && data[0] % 2;
	size_t head = right ? offsetof(struct mailbox_letter, text) : 0;
	size_t count = size ? size - 1 : 0;

	options = initial;
	for (unsigned i = 0; options_describe(i, &option); i++)
		snprintf(expected[i], VALUE_MOST, "%s", option.initial);
	if (count > sizeof letter - head)
		count = sizeof letter - head;
	if (size)
		memcpy((char *)&letter + head, data + 1, count);
	ticket += ticket == UINT32_MAX ? 2 : 1;
	if (right) {
		letter.length = (uint32_t)count;
		letter.check = mailbox_check(ticket, &letter);
	}
	bool whole = letter.length <= MAILBOX_TEXT && letter.check == mailbox_check(ticket, &letter);
	enum mailbox_result result = whole ? expected_result(&letter) : MAILBOX_GARBLED;

	control_letter = letter;
	control_mailbox.wanted = ticket;
	magazine_tick();
	CHECK(control_mailbox.seen == ticket && control_letter.answer >> 32 == ticket);
	CHECK((control_letter.answer & 0xff) == result, "%lu, and not %d", control_letter.answer & 0xff,
	      (int)result);
	for (unsigned i = 0; options_describe(i, &option); i++)
		CHECK(strcmp(option.value, expected[i]) == 0, "%s is %s, and not %s", option.name,
		      option.value, expected[i]);
	profile.wanted = 0;
	options = initial;
}

void *fuzzed_malloc(size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool begun;

	/* The library must have started for the mailbox. */
	if (!begun && fuzzed_malloc(1))
		initial = options;
	begun = true;
	if (!size)
		return 0;
	if (data[0] >= MAILBOXES) {
		fuzz_mailbox(data + 1, size - 1);
		return 0;
	}
	/* Of the exact length, so that a sanitizer sees a read behind its end. */
	char *string = malloc(size);

	CHECK(string);
	memcpy(string, data + 1, size - 1);
	string[size - 1] = 0;
	environment_quiet = true;
	if (data[0] % 2)
		fuzz_options(string);
	else
		fuzz_debug(string);
	environment_quiet = false;
	free(string);
	return 0;
}
