/* SPDX-License-Identifier: MIT */
#include "options/options.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "os/os.h"

struct options options = {
#define OPTION(option, type, initial, description) .option = (initial),
#include "options/options.def"
#undef OPTION
};

/*
 * The tables hold text, not pointers to text: a pointer in a shared library is a relocation, which every
 * program would pay for at start, even one that sets no option.
 */
static const char kind_names[][16] = {"true or false", "number", "bytes", "milliseconds",
				      "signal",        "mode",   "mode",  "bytes or file"};
/* From OPTION_KIND_VCPU_MODE on, in the order of the kinds' enumerations. */
enum { MODES = 4 };
static const char mode_names[][MODES][8] = {{"auto", "mm_cid", "cpu_id", "slot"},
					    {"auto", "always", "never"}};
static const char limit_files[][12] = {"memory.high", "memory.max"};
static const char mode_needs[][40] = {"needs auto, mm_cid, cpu_id or slot", "needs auto, always or never"};
_Static_assert(sizeof(enum option_vcpu) == sizeof(unsigned) &&
		       sizeof(enum option_huge_pages) == sizeof(unsigned),
	       "modes are stored as plain numbers");

const struct option_entry option_table[OPTION_COUNT] = {
#define OPTION(option, type, initial, description)                                                           \
	{#option, OPTION_KIND_##type, offsetof(struct options, option), false},
#define SETTING(option, type, initial, description)                                                          \
	{#option, OPTION_KIND_##type, offsetof(struct options, option), true},
#include "options/options.def"
#undef OPTION
};

_Static_assert(sizeof(struct options) <= UINT8_MAX, "an entry's offset is one byte");
_Static_assert(OPTION_COUNT <= 64, "a set of options is one word");
#define OPTION(option, type, initial, description)                                                           \
	_Static_assert(sizeof(#option) <= OPTION_NAME, "a name is stored whole, with its end");
#include "options/options.def"
#undef OPTION

static const char texts[] =
#define OPTION(option, type, initial, description) description "\0"
#include "options/options.def"
#undef OPTION
	;

/* Part of the option string.  Not terminated, because the environment must not be changed. */
struct span {
	const char *start;
	size_t length;
};

static bool span_is(struct span span, const char *word)
{
	return strlen(word) == span.length && memcmp(span.start, word, span.length) == 0;
}

/* The one line on stderr, assembled first so that lines of several processes do not mix. */
struct line {
	char text[256];
	size_t length;
};

static void line_add(struct line *line, const char *text, size_t length)
{
	for (size_t i = 0; i < length && line->length < sizeof(line->text); i++) {
		unsigned char c = (unsigned char)text[i];
		/* User input must not reach a terminal as control codes. */
		line->text[line->length++] = (char)(c < ' ' || c == 0x7f ? '?' : c);
	}
}

static void line_add_word(struct line *line, const char *word)
{
	line_add(line, word, strlen(word));
}

static void report(struct span token, const char *complaint, bool stops)
{
	enum { TOKEN_SHOWN = 80 };
	struct line line = {.length = 0};
	line_add_word(&line, "cpuslab: CPUSLAB_OPTIONS: '");
	line_add(&line, token.start, token.length < TOKEN_SHOWN ? token.length : TOKEN_SHOWN);
	line_add_word(&line, token.length < TOKEN_SHOWN ? "' " : "...' ");
	line_add_word(&line, complaint);
	line_add_word(&line, stops ? "; stopping, as abort_conf asks" : "; skipped");
	line.text[line.length++] = '\n';
	os_write_error(line.text, line.length);
	if (stops)
		abort();
}

/* Accepts digits only, so that a sign or a space is a bad token and not a surprise. */
static bool parse_number(struct span span, bool suffixes, size_t *result)
{
	size_t number = 0, i = 0;
	for (; i < span.length && span.start[i] >= '0' && span.start[i] <= '9'; i++)
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, (size_t)(span.start[i] - '0'), &number))
			return false;
	if (i == 0)
		return false;
	if (suffixes && i + 1 == span.length) {
		unsigned shift;
		switch (span.start[i++]) {
		case 'K':
		case 'k':
			shift = 10;
			break;
		case 'M':
		case 'm':
			shift = 20;
			break;
		case 'G':
		case 'g':
			shift = 30;
			break;
		default:
			return false;
		}
		if (number > SIZE_MAX >> shift)
			return false;
		number <<= shift;
	}
	*result = number;
	return i == span.length;
}

static bool parse_flag(struct span span, bool *result)
{
	*result = span_is(span, "true") || span_is(span, "1");
	return *result || span_is(span, "false") || span_is(span, "0");
}

static bool parse_mode(struct span span, const char (*names)[8], unsigned *result)
{
	for (unsigned mode = 0; mode < MODES; mode++)
		if (names[mode][0] && span_is(span, names[mode])) {
			*result = mode;
			return true;
		}
	return false;
}

/*
 * Returns whether a signal may get a handler: not one that cannot be caught or that libc reserves, nor a
 * fault, which a returning handler would make recur for ever.
 */
static bool may_handle(size_t number)
{
	static const uint64_t never = 1ull << SIGKILL | 1ull << SIGSTOP | 1ull << SIGSEGV | 1ull << SIGBUS |
				      1ull << SIGILL | 1ull << SIGFPE | 1ull << SIGTRAP | 1ull << SIGSYS;
	enum { REAL_TIME_OF_LIBC = 2, FIRST_REAL_TIME = 32 };

	if (number >= FIRST_REAL_TIME)
		return number >= FIRST_REAL_TIME + REAL_TIME_OF_LIBC && number < _NSIG;
	return !(never >> number & 1);
}

/* Stores the value into a set of options; on failure returns what the entry needs instead. */
static const char *parse_value(const struct option_entry *entry, struct span value, struct options *into)
{
	char *field = (char *)into + entry->offset;
	switch ((enum option_kind)entry->kind) {
	case OPTION_KIND_FLAG: {
		bool flag;
		if (!parse_flag(value, &flag))
			return "needs true or false";
		memcpy(field, &flag, sizeof(flag));
		return NULL;
	}
	case OPTION_KIND_VCPU_MODE:
	case OPTION_KIND_HUGE_PAGES: {
		unsigned mode;
		if (!parse_mode(value, mode_names[entry->kind - OPTION_KIND_VCPU_MODE], &mode))
			return mode_needs[entry->kind - OPTION_KIND_VCPU_MODE];
		memcpy(field, &mode, sizeof(mode));
		return NULL;
	}
	case OPTION_KIND_LIMIT: {
		size_t limit;
		if (span_is(value, limit_files[0]))
			limit = OPTION_LIMIT_HIGH;
		else if (span_is(value, limit_files[1]))
			limit = OPTION_LIMIT_MAX;
		else if (!parse_number(value, true, &limit) || limit >= OPTION_LIMIT_MAX)
			return "needs a size in bytes, or with K, M or G, or memory.high or memory.max";
		memcpy(field, &limit, sizeof(limit));
		return NULL;
	}
	case OPTION_KIND_BYTES:
	case OPTION_KIND_COUNT:
	case OPTION_KIND_MILLISECONDS:
	case OPTION_KIND_SIGNAL: {
		size_t number;
		if (!parse_number(value, entry->kind == OPTION_KIND_BYTES, &number))
			return entry->kind == OPTION_KIND_BYTES ? "needs a size in bytes, or with K, M or G"
								: "needs a whole number";
		if (entry->kind == OPTION_KIND_SIGNAL && !may_handle(number))
			return "needs a signal that can be caught, and is none of a fault";
		memcpy(field, &number, sizeof(number));
		return NULL;
	}
	}
	__builtin_unreachable();
}

static const struct option_entry *find_entry(struct span name)
{
	for (unsigned i = 0; i < OPTION_COUNT; i++)
		if (span_is(name, option_table[i].name))
			return &option_table[i];
	return NULL;
}

/* Cuts the first token, up to a comma or the end, off the string. */
static struct span next_token(const char **string)
{
	struct span token = {*string, strcspn(*string, ",")};
	*string += token.length;
	if (**string == ',')
		++*string;
	return token;
}

static void parse_token(struct span token, bool stops)
{
	const char *colon = memchr(token.start, ':', token.length);
	if (!colon) {
		report(token, "is not of the form key:value", stops);
		return;
	}
	struct span name = {token.start, (size_t)(colon - token.start)};
	struct span value = {colon + 1, token.length - name.length - 1};
	const struct option_entry *entry = find_entry(name);
	const char *complaint =
		entry ? parse_value(entry, value, &options) : "names no option (cpuslab options lists them)";
	if (complaint)
		report(token, complaint, stops);
}

/* abort_conf counts wherever it stands; of several, the last one. */
static bool asks_to_stop(const char *string)
{
	static const char key[] = "abort_conf:";
	const size_t length = sizeof(key) - 1;
	bool stops = options.abort_conf;
	while (*string) {
		struct span token = next_token(&string);
		bool flag;
		if (token.length > length && memcmp(token.start, key, length) == 0 &&
		    parse_flag((struct span){token.start + length, token.length - length}, &flag))
			stops = flag;
	}
	return stops;
}

void options_parse(const char *string)
{
	const bool stops = asks_to_stop(string);
	for (const char *rest = string; *rest;) {
		struct span token = next_token(&rest);
		if (token.length > 0)
			parse_token(token, stops);
	}
}

void options_init(void)
{
	const char *string = os_environment("CPUSLAB_OPTIONS");
	if (string)
		options_parse(string);
}

static void print_number(char text[static 32], size_t number, bool suffixes)
{
	static const char suffix[] = "\0KMG";
	unsigned scale = 0;
	while (suffixes && scale < 3 && number != 0 && number % 1024 == 0) {
		number /= 1024;
		scale++;
	}
	char digits[32];
	char *digit = digits + sizeof(digits);
	*--digit = '\0';
	if (scale > 0)
		*--digit = suffix[scale];
	do
		*--digit = (char)('0' + number % 10);
	while ((number /= 10) != 0);
	strcpy(text, digit);
}

void options_print(char text[static OPTION_TEXT], const struct option_entry *entry, const void *from)
{
	const char *field = (const char *)from + entry->offset;
	strcpy(text, "?");
	switch ((enum option_kind)entry->kind) {
	case OPTION_KIND_FLAG:
		strcpy(text, *field ? "true" : "false");
		return;
	case OPTION_KIND_VCPU_MODE:
	case OPTION_KIND_HUGE_PAGES: {
		unsigned mode;
		memcpy(&mode, field, sizeof(mode));
		if (mode < MODES)
			strcpy(text, mode_names[entry->kind - OPTION_KIND_VCPU_MODE][mode]);
		return;
	}
	case OPTION_KIND_LIMIT: {
		size_t limit;
		memcpy(&limit, field, sizeof(limit));
		if (limit >= OPTION_LIMIT_MAX)
			strcpy(text, limit_files[limit == OPTION_LIMIT_MAX]);
		else
			print_number(text, limit, true);
		return;
	}
	case OPTION_KIND_BYTES:
	case OPTION_KIND_COUNT:
	case OPTION_KIND_MILLISECONDS:
	case OPTION_KIND_SIGNAL: {
		size_t number;
		memcpy(&number, field, sizeof(number));
		print_number(text, number, entry->kind == OPTION_KIND_BYTES);
		return;
	}
	}
}

bool options_describe(unsigned index, struct option_description *description)
{
	static const struct options initial = {
#define OPTION(option, type, start, description) .option = (start),
#include "options/options.def"
#undef OPTION
	};
	if (index >= OPTION_COUNT)
		return false;
	const struct option_entry *entry = &option_table[index];
	const char *text = texts;
	for (unsigned i = 0; i < index; i++)
		text += strlen(text) + 1;
	description->name = entry->name;
	description->kind = kind_names[entry->kind];
	description->text = text;
	description->changes = entry->changes;
	options_print(description->initial, entry, &initial);
	options_print(description->value, entry, &options);
	return true;
}

bool options_value(const char *name, char text[static OPTION_TEXT])
{
	const struct option_entry *entry = find_entry((struct span){name, strlen(name)});
	if (entry)
		options_print(text, entry, &options);
	return entry;
}

/* ---- while the program runs ---------------------------------------------------------------------------- */

/* Puts a value into `next`, where nobody sees it yet. */
static int propose(struct span name, struct span value, struct options *next, uint64_t *changed)
{
	const struct option_entry *entry = find_entry(name);
	if (!entry)
		return EINVAL;
	if (!entry->changes)
		return EPERM;
	if (parse_value(entry, value, next))
		return EINVAL;
	*changed |= UINT64_C(1) << (entry - option_table);
	return 0;
}

/* Each value by one store: readers take no lock, and of several writers the last one wins. */
static void adopt(const struct options *next, uint64_t changed)
{
	for (unsigned i = 0; i < OPTION_COUNT; i++) {
		const size_t offset = option_table[i].offset;
		const void *from = (const char *)next + offset;
		void *to = (char *)&options + offset;
		if (!(changed >> i & 1))
			continue;
		if (option_table[i].kind == OPTION_KIND_FLAG)
			__atomic_store_n((bool *)to, *(const bool *)from, __ATOMIC_RELAXED);
		else
			__atomic_store_n((size_t *)to, *(const size_t *)from, __ATOMIC_RELAXED);
	}
}

/* A mode is no word: adopt() would overwrite what follows it. */
#define OPTION(option, type, initial, description)
#define SETTING(option, type, initial, description)                                                          \
	_Static_assert(sizeof(OPTION_TYPE_##type) == sizeof(size_t) ||                                       \
			       OPTION_KIND_##type == OPTION_KIND_FLAG,                                       \
		       "a setting is a word or a flag");
#include "options/options.def"
#undef OPTION

int options_change(const char *name, const char *value, uint64_t *changed)
{
	struct options next;
	*changed = 0;
	int error = propose((struct span){name, strlen(name)}, (struct span){value, strlen(value)}, &next,
			    changed);
	if (!error)
		adopt(&next, *changed);
	return error;
}

int options_change_all(const char *text, size_t length, uint64_t *changed, unsigned *token)
{
	struct options next;
	const char *end = text + length;
	*changed = 0;
	for (*token = 0; text < end; ++*token) {
		const char *comma = memchr(text, ',', (size_t)(end - text));
		const char *stop = comma ? comma : end;
		const char *colon = memchr(text, ':', (size_t)(stop - text));
		if (!colon)
			return EINVAL;
		int error = propose((struct span){text, (size_t)(colon - text)},
				    (struct span){colon + 1, (size_t)(stop - colon - 1)}, &next, changed);
		if (error)
			return error;
		text = stop + 1;
	}
	adopt(&next, *changed);
	return 0;
}
