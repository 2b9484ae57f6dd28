/* SPDX-License-Identifier: MIT */
/*
 * single_step: sets and clears the trap flag from inside the program: a SIGTRAP follows each instruction in
 * between.  The flag is set through the stack, below the red zone.  Processors other than x86-64 step
 * nothing.
 */
#ifndef CPUSLAB_TESTS_SINGLE_STEP_H
#define CPUSLAB_TESTS_SINGLE_STEP_H

enum { TRAP_FLAG = 0x100 };

#ifdef __x86_64__

static inline __attribute__((always_inline)) void step_from_here(void)
{
	__asm__ volatile("lea -128(%%rsp), %%rsp\n"
			 "pushfq\n"
			 "orl %0, (%%rsp)\n"
			 "popfq\n"
			 "lea 128(%%rsp), %%rsp\n"
			 :
			 : "i"(TRAP_FLAG)
			 : "memory", "cc");
}

static inline __attribute__((always_inline)) void step_to_here(void)
{
	__asm__ volatile("lea -128(%%rsp), %%rsp\n"
			 "pushfq\n"
			 "andl %0, (%%rsp)\n"
			 "popfq\n"
			 "lea 128(%%rsp), %%rsp\n"
			 :
			 : "i"(~TRAP_FLAG)
			 : "memory", "cc");
}

#else

static inline void step_from_here(void)
{
}

static inline void step_to_here(void)
{
}

#endif

#endif
