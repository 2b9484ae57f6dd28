/* SPDX-License-Identifier: MIT */
/* check/unwind: the frames of the calling thread, one after another, for stack.c.  See stack.h. */
#ifndef CPUSLAB_CHECK_UNWIND_H
#define CPUSLAB_CHECK_UNWIND_H

#include <stdbool.h>
#include <stdint.h>

#include "arch/arch.h"

struct unwind {
	uintptr_t registers[ARCH_REGISTERS]; /* by DWARF number; the return address is the instruction pointer
					      */
	bool interrupted;                    /* the frame did not make a call: a signal came */
	uintptr_t readable_from, readable_to; /* pages of the stack that have been read */
};

/* Starts with the caller's frame; it must be live while frames are stepped over.  False where the
 * architecture has no unwinder here. */
static inline __attribute__((always_inline)) bool unwind_begin(struct unwind *unwind)
{
	*unwind = (struct unwind){0};
	return arch_read_registers(unwind->registers);
}

/* Goes to the calling frame; false at the last one, or where nothing is to be trusted any more. */
bool unwind_step(struct unwind *unwind);

#endif
