/* SPDX-License-Identifier: MIT */
/*
 * check/request: which caches are debugged, and how, according to the variable CPUSLAB_DEBUG in the syntax of
 * the kernel's boot parameter slab_debug (Documentation/admin-guide/mm/slab.rst):
 *
 *   [flags][,name[,name]...][;...]
 *
 * A block with names applies to the caches of these names; a name with a '*' matches all that begin with what
 * precedes it.  The first block that names a cache decides.  A block without names applies to every cache
 * that no block names; the last such block counts.  Names without flags ask for F, Z, P and U.  An empty
 * variable asks for nothing.
 *
 * Owns a copy of the string.  Read once, at start, and read-only from then on, so no caller needs a lock.
 */
#ifndef CPUSLAB_CHECK_REQUEST_H
#define CPUSLAB_CHECK_REQUEST_H

#include <stdbool.h>

#include <cpuslab/cache.h>

/* What is done to a cache's objects.  Flags that <cpuslab/cache.h> has are the same bits. */
enum check_flags {
	CHECK_CONSISTENCY =
		CPUSLAB_CACHE_CONSISTENCY_CHECKS, /* F: check each object at allocation and free */
	CHECK_RED_ZONE = CPUSLAB_CACHE_RED_ZONE,  /* Z: known bytes before and after it */
	CHECK_POISON = CPUSLAB_CACHE_POISON,      /* P: known bytes in it while it is free */
	CHECK_OWNER = CPUSLAB_CACHE_STORE_USER,   /* U: which thread allocated and which freed it */
	CHECK_TRACE = CPUSLAB_CACHE_TRACE,        /* T: a line for each call */
	CHECK_FAIL = 1 << 30,                     /* A: the option failslab fails its allocations */
	CHECK_ANNOTATE = 1 << 29, /* no letter: a tool that watches memory is told (annotate.h) */

	CHECK_DEFAULT = CHECK_CONSISTENCY | CHECK_RED_ZONE | CHECK_POISON | CHECK_OWNER,
	/* What the flag O removes from a cache whose objects would need a larger slab for it. */
	CHECK_SPACE = CHECK_RED_ZONE | CHECK_POISON | CHECK_OWNER,
	CHECK_ALL = CHECK_DEFAULT | CHECK_TRACE | CHECK_FAIL | CHECK_ANNOTATE,
};

/*
 * Parses a string, which must remain unchanged.  Reports what it does not understand in one line on stderr.
 */
void check_request_parse(const char *string);
/* Reads the environment, which a set-user-id program ignores, and parses. */
void check_request_init(void);

/* Returns the flags of a cache: those its creator asks for, and those requested for its name. */
unsigned check_request_flags(const char *name, unsigned asked);
/* Whether the flag O was given. */
bool check_request_keeps_order(void);

/* Whether `name` is in a list of names, which ends with the string or at a ';'. */
bool check_request_matches(const char *list, const char *name);

#endif
