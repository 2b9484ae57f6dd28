/* SPDX-License-Identifier: MIT */
/*
 * arch/registers: the registers from which a stack is unwound: the call-preserved ones, by DWARF's numbers,
 * with the instruction pointer last.
 */
#ifndef CPUSLAB_ARCH_REGISTERS_H
#define CPUSLAB_ARCH_REGISTERS_H

#include <stdint.h>

#if defined(__x86_64__)
#define ARCH_HAS_FRAME_TABLES 1

enum { ARCH_REGISTER_FP = 6, ARCH_REGISTER_SP = 7, ARCH_REGISTER_IP = 16, ARCH_REGISTERS = 17 };
/* Those that a function saves before it changes them. */
#define ARCH_REGISTERS_SAVED 3, 6, 12, 13, 14, 15

/* Always inline: reads the registers of its caller. */
static inline __attribute__((always_inline)) void arch_read_registers(uintptr_t *registers)
{
	uintptr_t scratch;

	__asm__ volatile("movq %%rbx, 24(%[to])\n"
			 "movq %%rbp, 48(%[to])\n"
			 "movq %%rsp, 56(%[to])\n"
			 "movq %%r12, 96(%[to])\n"
			 "movq %%r13, 104(%[to])\n"
			 "movq %%r14, 112(%[to])\n"
			 "movq %%r15, 120(%[to])\n"
			 "leaq 0f(%%rip), %[scratch]\n"
			 "0:\n"
			 "movq %[scratch], 128(%[to])\n"
			 : [scratch] "=&r"(scratch)
			 : [to] "r"(registers)
			 : "memory");
}
#else
/* No frame tables on this machine: only frame pointers. */
#define ARCH_HAS_FRAME_TABLES 0

enum { ARCH_REGISTER_FP, ARCH_REGISTER_SP, ARCH_REGISTER_IP, ARCH_REGISTERS };

static inline __attribute__((always_inline)) void arch_read_registers(uintptr_t *registers)
{
	registers[ARCH_REGISTER_FP] = registers[ARCH_REGISTER_SP] = (uintptr_t)__builtin_frame_address(0);
}
#endif

#endif
