/* SPDX-License-Identifier: MIT */
/*
 * check/text: gathers the lines of a report in one buffer and writes them to standard error in one piece, so
 * that reports of several processes do not mix.  Allocates nothing.
 *
 * There is one buffer, locked from text_begin() to text_end(); only locks of the lock room may be taken under
 * this lock.  What does not fit goes out in several pieces.
 */
#ifndef CPUSLAB_CHECK_TEXT_H
#define CPUSLAB_CHECK_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { TEXT_LINE = 512 };

void text_begin(void);
/* Makes room for TEXT_LINE more characters and returns it; text_added() says how many are there now. */
char *text_room(void);
void text_added(int characters);
/* Like printf, up to TEXT_LINE characters at a time. */
#define text_add(...) text_added(snprintf(text_room(), TEXT_LINE, __VA_ARGS__))
/*
 * Formats a return address as an offset in its function, where known, and in its module, like snprintf: into
 * any buffer, or added to the report.
 */
int text_code(char *to, size_t bytes, uintptr_t address);
void text_add_code(uintptr_t address);
/* Adds bytes as lines of sixteen, in hexadecimal and as text, each with a title and its address. */
void text_add_bytes(const char *title, const unsigned char *start, size_t count);
void text_end(void);

/* In a forked child. */
bool text_is_torn(void);
void text_repair(void);

#endif
