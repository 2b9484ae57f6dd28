/* SPDX-License-Identifier: MIT */
/*
 * check/unwind: who called: the return addresses of the calling thread's stack, for reports (stack.h) and
 * samples (profile/).
 *
 * Reads what compilers leave for exceptions (.eh_frame, DWARF 5, 6.4), so that it needs no frame pointers,
 * and falls back on frame pointers where there is no such table, as in code that was made at run time. libc's
 * backtrace() would load a library, and so allocate, in the middle of an allocation; the C++ runtime's
 * unwinder is no part of libc, and takes locks.  It reads no memory of a stack that it has not asked the
 * kernel about, so that it survives whatever a program does with its stack pointer.
 *
 * What was found for an address is remembered, since the same callers come again: of nearly every function
 * it fits one word.  Callable from any thread and in signal handlers: no lock, no allocation.
 */
#ifndef CPUSLAB_CHECK_UNWIND_H
#define CPUSLAB_CHECK_UNWIND_H

#include <stdint.h>

/* The innermost first, from the library's own caller on where the library is a file of its own; else from
 * this function's caller.  Returns how many. */
unsigned unwind_callers(uintptr_t *frames, unsigned capacity);

#endif
