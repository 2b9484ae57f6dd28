/* SPDX-License-Identifier: MIT */
/*
 * check/unwind: the return addresses on the calling thread's stack, for reports (stack.h) and samples
 * (profile/).
 *
 * Reads the tables that compilers emit for exceptions (.eh_frame, DWARF 5, 6.4), so it needs no frame
 * pointers; falls back on frame pointers where there is no table, as in code generated at run time.  The C
 * library's backtrace() would load a library, and so allocate, in the middle of an allocation; the C++
 * runtime's unwinder is not part of the C library, and takes locks.  Reads no stack memory that it has not
 * asked the kernel about, so it survives whatever a program does with its stack pointer.
 *
 * Rules found for an address are cached, since the same callers recur; for nearly every function they fit one
 * word.  Callable from any thread and in signal handlers: no lock, no allocation.
 */
#ifndef CPUSLAB_CHECK_UNWIND_H
#define CPUSLAB_CHECK_UNWIND_H

#include <stdint.h>

/*
 * Stores return addresses, innermost first: from the library's caller on where the library is a file of its
 * own, else from this function's caller.  Returns how many.
 */
unsigned unwind_callers(uintptr_t *frames, unsigned capacity);

#endif
