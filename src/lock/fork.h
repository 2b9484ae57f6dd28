/* SPDX-License-Identifier: MIT */
/*
 * fork: state that a forked child must reset, where only libc's handlers tell of a fork.
 *
 * Handlers run in the child in the order of their registration.  One that the program registered before the
 * library's own may use the state before that has reset it; and by the time that the library's own runs, new
 * threads may use it.  So the forking thread, which is the child's only one, notes its process before it
 * forks, and whoever uses the state asks fork_has_left_it first.
 *
 * A child of vfork shares its parent's memory and must reset nothing: libc calls no handlers there, and the
 * note is the forking thread's own.
 */
#ifndef CPUSLAB_LOCK_FORK_H
#define CPUSLAB_LOCK_FORK_H

#include "os/os.h"

#include <stdbool.h>

/*
 * Thread-local: the process that this thread is about to fork; 0 if it does not fork, or did before the
 * handlers were registered; FORK_WAS_RESET in a child that has reset the state before its handler ran.
 */
typedef uint32_t fork_note;
enum { FORK_WAS_RESET = UINT32_MAX };

/* In the handlers before a fork, and after it in the parent. */
static inline void fork_begins(fork_note *note)
{
	*note = os_process_id();
}

static inline void fork_is_over(fork_note *note)
{
	*note = 0;
}

/* Before each use of the state: returns whether the caller must reset it first. */
static inline bool fork_has_left_it(fork_note *note)
{
	if (__builtin_expect(*note == 0 || *note == FORK_WAS_RESET, 1) || *note == os_process_id())
		return false;
	*note = FORK_WAS_RESET;
	return true;
}

/* In the handler in the child: returns whether the state has yet to be reset. */
static inline bool fork_is_to_reset(fork_note *note)
{
	bool to_reset = *note != FORK_WAS_RESET;

	*note = 0;
	return to_reset;
}

#endif
