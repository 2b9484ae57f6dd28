/* SPDX-License-Identifier: MIT */
/*
 * The kernel's entry.  libc's functions for system calls can be replaced by the program or by a library that
 * is preloaded, whose own may allocate; besides, they are cancellation points, and set errno.
 */
#ifndef CPUSLAB_ARCH_SYSTEM_CALL_H
#define CPUSLAB_ARCH_SYSTEM_CALL_H

#if defined(__x86_64__)

/* Returns the kernel's result, a negative errno for an error. */
static inline long arch_system_call(long number, long a, long b, long c, long d, long e, long f)
{
	register long fourth __asm__("r10") = d;
	register long fifth __asm__("r8") = e;
	register long sixth __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
			 : "rcx", "r11", "memory");
	return result;
}

/*
 * What the kernel lets a signal handler return to.  The stack pointer is then at the interrupted thread's
 * registers, from which stacks are unwound: the caller's stack pointer is in one of them, and each register
 * is saved at an offset there (DW_CFA_expression: DW_OP_breg7 offset).
 */
#define ARCH_HAS_SIGNAL_RETURN 1
#define ARCH_SAVED_AT(number, offset)                                                                        \
	".cfi_escape 0x10, " #number ", 3, 0x77, 0x80 | (" #offset " & 0x7f), " #offset " >> 7\n"
#define ARCH_DEFINE_SIGNAL_RETURN(name)                                                                      \
	__asm__(".pushsection .text\n"                                                                       \
		".balign 16\n"                                                                               \
		".cfi_startproc\n"                                                                           \
		".cfi_signal_frame\n"                                                                        \
		".cfi_escape 0x0f, 4, 0x77, 0xa0, 1, 6\n" /* CFA: what is saved at 160 */                    \
		ARCH_SAVED_AT(0, 144) ARCH_SAVED_AT(1, 136) ARCH_SAVED_AT(2, 152) ARCH_SAVED_AT(3, 128)      \
			ARCH_SAVED_AT(4, 112) ARCH_SAVED_AT(5, 104) ARCH_SAVED_AT(6, 120) ARCH_SAVED_AT(     \
				7, 160) ARCH_SAVED_AT(8, 40) ARCH_SAVED_AT(9, 48) ARCH_SAVED_AT(10, 56)      \
				ARCH_SAVED_AT(11, 64) ARCH_SAVED_AT(12, 72) ARCH_SAVED_AT(13, 80)            \
					ARCH_SAVED_AT(14, 88) ARCH_SAVED_AT(15, 96) ARCH_SAVED_AT(           \
						16, 168) "nop\n" /* unwinders look up the address before the \
								    one that is returned to */               \
							 ".hidden " #name "\n"                               \
							 ".globl " #name "\n"                                \
							 ".type " #name ", @function\n" #name ":\n"          \
							 "movq $15, %rax\n" /* __NR_rt_sigreturn */          \
							 "syscall\n"                                         \
							 ".cfi_endproc\n"                                    \
							 ".size " #name ", . - " #name "\n"                  \
							 ".popsection\n")

#elif defined(__aarch64__)

static inline long arch_system_call(long number, long a, long b, long c, long d, long e, long f)
{
	register long at __asm__("x8") = number;
	register long first __asm__("x0") = a;
	register long second __asm__("x1") = b;
	register long third __asm__("x2") = c;
	register long fourth __asm__("x3") = d;
	register long fifth __asm__("x4") = e;
	register long sixth __asm__("x5") = f;

	__asm__ volatile("svc #0"
			 : "+r"(first)
			 : "r"(at), "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth)
			 : "memory");
	return first;
}

#define ARCH_HAS_SIGNAL_RETURN 0 /* the kernel has one of its own */

#else

#include <errno.h>
#include <unistd.h>

static inline long arch_system_call(long number, long a, long b, long c, long d, long e, long f)
{
	int saved = errno;
	long result = syscall(number, a, b, c, d, e, f);

	if (result == -1)
		result = -errno;
	errno = saved;
	return result;
}

#define ARCH_HAS_SIGNAL_RETURN 0

#endif
#endif
