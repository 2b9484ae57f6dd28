/* SPDX-License-Identifier: MIT */
/*
 * check/text: lines of a report, gathered in one buffer and written to standard error in one piece, so that
 * reports of several processes do not mix.  Allocates nothing.
 *
 * There is one buffer, and one lock for it, between text_begin and text_end; the innermost lock but for
 * those of the lock room.  What does not fit goes out in several pieces.
 */
#ifndef CPUSLAB_CHECK_TEXT_H
#define CPUSLAB_CHECK_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { TEXT_LINE = 512 };

void text_begin(void);
/* Room for TEXT_LINE characters more, and how many of them are there now. */
char *text_room(void);
void text_added(int characters);
/* As printf does; up to TEXT_LINE characters at a time. */
#define text_add(...) text_added(snprintf(text_room(), TEXT_LINE, __VA_ARGS__))
/* A return address: the function it lies in where that is known, and the module and its offset there. */
void text_add_code(uintptr_t address);
/* Bytes as lines of sixteen, in hexadecimal and as text, each with a title and its address. */
void text_add_bytes(const char *title, const unsigned char *start, size_t count);
void text_end(void);

/* In a forked child. */
void text_repair(void);

#endif
