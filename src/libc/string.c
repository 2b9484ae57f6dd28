/* SPDX-License-Identifier: MIT */
/*
 * Memory and strings, as C says of the functions of these names (names.h).  Copying and clearing are what
 * realloc and calloc do with objects of any size, and so are fast; the rest is short.
 */
#include "libc/libc.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "arch/arch.h"

typedef uint64_t block __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t eight __attribute__((aligned(1), may_alias));
typedef uint32_t four __attribute__((aligned(1), may_alias));
typedef uint16_t two __attribute__((aligned(1), may_alias));

enum { BLOCK = sizeof(block), BLOCKS = 4 * BLOCK };

/* Of less than a block: the first and the last bytes, which may overlap. */
static inline void copy_few(char *to, const char *from, size_t bytes)
{
	if (bytes >= sizeof(eight)) {
		eight first = *(const eight *)from, last = *(const eight *)(from + bytes - sizeof last);

		*(eight *)to = first;
		*(eight *)(to + bytes - sizeof last) = last;
	} else if (bytes >= sizeof(four)) {
		four first = *(const four *)from, last = *(const four *)(from + bytes - sizeof last);

		*(four *)to = first;
		*(four *)(to + bytes - sizeof last) = last;
	} else if (bytes >= sizeof(two)) {
		two first = *(const two *)from, last = *(const two *)(from + bytes - sizeof last);

		*(two *)to = first;
		*(two *)(to + bytes - sizeof last) = last;
	} else if (bytes) {
		*to = *from;
	}
}

/* Also right where the destination begins before the source and overlaps it: what is read has not been
 * written. */
static inline void copy_ascending(char *to, const char *from, size_t bytes)
{
	block last = *(const block *)(from + bytes - BLOCK);
	char *end = to + bytes - BLOCK;

	for (; bytes > BLOCKS; bytes -= BLOCKS, to += BLOCKS, from += BLOCKS) {
		const block *source = (const block *)from;
		block a = source[0], b = source[1], c = source[2], d = source[3];

		((block *)to)[0] = a;
		((block *)to)[1] = b;
		((block *)to)[2] = c;
		((block *)to)[3] = d;
	}
	for (; bytes > BLOCK; bytes -= BLOCK, to += BLOCK, from += BLOCK)
		*(block *)to = *(const block *)from;
	*(block *)end = last;
}

void *cpuslab_libc_memcpy(void *to, const void *from, size_t bytes)
{
	if (bytes < BLOCK) {
		copy_few(to, from, bytes);
		return to;
	}
#if ARCH_HAS_LONG
	if (bytes >= ARCH_LONG_BYTES) {
		arch_copy_long(to, from, bytes);
		return to;
	}
#endif
	copy_ascending(to, from, bytes);
	return to;
}

void *cpuslab_libc_memmove(void *to, const void *from, size_t bytes)
{
	if ((uintptr_t)to - (uintptr_t)from >= bytes)
		return cpuslab_libc_memcpy(to, from, bytes);
	for (size_t i = bytes; i-- > 0;)
		((char *)to)[i] = ((const char *)from)[i];
	return to;
}

static inline void set_few(char *to, uint64_t value, size_t bytes)
{
	if (bytes >= sizeof(eight)) {
		*(eight *)to = value;
		*(eight *)(to + bytes - sizeof(eight)) = value;
	} else if (bytes >= sizeof(four)) {
		*(four *)to = (uint32_t)value;
		*(four *)(to + bytes - sizeof(four)) = (uint32_t)value;
	} else if (bytes) {
		to[0] = (char)value;
		to[bytes / 2] = (char)value;
		to[bytes - 1] = (char)value;
	}
}

void *cpuslab_libc_memset(void *start, int byte, size_t bytes)
{
	uint64_t value = (unsigned char)byte * 0x0101010101010101u;
	char *to = start;

	if (bytes < BLOCK) {
		set_few(to, value, bytes);
		return start;
	}
#if ARCH_HAS_LONG
	if (bytes >= ARCH_LONG_BYTES) {
		arch_fill_long(start, (unsigned char)byte, bytes);
		return start;
	}
#endif
	block blocks = {value, value};
	char *end = to + bytes - BLOCK;

	for (; to + BLOCKS <= end; to += BLOCKS) {
		((block *)to)[0] = blocks;
		((block *)to)[1] = blocks;
		((block *)to)[2] = blocks;
		((block *)to)[3] = blocks;
	}
	for (; to < end; to += BLOCK)
		*(block *)to = blocks;
	*(block *)end = blocks;
	return start;
}

