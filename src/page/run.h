/* SPDX-License-Identifier: MIT */
/*
 * run: page runs of the heap.  See page.h for the room's rules; this header is for its own files.
 */
#ifndef CPUSLAB_RUN_H
#define CPUSLAB_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Page numbers here count from the heap's start. */
enum { RUN_NONE = UINT32_MAX };

/*
 * Of a free run, at its first page all of this, and at its last page `pages` and `state` (boundary tags: a
 * freed run finds its free neighbours through them).  Of a large run, at its first page `pages`.
 */
struct run {
	uint32_t pages;
	uint32_t state;          /* enum run_state */
	uint32_t next, previous; /* the bin's list */
	uint32_t newer, older;   /* dirty runs by the time of their free */
	uint64_t freed_at;       /* milliseconds */
};

enum run_state {
	RUN_CLEAN, /* reads as zero, takes no memory */
	RUN_DIRTY, /* still resident */
};

void run_init(void);
void run_repair(bool all);
void run_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
