/* SPDX-License-Identifier: MIT */
/*
 * check/stack: a store that keeps each call stack (unwind.h) once.
 *
 * Owns the stacks, in metadata, for the life of the process, up to STACK_STORE_BYTES; beyond them no new ones
 * are kept.  Callable from any thread.  Lock-free: a complete stack enters its hash chain by one store, and
 * never leaves it.
 */
#ifndef CPUSLAB_CHECK_STACK_H
#define CPUSLAB_CHECK_STACK_H

#include <stdint.h>

enum { STACK_FRAMES = 16, STACK_STORE_BYTES = 64 << 20 };

/*
 * Captures the stack from the library's caller on; returns a number that is the same for equal stacks, or 0
 * when the stack cannot be kept.
 */
uint32_t stack_capture(void);
/* Returns the frames of a number, innermost first, and their count. */
const uintptr_t *stack_frames(uint32_t number, unsigned *count);
/* Adds its frames to the report, one a line. */
void stack_report(uint32_t number);

#endif
