/* SPDX-License-Identifier: MIT */
/*
 * arch/registers: where a stack begins for whoever unwinds it, and DWARF's numbers of the registers that it
 * takes.
 */
#ifndef CPUSLAB_ARCH_REGISTERS_H
#define CPUSLAB_ARCH_REGISTERS_H

#include <stdint.h>

struct arch_frame {
	uintptr_t pc, sp, fp;
};

#if defined(__x86_64__)
enum { ARCH_DWARF_FP = 6, ARCH_DWARF_SP = 7, ARCH_DWARF_PC = 16 };

/* Inline: of the function that calls it. */
static inline __attribute__((always_inline)) struct arch_frame arch_here(void)
{
	struct arch_frame frame;

	__asm__ volatile("leaq 0(%%rip), %0\n"
			 "movq %%rsp, %1\n"
			 "movq %%rbp, %2\n"
			 : "=r"(frame.pc), "=r"(frame.sp), "=r"(frame.fp));
	return frame;
}
#else
/* Without CFI for this machine: frame pointers alone. */
enum { ARCH_DWARF_FP = 29, ARCH_DWARF_SP = 31, ARCH_DWARF_PC = 30 };

static inline __attribute__((always_inline)) struct arch_frame arch_here(void)
{
	uintptr_t fp = (uintptr_t)__builtin_frame_address(0);

	return (struct arch_frame){.pc = 0, .sp = fp, .fp = fp};
}
#endif

#endif
