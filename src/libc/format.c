/* SPDX-License-Identifier: MIT */
#include "libc/libc.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* Counts all characters of the text, of which it keeps those that there is room for. */
struct text {
	char *start;
	size_t bytes, length;
};

struct directive {
	bool left, zeroes, alternate;
	size_t width, most; /* `most`: the precision; SIZE_MAX for none */
	char size;          /* '\0', 'h', 'l', 'z' or 't': an int, or a long */
	char kind;
};

static void put(struct text *text, char letter)
{
	if (text->length + 1 < text->bytes)
		text->start[text->length] = letter;
	text->length++;
}

static void put_times(struct text *text, char letter, size_t times)
{
	while (times--)
		put(text, letter);
}

static void put_padded(struct text *text, const struct directive *how, const char *start, size_t length)
{
	size_t blanks = how->width > length ? how->width - length : 0;

	if (!how->left)
		put_times(text, ' ', blanks);
	for (size_t i = 0; i < length; i++)
		put(text, start[i]);
	if (how->left)
		put_times(text, ' ', blanks);
}

static void put_string(struct text *text, const struct directive *how, const char *string)
{
	size_t length = 0;

	if (!string)
		string = "(null)";
	while (length < how->most && string[length])
		length++;
	put_padded(text, how, string, length);
}

/* `sign` is what comes before the digits, and before the zeroes that fill the width. */
static void put_number(struct text *text, const struct directive *how, uint64_t number, unsigned base,
		       const char *sign)
{
	enum { DIGITS = 20, SIGN = 2 };
	char digits[SIGN + 256];
	char *end = digits + sizeof digits, *at = end;
	size_t signs = cpuslab_libc_strlen(sign);

	do
		*--at = "0123456789abcdef"[number % base];
	while (number /= base);
	while (how->zeroes && !how->left && (size_t)(end - at) + signs < how->width && at > digits + SIGN)
		*--at = '0';
	while (signs--)
		*--at = sign[signs];
	put_padded(text, how, at, (size_t)(end - at));
}

static const char *read_number(const char *at, size_t *number)
{
	for (*number = 0; *at >= '0' && *at <= '9'; at++)
		*number = *number * 10 + (size_t)(*at - '0');
	return at;
}

/* Reads what follows a '%', up to and without the letter of the kind.  A '*' is for the caller to replace. */
static const char *read_flags(const char *at, struct directive *how)
{
	*how = (struct directive){.most = SIZE_MAX};
	for (;; at++)
		if (*at == '-')
			how->left = true;
		else if (*at == '0')
			how->zeroes = true;
		else if (*at == '#')
			how->alternate = true;
		else
			return at;
}

static const char *read_size(const char *at, struct directive *how)
{
	while (*at == 'h' || *at == 'l' || *at == 'z' || *at == 't')
		how->size = *at++;
	how->kind = *at;
	return at;
}

/* A number of an argument's bits, as its type has it. */
static uint64_t narrowed(const struct directive *how, uint64_t number)
{
	return how->size == '\0' || how->size == 'h' ? (uint32_t)number : number;
}

static void put_signed(struct text *text, const struct directive *how, int64_t number)
{
	if (how->size == '\0' || how->size == 'h')
		number = (int32_t)number;
	put_number(text, how, number < 0 ? -(uint64_t)number : (uint64_t)number, 10, number < 0 ? "-" : "");
}

/* Each argument but a string is a register's width on all ABIs of 64 bits, and is taken so. */
static void put_argument(struct text *text, const struct directive *how, uint64_t argument)
{
	char letter = (char)argument;

	switch (how->kind) {
	case 's':
		put_string(text, how, (const char *)(uintptr_t)argument);
		break;
	case 'c':
		put_padded(text, how, &letter, 1);
		break;
	case 'd':
	case 'i':
		put_signed(text, how, (int64_t)argument);
		break;
	case 'u':
		put_number(text, how, narrowed(how, argument), 10, "");
		break;
	case 'x':
		argument = narrowed(how, argument);
		put_number(text, how, argument, 16, how->alternate && argument ? "0x" : "");
		break;
	case 'p':
		if (argument)
			put_number(text, how, argument, 16, "0x");
		else
			put_string(text, how, "(nil)");
		break;
	default:
		put(text, how->kind);
	}
}

/* The caller has begun the list, which the analyzer does not see.
 * NOLINTBEGIN(clang-analyzer-valist.Uninitialized) */
static void put_all(struct text *text, const char *format, va_list arguments)
{
	struct directive how;

	for (; *format; format++) {
		if (*format != '%') {
			put(text, *format);
			continue;
		}
		format = read_flags(format + 1, &how);
		if (*format == '*')
			how.width = (unsigned)va_arg(arguments, int), format++;
		else
			format = read_number(format, &how.width);
		if (*format == '.' && format[1] == '*')
			how.most = (unsigned)va_arg(arguments, int), format += 2;
		else if (*format == '.')
			format = read_number(format + 1, &how.most);
		format = read_size(format, &how);
		if (how.kind == '%')
			put(text, '%');
		else
			put_argument(text, &how, va_arg(arguments, uint64_t));
	}
}
/* NOLINTEND(clang-analyzer-valist.Uninitialized) */

static int print(char *text, size_t bytes, const char *format, va_list arguments)
{
	struct text made = {text, bytes, 0};

	put_all(&made, format, arguments);
	if (bytes)
		text[made.length < bytes ? made.length : bytes - 1] = '\0';
	return (int)made.length;
}

int cpuslab_libc_snprintf(char *text, size_t bytes, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	int length = print(text, bytes, format, arguments);

	va_end(arguments);
	return length;
}

int cpuslab_libc_sprintf(char *text, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	int length = print(text, INT_MAX, format, arguments);

	va_end(arguments);
	return length;
}
