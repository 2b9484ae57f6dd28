/* SPDX-License-Identifier: MIT */
/*
 * arch/valgrind: client requests to valgrind, if the program runs under it.
 *
 * Valgrind recognises an instruction sequence that is a no-op on a processor: rotations of one register
 * that add up to a full turn, and an exchange of a register with itself.  So neither valgrind nor its
 * header has to be installed.
 */
#ifndef CPUSLAB_ARCH_VALGRIND_H
#define CPUSLAB_ARCH_VALGRIND_H

#include <stdint.h>

enum arch_valgrind_request {
	ARCH_VALGRIND_RUNNING = 0x1001,
	ARCH_VALGRIND_BLOCK_ALLOCATED = 0x1301, /* address, bytes, red zone, whether it is defined */
	ARCH_VALGRIND_BLOCK_FREED = 0x1302,     /* address, red zone */
	/* memcheck's: address, bytes */
	ARCH_VALGRIND_NO_ACCESS = 'M' << 24 | 'C' << 16,
	ARCH_VALGRIND_DEFINED = ('M' << 24 | 'C' << 16) + 2,
};

/* Returns 0 without valgrind. */
static inline uintptr_t arch_valgrind(enum arch_valgrind_request request, uintptr_t first, uintptr_t second,
				      uintptr_t third, uintptr_t fourth)
{
#if defined(__x86_64__)
	volatile uintptr_t arguments[6] = {request, first, second, third, fourth, 0};
	uintptr_t result = 0;

	__asm__ volatile("rolq $3, %%rdi\n\t"
			 "rolq $13, %%rdi\n\t"
			 "rolq $61, %%rdi\n\t"
			 "rolq $51, %%rdi\n\t"
			 "xchgq %%rbx, %%rbx"
			 : "+d"(result)
			 : "a"(&arguments[0])
			 : "cc", "memory");
	return result;
#else
	(void)request, (void)first, (void)second, (void)third, (void)fourth;
	return 0;
#endif
}

#endif
