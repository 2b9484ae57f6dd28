/* SPDX-License-Identifier: MIT */
/*
 * options/mailbox: how another process asks this one for something: the format, shared with
 * tools/inspect/ask.c.
 *
 * Whoever may write this process's memory (process_vm_writev(2), which asks what ptrace(2) asks) puts a
 * letter into it, then a ticket into `wanted`.  A slow path of any thread that finds `wanted` other than
 * `seen` makes them equal, by one exchange, so that one thread takes the request and no lock can be left
 * behind; copies the letter once; checks the copy; does what it says; and stores the answer, one word that
 * has the ticket in it.
 *
 * Writers need not know of each other.  One that writes over another's letter makes the check fail, or the
 * ticket disappear: the other sees either and asks again.  The check tells a mixture of two letters, or a
 * part of one, from a whole one; it keeps nobody out, and need not: whoever can write here can write
 * anywhere.
 */
#ifndef CPUSLAB_OPTIONS_MAILBOX_H
#define CPUSLAB_OPTIONS_MAILBOX_H

#include <stddef.h>
#include <stdint.h>

enum { MAILBOX_TEXT = 248 };

struct mailbox {
	uint32_t wanted; /* the last request's ticket, any number but 0; written from outside */
	uint32_t seen;   /* the last one taken */
};

struct mailbox_letter {
	uint64_t answer; /* to the last request that was answered: see mailbox_answer() */
	uint32_t check;
	uint32_t length;
	char text[MAILBOX_TEXT]; /* "trim", or key:value,key:value; not terminated */
};

enum mailbox_result {
	MAILBOX_DONE,
	MAILBOX_GARBLED, /* the letter was not whole: ask again */
	MAILBOX_INVALID, /* no such option, or not with that value; nothing was changed */
	MAILBOX_FIXED,   /* an option that is fixed at start; nothing was changed */
};

/* An answer, one word.  `token`: the number of the key:value at fault.
 */
static inline uint64_t mailbox_answer(uint32_t ticket, enum mailbox_result result, unsigned token)
{
	return (uint64_t)ticket << 32 | (uint64_t)(token & 0xffff) << 8 | (uint64_t)result;
}

/* FNV-1a over ticket, length and text; the length must be valid. */
static inline uint32_t mailbox_check(uint32_t ticket, const struct mailbox_letter *letter)
{
	uint32_t hash = (2166136261u ^ ticket) * 16777619u;

	hash = (hash ^ letter->length) * 16777619u;
	for (uint32_t i = 0; i < letter->length; i++)
		hash = (hash ^ (unsigned char)letter->text[i]) * 16777619u;
	return hash;
}

#endif
