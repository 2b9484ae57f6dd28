/* SPDX-License-Identifier: MIT */
/*
 * check/stack: a store where each stack (unwind.h) is kept once.
 *
 * Owns the stacks, in metadata, for the life of the process; up to STACK_STORE_BYTES, then no new ones.
 * Callable from any thread; no lock: a stack enters its chain by one store, whole, and never leaves it.
 */
#ifndef CPUSLAB_CHECK_STACK_H
#define CPUSLAB_CHECK_STACK_H

#include <stdint.h>

enum { STACK_FRAMES = 16, STACK_STORE_BYTES = 64 << 20 };

/* The stack of the caller from the library's own caller on, as a number that is always the same for the same
 * stack; 0 when it cannot be kept. */
uint32_t stack_capture(void);
/* The frames of a number, innermost first, and how many. */
const uintptr_t *stack_frames(uint32_t number, unsigned *count);
/* Adds them to the report, a line for each. */
void stack_report(uint32_t number);

#endif