int cpuslab_libc_memcmp(const void *one, const void *other, size_t bytes)
{
	const unsigned char *a = one, *b = other;

	for (; bytes >= sizeof(eight) && *(const eight *)a == *(const eight *)b; bytes -= sizeof(eight))
		a += sizeof(eight), b += sizeof(eight);
	for (; bytes && *a == *b; bytes--)
		a++, b++;
	return bytes ? *a - *b : 0;
}

void *cpuslab_libc_memchr(const void *start, int byte, size_t bytes)
{
	const unsigned char *at = start;

	for (; bytes; bytes--, at++)
		if (*at == (unsigned char)byte)
			return (void *)at;
	return NULL;
}

size_t cpuslab_libc_strlen(const char *string)
{
	size_t length = 0;

	while (string[length])
		length++;
	return length;
}

int cpuslab_libc_strncmp(const char *one, const char *other, size_t most)
{
	for (; most && *one && *one == *other; most--)
		one++, other++;
	return most ? (unsigned char)*one - (unsigned char)*other : 0;
}

int cpuslab_libc_strcmp(const char *one, const char *other)
{
	return cpuslab_libc_strncmp(one, other, SIZE_MAX);
}

char *cpuslab_libc_strchr(const char *string, int letter)
{
	return cpuslab_libc_memchr(string, letter, cpuslab_libc_strlen(string) + 1);
}

char *cpuslab_libc_strrchr(const char *string, int letter)
{
	size_t end = cpuslab_libc_strlen(string) + 1;

	while (end--)
		if (string[end] == (char)letter)
			return (char *)string + end;
	return NULL;
}

char *cpuslab_libc_stpcpy(char *to, const char *from)
{
	size_t length = cpuslab_libc_strlen(from);

	return (char *)cpuslab_libc_memcpy(to, from, length + 1) + length;
}

char *cpuslab_libc_strcpy(char *to, const char *from)
{
	cpuslab_libc_stpcpy(to, from);
	return to;
}

/* Pads with zeroes up to `most`, and does not end the string if it has no room for that. */
char *cpuslab_libc_stpncpy(char *to, const char *from, size_t most)
{
	size_t length = 0;

	for (; length < most && from[length]; length++)
		to[length] = from[length];
	cpuslab_libc_memset(to + length, 0, most - length);
	return to + length;
}

char *cpuslab_libc_strncpy(char *to, const char *from, size_t most)
{
	cpuslab_libc_stpncpy(to, from, most);
	return to;
}

/* The length of the part in front that has letters of the set, or none of them. */
static size_t span(const char *string, const char *set, bool wanted)
{
	size_t length = 0, letters = cpuslab_libc_strlen(set);

	while (string[length] && (cpuslab_libc_memchr(set, string[length], letters) != NULL) == wanted)
		length++;
	return length;
}

size_t cpuslab_libc_strspn(const char *string, const char *set)
{
	return span(string, set, true);
}

size_t cpuslab_libc_strcspn(const char *string, const char *set)
{
	return span(string, set, false);
}

/* Of decimal numbers without a sign, which is all that is read here. */
unsigned long cpuslab_libc_strtoul(const char *text, char **end, int base)
{
	const char *at = text + cpuslab_libc_strspn(text, " \t\n"), *digits = at;
	unsigned long number = 0;
	bool too_large = false;

	for (; *at >= '0' && *at <= '9'; at++)
		too_large |= __builtin_mul_overflow(number, (unsigned long)base, &number) ||
			     __builtin_add_overflow(number, (unsigned long)(*at - '0'), &number);
	if (end)
		*end = (char *)(at > digits ? at : text);
	return too_large ? ULONG_MAX : number;
}
